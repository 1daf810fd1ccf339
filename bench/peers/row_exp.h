// SPDX-License-Identifier: Apache-2.0
// What a matrix library lacks for attention: the exponentials of a row of scores.
#pragma once

#include "core/tensor.h"

namespace attest {

// How far apart the rows of a score matrix of n columns should lie: a multiple of 16 floats that is
// no power of two, so that rows do not compete for the same cache lines.
inline Index ScoreStride(Index n) { return (n + 15) / 16 * 16 + 16; }

// row[j] = 2^(row[j] - max) for the first `seen` >= 1 scores and 0 for the rest of n; returns the
// sum. Up to the next multiple of 16 the row's memory is overwritten.
float Exp2OfRow(float* row, Index seen, Index n);

// row[j] *= factor.
void ScaleRow(float* row, Index n, float factor);

}  // namespace attest
