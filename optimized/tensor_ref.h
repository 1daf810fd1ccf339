// SPDX-License-Identifier: Apache-2.0
// Strided tensors whose element type is known when running: what the kernels' interfaces take.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <type_traits>

#include "core/dtype.h"
#include "core/tensor.h"

namespace attest {

// A View (core/tensor.h) without its element type; `Data` is `const void` for inputs and `void` for
// outputs. Strides count elements; they may be 0 (broadcast, inputs only) or negative.
template <class Data, std::size_t Rank>
struct TensorRef {
  Data* data = nullptr;
  DType dtype = DType::kF32;
  std::array<Index, Rank> shape{};
  std::array<Index, Rank> strides{};

  TensorRef() = default;
  TensorRef(Data* elements, DType type, const std::array<Index, Rank>& extents,
            const std::array<Index, Rank>& steps)
      : data(elements), dtype(type), shape(extents), strides(steps) {}
  template <class T>
    requires(std::is_const_v<Data> || !std::is_const_v<T>)
  TensorRef(const View<T, Rank>& view)  // NOLINT: every view is such a reference
      : data(view.data),
        dtype(DTypeOf<std::remove_const_t<T>>::value),
        shape(view.shape),
        strides(view.strides) {}
};

template <std::size_t Rank>
using Input = TensorRef<const void, Rank>;
template <std::size_t Rank>
using Output = TensorRef<void, Rank>;

// A whole tensor of core/tensor.h, dense.
template <std::size_t Rank>
Input<Rank> InputOf(const Tensor& tensor) {
  std::array<Index, Rank> shape{};
  for (std::size_t axis = 0; axis < Rank; ++axis) shape[axis] = tensor.shape()[axis];
  return {tensor.bytes(), tensor.dtype(), shape, ContiguousStrides(shape)};
}
template <std::size_t Rank>
Output<Rank> OutputOf(Tensor& tensor) {
  const Input<Rank> input = InputOf<Rank>(tensor);
  return {tensor.bytes(), input.dtype, input.shape, input.strides};
}

// `tensor` with every axis of length 1 stretched to `shape` by stride 0 (broadcasting).
template <std::size_t Rank>
Input<Rank> BroadcastTo(Input<Rank> tensor, const std::array<Index, Rank>& shape) {
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (tensor.shape[axis] == 1 && shape[axis] != 1) tensor.strides[axis] = 0;
    tensor.shape[axis] = shape[axis];
  }
  return tensor;
}

// The address of element (index..., 0, ..., 0).
template <class Data, std::size_t Rank, class... Indices>
Data* At(const TensorRef<Data, Rank>& tensor, Indices... index) {
  static_assert(sizeof...(Indices) <= Rank);
  const std::array<Index, sizeof...(Indices)> indices{static_cast<Index>(index)...};
  Index offset = 0;
  for (std::size_t axis = 0; axis < indices.size(); ++axis) {
    offset += indices[axis] * tensor.strides[axis];
  }
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  return static_cast<Byte*>(tensor.data) + offset * static_cast<Index>(SizeOf(tensor.dtype));
}

// The axes from the third on of one (batch, head): of q [B, Hq, Tq, Dq], for one, [Tq, Dq].
template <class Data, std::size_t Rank>
TensorRef<Data, Rank - 2> OfHead(const TensorRef<Data, Rank>& tensor, Index batch, Index head) {
  TensorRef<Data, Rank - 2> part;
  part.data = At(tensor, batch, head);
  part.dtype = tensor.dtype;
  std::copy(tensor.shape.begin() + 2, tensor.shape.end(), part.shape.begin());
  std::copy(tensor.strides.begin() + 2, tensor.strides.end(), part.strides.begin());
  return part;
}

}  // namespace attest
