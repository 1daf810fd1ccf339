// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_args.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace attest {
namespace {

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace

PlainTensor::PlainTensor(GuardedTensor& tensor) : data_(tensor.bytes()), dtype_(tensor.dtype()) {
  std::copy(tensor.shape().begin(), tensor.shape().end(), shape_.begin());
  std::copy(tensor.strides().begin(), tensor.strides().end(), strides_.begin());
}

void PlainTensor::ForgetStrides() { strides_ = ContiguousStrides(shape_); }

Index PlainTensor::Offset(const std::array<Index, 4>& at) const {
  Index offset = 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (shape_[axis] == 1) continue;
    const Index step = at[axis] * strides_[axis];
    if (narrow_[axis] && step > std::numeric_limits<std::int32_t>::max()) return kOutside;
    offset += step;
  }
  return offset;
}

double PlainTensor::Read(Index offset) const {
  // A wrapped address lies outside the tensor. It is not followed: untouched pages read as 0.
  if (offset == kOutside) return 0.0;
  const std::byte* const at = data_ + offset * static_cast<Index>(SizeOf(dtype_));
  switch (dtype_) {
    case DType::kF64:
      return Load<double>(at);
    case DType::kF32:
      return static_cast<double>(Load<float>(at));
    case DType::kBF16:
      return ToDouble(Load<BFloat16>(at));
    case DType::kF16:
      return ToDouble(Load<Float16>(at));
    case DType::kI32:
      return static_cast<double>(Load<std::int32_t>(at));
    case DType::kBool:
      return static_cast<double>(Load<std::uint8_t>(at));
  }
  return 0.0;
}

void PlainTensor::Set(double value, Index a, Index b, Index c, Index d) const {
  std::byte* const at = data_ + Offset({a, b, c, d}) * static_cast<Index>(SizeOf(dtype_));
  switch (dtype_) {
    case DType::kF64:
      return Store(at, value);
    case DType::kF32:
      return Store(at, static_cast<float>(value));
    case DType::kBF16:
      return Store(at, RoundToBFloat16(value));
    case DType::kF16:
      return Store(at, RoundToFloat16(value));
    case DType::kI32:
    case DType::kBool:
      return;  // no output is of these types
  }
}

PlainTensor* PlainInputs::Find(std::string_view name) {
  const std::pair<std::string_view, PlainTensor*> tensors[] = {
      {"q", &q},
      {"k", &k},
      {"v", &v},
      {"mask", &mask},
      {"bias", &bias},
      {"keep", &keep},
      {"kv_lengths", &kv_lengths},
      {"q_lengths", &q_lengths},
      {"q_documents", &q_documents},
      {"kv_documents", &kv_documents},
      {"alibi_slopes", &alibi_slopes},
      {"sinks", &sinks},
      {"local_center", &local_center},
      {"w", &w},
      {"w_q", &w_q},
      {"w_k", &w_k},
      {"b", &b},
      {"v_a", &v_a},
      {"grad_out", &grad_out},
      {"grad_lse", &grad_lse},
  };
  for (const auto& [known, tensor] : tensors) {
    if (known == name) return tensor;
  }
  return nullptr;
}

PlainTensor* PlainOutputs::Find(std::string_view name) {
  const std::pair<std::string_view, PlainTensor*> tensors[] = {
      {"out", &out},
      {"lse", &lse},
      {"weights", &weights},
      {"grad_q", &grad_q},
      {"grad_k", &grad_k},
      {"grad_v", &grad_v},
      {"grad_bias", &grad_bias},
      {"grad_sinks", &grad_sinks},
      {"grad_w", &grad_w},
      {"grad_w_q", &grad_w_q},
      {"grad_w_k", &grad_w_k},
      {"grad_b", &grad_b},
      {"grad_v_a", &grad_v_a},
  };
  for (const auto& [known, tensor] : tensors) {
    if (known == name) return tensor;
  }
  return nullptr;
}

bool PlainOutputs::AnyGradient() const {
  const auto gradients = {&grad_q, &grad_k,   &grad_v,   &grad_bias, &grad_sinks,
                          &grad_w, &grad_w_q, &grad_w_k, &grad_b,    &grad_v_a};
  return std::any_of(gradients.begin(), gradients.end(),
                     [](const PlainTensor* tensor) { return tensor->present(); });
}

}  // namespace attest
