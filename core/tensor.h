// SPDX-License-Identifier: Apache-2.0
// Tensors that own their elements, and strided views that do not.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace attest {

using Index = std::int64_t;
using Shape = std::vector<Index>;

// A view of `Rank` axes: element (i0, i1, ...) lies at data[i0*strides[0] + i1*strides[1] + ...].
// Strides count elements and may be 0 (broadcast) or negative. A view never owns its data.
template <class T, std::size_t Rank>
struct View {
  T* data = nullptr;
  std::array<Index, Rank> shape{};
  std::array<Index, Rank> strides{};

  template <class... Indices>
  T& operator()(Indices... indices) const {
    static_assert(sizeof...(Indices) == Rank);
    const std::array<Index, Rank> index{static_cast<Index>(indices)...};
    Index offset = 0;
    for (std::size_t axis = 0; axis < Rank; ++axis) {
      assert(index[axis] >= 0 && (index[axis] < shape[axis] || strides[axis] == 0));
      offset += index[axis] * strides[axis];
    }
    return data[offset];
  }

  operator View<const T, Rank>() const {
    return {data, shape, strides};
  }  // NOLINT: adds const only
};

// Strides of a dense row-major array of this shape.
template <std::size_t Rank>
std::array<Index, Rank> ContiguousStrides(const std::array<Index, Rank>& shape) {
  std::array<Index, Rank> strides{};
  Index step = 1;
  for (std::size_t axis = Rank; axis-- > 0;) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

// Product of the extents (1 for rank 0).
Index ElementCount(const Shape& shape);

// The index of element `flat` of a dense row-major array.
std::vector<Index> Unflatten(Index flat, const Shape& shape);

// "[2, 8, 128, 64]", for messages.
std::string ToString(const Shape& shape);

// A dense row-major array of one element type. The bytes are exactly those of the file formats
// (little endian, booleans one byte each).
class Tensor {
 public:
  Tensor() = default;
  // All elements zero (false).
  Tensor(DType dtype, Shape shape);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::size_t rank() const { return shape_.size(); }
  Index size() const { return ElementCount(shape_); }

  std::byte* bytes() { return bytes_.data(); }
  const std::byte* bytes() const { return bytes_.data(); }
  std::size_t byte_size() const { return bytes_.size(); }

  template <class T>
  T* data() {
    assert(DTypeOf<T>::value == dtype_);
    return reinterpret_cast<T*>(bytes_.data());
  }
  template <class T>
  const T* data() const {
    assert(DTypeOf<T>::value == dtype_);
    return reinterpret_cast<const T*>(bytes_.data());
  }

  // Element `index` in row-major order, exactly (every supported type embeds in double).
  double At(Index index) const;
  // Stores `value` rounded to the tensor's type, ties to even.
  void Set(Index index, double value);

  // Views of the whole tensor; rank and type must agree.
  template <class T, std::size_t Rank>
  View<T, Rank> view() {
    return {data<T>(), ShapeArray<Rank>(), ContiguousStrides(ShapeArray<Rank>())};
  }
  template <class T, std::size_t Rank>
  View<const T, Rank> view() const {
    return {data<T>(), ShapeArray<Rank>(), ContiguousStrides(ShapeArray<Rank>())};
  }

 private:
  template <std::size_t Rank>
  std::array<Index, Rank> ShapeArray() const {
    assert(shape_.size() == Rank);
    std::array<Index, Rank> shape{};
    for (std::size_t axis = 0; axis < Rank; ++axis) shape[axis] = shape_[axis];
    return shape;
  }

  DType dtype_ = DType::kF32;
  Shape shape_;
  std::vector<std::byte> bytes_;
};

// Every element, exactly, in row-major order.
std::vector<double> ToDoubles(const Tensor& tensor);

using TensorMap = std::map<std::string, Tensor>;

// `view` with every axis of length 1 stretched to `shape` by stride 0 (broadcasting).
template <class T, std::size_t Rank>
View<T, Rank> BroadcastTo(View<T, Rank> view, const std::array<Index, Rank>& shape) {
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (view.shape[axis] == 1 && shape[axis] != 1) view.strides[axis] = 0;
    view.shape[axis] = shape[axis];
  }
  return view;
}

}  // namespace attest
