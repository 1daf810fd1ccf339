// SPDX-License-Identifier: Apache-2.0
// Tensors inside memory full of junk, so that over-reads, over-writes and unwritten elements show.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "core/tensor.h"

namespace attest {

// Which junk lies in output buffers and around tensors. Both read as NaN or as huge numbers in
// every floating-point type; results that depend on the choice read what they must not.
enum class Junk : unsigned char { kNaN = 0xff, kHuge = 0x7e };

class GuardedTensor {
 public:
  // A copy of `tensor` with junk before and after it.
  GuardedTensor(const Tensor& tensor, Junk junk);
  // An output buffer: junk before, after and inside.
  GuardedTensor(DType dtype, const Shape& shape, Junk junk);

  template <class T>
  T* data() {
    return reinterpret_cast<T*>(memory_.data() + kGuard);
  }

  std::byte* bytes() { return memory_.data() + kGuard; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  bool GuardsIntact() const;
  // Whether the elements are still those of `tensor`, bit by bit.
  bool Holds(const Tensor& tensor) const;
  Tensor Copy() const;

 private:
  static constexpr std::size_t kGuard = 256;  // bytes on each side; a multiple of every alignment

  DType dtype_;
  Shape shape_;
  std::byte fill_;
  std::size_t size_;
  std::vector<std::byte> memory_;
};

// A dense view of the elements; type and rank must agree.
template <class T, std::size_t Rank>
View<T, Rank> ViewOf(GuardedTensor& tensor) {
  std::array<Index, Rank> shape{};
  std::copy_n(tensor.shape().begin(), Rank, shape.begin());
  return {tensor.data<T>(), shape, ContiguousStrides(shape)};
}

}  // namespace attest
