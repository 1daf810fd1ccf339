// SPDX-License-Identifier: Apache-2.0
#include "audit/guarded_tensor.h"

#include <algorithm>
#include <cstring>

namespace attest {

GuardedTensor::GuardedTensor(DType dtype, const Shape& shape, Junk junk)
    : dtype_(dtype),
      shape_(shape),
      fill_(static_cast<std::byte>(junk)),
      size_(static_cast<std::size_t>(ElementCount(shape)) * SizeOf(dtype)),
      memory_(size_ + 2 * kGuard, fill_) {}

GuardedTensor::GuardedTensor(const Tensor& tensor, Junk junk)
    : GuardedTensor(tensor.dtype(), tensor.shape(), junk) {
  if (size_ > 0) std::memcpy(memory_.data() + kGuard, tensor.bytes(), size_);
}

bool GuardedTensor::GuardsIntact() const {
  const auto is_fill = [&](std::byte b) { return b == fill_; };
  const auto inside = static_cast<std::ptrdiff_t>(kGuard);
  return std::all_of(memory_.begin(), memory_.begin() + inside, is_fill) &&
         std::all_of(memory_.end() - inside, memory_.end(), is_fill);
}

bool GuardedTensor::Holds(const Tensor& tensor) const {
  return size_ == tensor.byte_size() &&
         (size_ == 0 || std::memcmp(memory_.data() + kGuard, tensor.bytes(), size_) == 0);
}

Tensor GuardedTensor::Copy() const {
  Tensor tensor(dtype_, shape_);
  if (size_ > 0) std::memcpy(tensor.bytes(), memory_.data() + kGuard, size_);
  return tensor;
}

}  // namespace attest
