// SPDX-License-Identifier: Apache-2.0
#include "audit/onnx_layout.h"

#include <cassert>
#include <cstring>

namespace attest {
namespace {

void CopyBytes(const Tensor& from, Index first, Index to, Index count, Tensor* tensor) {
  const std::size_t size = SizeOf(from.dtype());
  if (count == 0) return;
  std::memcpy(tensor->bytes() + static_cast<std::size_t>(to) * size,
              from.bytes() + static_cast<std::size_t>(first) * size,
              static_cast<std::size_t>(count) * size);
}

}  // namespace

Tensor Take(const Tensor& from, const std::vector<TakenAxis>& axes, const Shape& shape) {
  Shape extents;
  for (const TakenAxis& axis : axes) extents.push_back(axis.extent);
  assert(ElementCount(extents) == ElementCount(shape));
  Tensor taken(from.dtype(), shape);
  std::vector<Index> index(axes.size(), 0);
  Index offset = 0;
  for (Index flat = 0; flat < taken.size(); ++flat) {
    CopyBytes(from, offset, flat, 1, &taken);
    for (std::size_t axis = axes.size(); axis-- > 0;) {
      offset += axes[axis].stride;
      if (++index[axis] < axes[axis].extent) break;
      offset -= axes[axis].stride * axes[axis].extent;
      index[axis] = 0;
    }
  }
  return taken;
}

Tensor SplitHeads(const Tensor& flat, Index heads) {
  const Shape& s = flat.shape();
  assert(s.size() == 3 && heads > 0 && s[2] % heads == 0);
  const Index dim = s[2] / heads;
  return Take(flat, {{s[0], s[1] * s[2]}, {heads, dim}, {s[1], s[2]}, {dim, 1}},
              {s[0], heads, s[1], dim});
}

Tensor JoinKeys(const Tensor& first, const Tensor& second) {
  const Shape& a = first.shape();
  const Shape& b = second.shape();
  Tensor joined(first.dtype(), {a[0], a[1], a[2] + b[2], a[3]});
  const Index rows_a = a[2] * a[3];
  const Index rows_b = b[2] * b[3];
  for (Index block = 0; block < a[0] * a[1]; ++block) {
    const Index start = block * (rows_a + rows_b);
    CopyBytes(first, block * rows_a, start, rows_a, &joined);
    CopyBytes(second, block * rows_b, start + rows_a, rows_b, &joined);
  }
  return joined;
}

Tensor Reshaped(const Tensor& tensor, const Shape& shape) {
  return Take(tensor, {{tensor.size(), 1}}, shape);
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         (a.byte_size() == 0 || std::memcmp(a.bytes(), b.bytes(), a.byte_size()) == 0);
}

}  // namespace attest
