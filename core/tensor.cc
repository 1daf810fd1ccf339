// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <utility>

namespace attest {

Index ElementCount(const Shape& shape) {
  Index count = 1;
  for (const Index extent : shape) count *= extent;
  return count;
}

std::vector<Index> Unflatten(Index flat, const Shape& shape) {
  std::vector<Index> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = flat % shape[axis];
    flat /= shape[axis];
  }
  return index;
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(shape[axis]);
  }
  return text + "]";
}

Tensor::Tensor(DType dtype, Shape shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      bytes_(static_cast<std::size_t>(ElementCount(shape_)) * SizeOf(dtype)) {}

double Tensor::At(Index index) const {
  switch (dtype_) {
    case DType::kF64:
      return data<double>()[index];
    case DType::kF32:
      return static_cast<double>(data<float>()[index]);
    case DType::kBF16:
      return ToDouble(data<BFloat16>()[index]);
    case DType::kF16:
      return ToDouble(data<Float16>()[index]);
    case DType::kI32:
      return data<std::int32_t>()[index];
    case DType::kBool:
      return data<std::uint8_t>()[index];
  }
  return 0.0;
}

void Tensor::Set(Index index, double value) {
  switch (dtype_) {
    case DType::kF64:
      data<double>()[index] = value;
      break;
    case DType::kF32:
      data<float>()[index] = static_cast<float>(value);
      break;
    case DType::kBF16:
      data<BFloat16>()[index] = RoundToBFloat16(value);
      break;
    case DType::kF16:
      data<Float16>()[index] = RoundToFloat16(value);
      break;
    case DType::kI32:
      data<std::int32_t>()[index] = static_cast<std::int32_t>(value);
      break;
    case DType::kBool:
      data<std::uint8_t>()[index] = value != 0.0 ? 1 : 0;
      break;
  }
}

std::vector<double> ToDoubles(const Tensor& tensor) {
  const auto size = static_cast<std::size_t>(tensor.size());
  if (tensor.dtype() == DType::kF64) return {tensor.data<double>(), tensor.data<double>() + size};
  if (tensor.dtype() == DType::kF32) return {tensor.data<float>(), tensor.data<float>() + size};
  std::vector<double> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = tensor.At(static_cast<Index>(i));
  return values;
}

}  // namespace attest
