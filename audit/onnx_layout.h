// SPDX-License-Identifier: Apache-2.0
// Tensors in another order: axes exchanged, split, merged or repeated.
#pragma once

#include <vector>

#include "core/tensor.h"

namespace attest {

// One axis of the elements that are taken from a tensor; stride 0 repeats them.
struct TakenAxis {
  Index extent;
  Index stride;
};

// The elements of `from` at the sums of the axes' indices times strides, in row-major order of the
// axes, as a tensor of `shape`, which has as many elements.
Tensor Take(const Tensor& from, const std::vector<TakenAxis>& axes, const Shape& shape);

// [B, T, heads * D] as [B, heads, T, D]. heads must divide the last axis.
Tensor SplitHeads(const Tensor& flat, Index heads);

// Two tensors of one type and rank 4 that differ on axis 2 alone, one after the other on it.
Tensor JoinKeys(const Tensor& first, const Tensor& second);

// `tensor` with its bytes as they are, as another shape of as many elements.
Tensor Reshaped(const Tensor& tensor, const Shape& shape);

// Whether two tensors have the same type, shape and bytes.
bool SameBits(const Tensor& a, const Tensor& b);

}  // namespace attest
