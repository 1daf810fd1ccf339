// SPDX-License-Identifier: Apache-2.0
// Cases of any score with every gradient they can have.
#pragma once

#include "core/case.h"

namespace attest {

// Normal numbers, times `factor`, drawn by `name`.
Tensor NormalTensor(DType dtype, const Shape& shape, const char* name, double factor = 1.0);

// A case with the features of Combined (properties/combined_case.h), the score `score`, and as
// outputs out, LSE and every gradient it can have. Empty rows are zero.
Case CombinedWithGradients(unsigned features, ScoreKind score, DType dtype = DType::kF64,
                           const Dimensions& shape = {2, 4, 2, 5, 7, 6, 6, 3});

}  // namespace attest
