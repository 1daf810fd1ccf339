// SPDX-License-Identifier: Apache-2.0
// Tensors inside memory full of junk, so that over-reads, over-writes and unwritten elements show.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/tensor.h"

namespace attest {

// Which junk lies in output buffers and around tensors. Both read as NaN or as huge numbers in
// every floating-point type; results that depend on the choice read what they must not.
enum class Junk : unsigned char { kNaN = 0xff, kHuge = 0x7e };

// How the elements of a tensor lie in memory. Whatever lies between them is junk as well.
enum class Layout {
  kDense,       // row-major, aligned to 64 bytes
  kPadded,      // gaps after every row and every higher axis, base off by one element
  kTransposed,  // axes 1 and 2 exchanged ([B, T, H, D] in memory); dense for ranks below 3
  kSpread,      // as kPadded, and every second element only: the last axis has stride 2
  kSparse,      // offsets beyond 2^31 elements between rows; address space, hardly any memory
};
inline constexpr std::array kLayouts{Layout::kDense, Layout::kPadded, Layout::kTransposed,
                                     Layout::kSpread, Layout::kSparse};
const char* NameOf(Layout layout);

class GuardedTensor {
 public:
  // A copy of `tensor` with junk before, after and between its elements.
  GuardedTensor(const Tensor& tensor, Junk junk, Layout layout = Layout::kDense);
  // An output buffer: junk in the elements as well.
  GuardedTensor(DType dtype, const Shape& shape, Junk junk, Layout layout = Layout::kDense);

  // Whether the address space was there; only kSparse can fail.
  bool valid() const { return memory_ != nullptr; }

  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes());
  }
  std::byte* bytes() { return memory_.get() + offset_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  // In elements, one an axis.
  const std::vector<Index>& strides() const { return strides_; }

  // Whether the junk around and between the elements is as it was. (Of kSparse: around each row.)
  bool GuardsIntact() const;
  // Whether the elements are still those of `tensor`, bit by bit.
  bool Holds(const Tensor& tensor) const;
  Tensor Copy() const;

 private:
  struct Release {
    std::size_t mapped = 0;  // bytes of a mapping; 0: memory of operator new
    void operator()(std::byte* memory) const;
  };

  // Positions in memory_ of the first element of every row, in row-major order.
  std::vector<std::size_t> RowStarts() const;
  std::size_t RowBytes() const;  // of the elements of a row, without gaps
  // Calls visit(position, bytes) for runs of elements without gaps, in row-major order.
  template <class Visit>
  void VisitElements(const Visit& visit) const;

  DType dtype_;
  Shape shape_;
  std::vector<Index> strides_;
  bool dense_;
  bool sparse_;
  std::byte fill_;
  std::size_t offset_ = 0;  // of the first element
  std::size_t size_ = 0;    // of the memory
  std::unique_ptr<std::byte, Release> memory_{nullptr, Release{}};
};

// A view of the elements; type and rank must agree.
template <class T, std::size_t Rank>
View<T, Rank> ViewOf(GuardedTensor& tensor) {
  std::array<Index, Rank> shape{};
  std::copy_n(tensor.shape().begin(), Rank, shape.begin());
  std::array<Index, Rank> strides{};
  std::copy_n(tensor.strides().begin(), Rank, strides.begin());
  return {tensor.data<T>(), shape, strides};
}

}  // namespace attest
