// SPDX-License-Identifier: Apache-2.0
// Parts and permutations of tensors along one axis.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace attest {

// The tensor whose element i along `axis` is element from[i] of `tensor`: a permutation, a part, or
// both. The shape of the axis becomes the length of `from`.
Tensor Gather(const Tensor& tensor, std::size_t axis, const std::vector<Index>& from);

// The elements first, first + 1, .., first + count - 1.
std::vector<Index> Indices(Index first, Index count);

}  // namespace attest
