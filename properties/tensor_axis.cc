// SPDX-License-Identifier: Apache-2.0
#include "properties/tensor_axis.h"

#include <numeric>

namespace attest {

Tensor Gather(const Tensor& tensor, std::size_t axis, const std::vector<Index>& from) {
  Shape shape = tensor.shape();
  const Index length = shape[axis];
  shape[axis] = static_cast<Index>(from.size());
  Tensor result(tensor.dtype(), shape);
  const Index inner =
      ElementCount(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()));
  for (Index flat = 0; flat < result.size(); ++flat) {
    const Index block = flat / (inner * shape[axis]);
    const Index at = from[static_cast<std::size_t>(flat / inner % shape[axis])];
    result.Set(flat, tensor.At((block * length + at) * inner + flat % inner));
  }
  return result;
}

std::vector<Index> Indices(Index first, Index count) {
  std::vector<Index> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

}  // namespace attest
