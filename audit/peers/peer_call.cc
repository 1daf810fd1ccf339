// SPDX-License-Identifier: Apache-2.0
#include "audit/peers/peer_call.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include "audit/abi/attest/plugin.h"
#include "audit/capabilities.h"

namespace attest {
namespace {

std::optional<DType> DTypeOfTensor(const DLTensor& tensor) {
  const auto is = [&](int code, int bits) {
    return tensor.dtype.code == code && tensor.dtype.bits == bits;
  };
  if (is(ATTEST_FLOAT, 64)) return DType::kF64;
  if (is(ATTEST_FLOAT, 32)) return DType::kF32;
  if (is(ATTEST_FLOAT, 16)) return DType::kF16;
  if (is(ATTEST_BFLOAT, 16)) return DType::kBF16;
  if (is(ATTEST_INT, 32)) return DType::kI32;
  if (is(ATTEST_BOOL, 8)) return DType::kBool;
  return std::nullopt;
}

// Calls visit(address of the element in a strided tensor, its place in row-major order).
template <class Visit>
void ForEachElement(const DLTensor& tensor, const Visit& visit) {
  const Shape shape(tensor.shape, tensor.shape + tensor.ndim);
  const std::size_t size = tensor.dtype.bits / 8u;
  auto* first = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  for (Index flat = 0, count = ElementCount(shape); flat < count; ++flat) {
    const std::vector<Index> index = Unflatten(flat, shape);
    Index offset = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      offset += index[axis] * tensor.strides[axis];
    }
    visit(first + offset * static_cast<Index>(size), flat);
  }
}

StatusOr<Case> CaseOf(const AttestCall& call) {
  StatusOr<Contract> contract = ParseContract(call.contract);
  if (!contract.ok()) return contract.status();
  Case problem;
  problem.contract = *std::move(contract);
  for (int i = 0; i < call.num_inputs; ++i) {
    const DLTensor& from = call.inputs[i].tensor;
    const std::optional<DType> dtype = DTypeOfTensor(from);
    if (!dtype) {
      return InvalidArgument(std::string(call.inputs[i].name) + ": an element type of no contract");
    }
    Tensor tensor(*dtype, Shape(from.shape, from.shape + from.ndim));
    const std::size_t size = SizeOf(*dtype);
    ForEachElement(from, [&](const std::byte* element, Index flat) {
      std::memcpy(tensor.bytes() + static_cast<std::size_t>(flat) * size, element, size);
    });
    problem.tensors.emplace(call.inputs[i].name, std::move(tensor));
  }
  return problem;
}

Status GiveBack(const TensorMap& results, const AttestCall& call) {
  for (int i = 0; i < call.num_outputs; ++i) {
    const DLTensor& to = call.outputs[i].tensor;
    const auto found = results.find(call.outputs[i].name);
    if (found == results.end()) continue;
    const std::optional<DType> dtype = DTypeOfTensor(to);
    const Shape shape(to.shape, to.shape + to.ndim);
    if (!dtype || found->second.shape() != shape) {
      return Internal(found->first + ": the result has another shape than the output");
    }
    Tensor rounded(*dtype, shape);
    for (Index flat = 0; flat < rounded.size(); ++flat) rounded.Set(flat, found->second.At(flat));
    const std::size_t size = SizeOf(*dtype);
    ForEachElement(to, [&](std::byte* element, Index flat) {
      std::memcpy(element, rounded.bytes() + static_cast<std::size_t>(flat) * size, size);
    });
  }
  return Status();
}

// Reads the case, declines what the info does not list, and gives the results back rounded.
Status Compute(const AttestCall& call) {
  StatusOr<Case> problem = CaseOf(call);
  if (!problem.ok()) return problem.status();
  const StatusOr<Capabilities> capabilities = ParseCapabilities(PeerInfoText());
  if (!capabilities.ok()) return capabilities.status();
  if (const auto missing = MissingFor(*problem, *capabilities); missing) {
    return Unsupported(*missing);
  }
  StatusOr<TensorMap> results = PeerAttention(*problem, call.threads);
  if (!results.ok()) return results.status();
  return GiveBack(*results, call);
}

}  // namespace

std::string InfoText(const PeerInfo& info) {
  nlohmann::ordered_json json{{"abi", ATTEST_PLUGIN_VERSION},
                              {"name", info.name},
                              {"version", info.version},
                              {"supports", info.supports}};
  if (!info.arithmetic.is_null()) json["arithmetic"] = info.arithmetic;
  return json.dump();
}

double BroadcastAt(const Tensor& tensor, Index b, Index h, Index i, Index j) {
  const Shape& s = tensor.shape();
  const auto place = [&](std::size_t axis, Index index) { return s[axis] == 1 ? 0 : index; };
  return tensor.At(((place(0, b) * s[1] + place(1, h)) * s[2] + place(2, i)) * s[3] + place(3, j));
}

Tensor WithFullRows(const Tensor& tensor, const Dimensions& shape) {
  Tensor full(tensor.dtype(), {tensor.shape()[0], tensor.shape()[1], shape.q_len, shape.kv_len});
  for (Index flat = 0; flat < full.size(); ++flat) {
    const std::vector<Index> at = Unflatten(flat, full.shape());
    full.Set(flat, BroadcastAt(tensor, at[0], at[1], at[2], at[3]));
  }
  return full;
}

Tensor AllowedKeys(const Case& problem) {
  const Contract& c = problem.contract;
  const Dimensions& s = c.shape;
  const Tensor* mask = problem.Find("mask");
  const Tensor* kv_lengths = problem.Find("kv_lengths");
  const Tensor* q_lengths = problem.Find("q_lengths");
  const Tensor* q_documents = problem.Find("q_documents");
  const Tensor* kv_documents = problem.Find("kv_documents");
  const Tensor* centers = problem.Find("local_center");
  Tensor allowed(DType::kBool, {s.batch, s.q_heads, s.q_len, s.kv_len});
  auto* element = allowed.data<std::uint8_t>();
  for (Index b = 0; b < s.batch; ++b) {
    const double keys = kv_lengths ? kv_lengths->At(b) : static_cast<double>(s.kv_len);
    const double queries = q_lengths ? q_lengths->At(b) : static_cast<double>(s.q_len);
    const double diagonal = c.causal == Causal::kTopLeft ? 0.0 : keys - queries;
    for (Index h = 0; h < s.q_heads; ++h) {
      for (Index i = 0; i < s.q_len; ++i) {
        const double aligned = static_cast<double>(i) + diagonal;
        for (Index j = 0; j < s.kv_len; ++j, ++element) {
          const double key = static_cast<double>(j);
          bool takes_part = key < keys && static_cast<double>(i) < queries;
          if (mask) takes_part &= BroadcastAt(*mask, b, h, i, j) != 0.0;
          if (c.causal != Causal::kNone) takes_part &= key <= aligned;
          if (c.window.left >= 0) takes_part &= key >= aligned - static_cast<double>(c.window.left);
          if (c.window.right >= 0) {
            takes_part &= key <= aligned + static_cast<double>(c.window.right);
          }
          if (q_documents && kv_documents) {
            takes_part &= q_documents->At(b * s.q_len + i) == kv_documents->At(b * s.kv_len + j);
          }
          if (c.local && centers) {
            const double center = centers->At((b * s.q_heads + h) * s.q_len + i);
            takes_part &= std::fabs(key - center) <= c.local->half_width;
          }
          *element = takes_part ? 1 : 0;
        }
      }
    }
  }
  return allowed;
}

Tensor Additions(const Case& problem, DType dtype) {
  const Tensor allowed = AllowedKeys(problem);
  const Tensor* bias = problem.Find("bias");
  Tensor additions(dtype, allowed.shape());
  const Shape& s = allowed.shape();
  Index flat = 0;
  for (Index b = 0; b < s[0]; ++b) {
    for (Index h = 0; h < s[1]; ++h) {
      for (Index i = 0; i < s[2]; ++i) {
        for (Index j = 0; j < s[3]; ++j, ++flat) {
          const double added = bias ? BroadcastAt(*bias, b, h, i, j) : 0.0;
          additions.Set(flat,
                        allowed.At(flat) != 0.0 ? added : -std::numeric_limits<double>::infinity());
        }
      }
    }
  }
  return additions;
}

std::optional<Tensor> ConvertedExactly(const Tensor& tensor, DType dtype) {
  Tensor converted(dtype, tensor.shape());
  for (Index flat = 0; flat < tensor.size(); ++flat) {
    const double value = tensor.At(flat);
    converted.Set(flat, value);
    if (!std::isnan(value) && converted.At(flat) != value) return std::nullopt;
  }
  return converted;
}

Tensor WithAxesSwapped(const Tensor& tensor) {
  const Shape& s = tensor.shape();
  Tensor swapped(tensor.dtype(), {s[0], s[2], s[1], s[3]});
  const std::size_t row = SizeOf(tensor.dtype()) * static_cast<std::size_t>(s[3]);
  for (Index b = 0; b < s[0]; ++b) {
    for (Index h = 0; h < s[1]; ++h) {
      for (Index t = 0; t < s[2]; ++t) {
        std::memcpy(swapped.bytes() + static_cast<std::size_t>((b * s[2] + t) * s[1] + h) * row,
                    tensor.bytes() + static_cast<std::size_t>((b * s[1] + h) * s[2] + t) * row,
                    row);
      }
    }
  }
  return swapped;
}

Tensor RowsOf(const Tensor& tensor, Index first, Index count) {
  const Shape& s = tensor.shape();
  Tensor rows(tensor.dtype(), {s[0], s[1], count, s[3]});
  const std::size_t row = SizeOf(tensor.dtype()) * static_cast<std::size_t>(s[3]);
  const std::size_t bytes = static_cast<std::size_t>(count) * row;
  for (Index head = 0; head < s[0] * s[1]; ++head) {
    std::memcpy(rows.bytes() + static_cast<std::size_t>(head) * bytes,
                tensor.bytes() + static_cast<std::size_t>(head * s[2] + first) * row, bytes);
  }
  return rows;
}

double ScaleOf(const Contract& contract) {
  if (!contract.scale.rsqrt_dk) return contract.scale.value;
  return 1.0 / std::sqrt(static_cast<double>(contract.shape.k_dim));
}

bool IsFinite(const Tensor& tensor) {
  for (Index flat = 0; flat < tensor.size(); ++flat) {
    if (!std::isfinite(tensor.At(flat))) return false;
  }
  return true;
}

}  // namespace attest

const char* attest_plugin_info(void) { return attest::PeerInfoText().c_str(); }

int attest_plugin_run(const AttestCall* call) {
  attest::Status status;
  try {
    status = attest::Compute(*call);
  } catch (const std::exception& e) {
    status = attest::Internal(e.what());
  }
  if (status.ok()) return ATTEST_OK;
  if (call->message != nullptr && call->message_size > 0) {
    std::snprintf(call->message, call->message_size, "%s", status.message().c_str());
  }
  const bool declined = status.code() == attest::StatusCode::kUnsupported;
  return declined ? ATTEST_UNSUPPORTED : ATTEST_ERROR;
}
