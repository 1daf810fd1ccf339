// SPDX-License-Identifier: Apache-2.0
#include "audit/onnx_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "audit/judge.h"
#include "audit/onnx_layout.h"
#include "audit/onnx_tensor.h"
#include "core/file_io.h"

namespace attest {
namespace {

enum Input { kQ, kK, kV, kMask, kPastKey, kPastValue, kLengths, kInputs };
enum Output { kY, kPresentKey, kPresentValue, kScores, kOutputs };
constexpr std::array<const char*, kInputs> kInputNames{
    "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"};

// The tensor at a position of the node; null for one that is left out.
const Tensor* At(const std::vector<std::string>& names, const TensorMap& tensors,
                 std::size_t position) {
  if (position >= names.size() || names[position].empty()) return nullptr;
  const auto found = tensors.find(names[position]);
  return found == tensors.end() ? nullptr : &found->second;
}

// Attributes by name; what they hold is checked as they are read.
class Attributes {
 public:
  explicit Attributes(const OnnxModel& model) : values_(model.attributes) {}

  // `fallback` where the attribute is left out.
  std::int64_t Integer(const char* name, std::int64_t fallback) {
    const std::int64_t* value = Read<std::int64_t>(name);
    return value == nullptr ? fallback : *value;
  }
  std::optional<double> Real(const char* name) {
    const double* value = Read<double>(name);
    if (value == nullptr) return std::nullopt;
    if (!std::isfinite(*value)) Fail(fmt::format("attribute '{}' is not finite", name));
    return *value;
  }
  void Fail(std::string message) {
    if (status_.ok()) status_ = InvalidArgument(std::move(message));
  }
  // The first error; a later version of the operator may have attributes that nobody read.
  Status Finish() const {
    if (!status_.ok()) return status_;
    for (const auto& [name, value] : values_) {
      if (std::find(read_.begin(), read_.end(), name) == read_.end()) {
        return Unsupported(fmt::format("the attribute {}", Quoted(name)));
      }
    }
    return Status();
  }

 private:
  template <class T>
  const T* Read(const char* name) {
    read_.emplace_back(name);
    const auto found = values_.find(name);
    if (found == values_.end()) return nullptr;
    const T* value = std::get_if<T>(&found->second);
    if (value == nullptr) Fail(fmt::format("attribute '{}' has another type", name));
    return value;
  }

  const std::map<std::string, OnnxAttribute>& values_;
  std::vector<std::string> read_;
  Status status_;
};

struct HeadCounts {
  Index q = 0;  // 0: not given
  Index kv = 0;
};

StatusOr<HeadCounts> ReadAttributes(const OnnxModel& model, DType dtype, OnnxAttention* call) {
  Attributes attributes(model);
  HeadCounts heads{attributes.Integer("q_num_heads", 0), attributes.Integer("kv_num_heads", 0)};
  if (heads.q < 0 || heads.kv < 0) attributes.Fail("a number of heads is negative");
  const std::int64_t causal = attributes.Integer("is_causal", 0);
  if (causal != 0 && causal != 1) attributes.Fail("attribute 'is_causal' is neither 0 nor 1");
  call->causal = causal == 1;
  const std::int64_t stage = attributes.Integer("qk_matmul_output_mode", 0);
  if (stage < 0 || stage > 3) attributes.Fail("attribute 'qk_matmul_output_mode' is not 0 to 3");
  call->stage = static_cast<ScoreStage>(stage);
  if (const std::optional<double> scale = attributes.Real("scale")) {
    call->scale = {.rsqrt_dk = false, .value = *scale};
  }
  call->softcap = attributes.Real("softcap").value_or(0.0);
  if (call->softcap < 0.0) attributes.Fail("attribute 'softcap' is negative");
  const std::int64_t precision = attributes.Integer("softmax_precision", 0);
  if (Status s = attributes.Finish(); !s.ok()) return s;
  if (precision != 0) {
    const bool fits = precision > 0 && precision <= std::numeric_limits<std::int32_t>::max();
    const std::optional<DType> softmax =
        fits ? FromOnnxType(static_cast<std::int32_t>(precision)) : std::nullopt;
    if (!softmax || !IsFloat(*softmax)) {
      return InvalidArgument("attribute 'softmax_precision' is no floating-point type");
    }
    if (FormatOf(*softmax).precision < FormatOf(dtype).precision) {
      return Unsupported(
          fmt::format("a softmax in {} of tensors in {}", NameOf(*softmax), NameOf(dtype)));
    }
  }
  return heads;
}

// An input or output of rank 4, or of rank 3 with its heads side by side.
StatusOr<Tensor> InHeads(const char* name, const Tensor& tensor, Index heads, DType dtype) {
  if (tensor.dtype() != dtype) {
    return Unsupported(
        fmt::format("{} in {} beside Q in {}", name, NameOf(tensor.dtype()), NameOf(dtype)));
  }
  const Shape& s = tensor.shape();
  if (s.size() == 4) {
    if (heads != 0 && s[1] != heads) {
      return InvalidArgument(fmt::format("{} has the shape {}, but the attributes say {} heads",
                                         name, ToString(s), heads));
    }
    return tensor;
  }
  if (s.size() != 3 || heads == 0 || s[2] % heads != 0) {
    return InvalidArgument(
        fmt::format("{} has the shape {}, expected rank 4, or rank 3 with a multiple of its {} "
                    "heads on the last axis",
                    name, ToString(s), heads));
  }
  return SplitHeads(tensor, heads);
}

// k or v behind its past.
Status Join(const char* name, const Tensor* past, Tensor* tensor) {
  if (past == nullptr) return Status();
  Shape expected = tensor->shape();
  if (past->rank() == 4) expected[2] = past->shape()[2];
  if (past->dtype() != tensor->dtype() || past->shape() != expected) {
    return InvalidArgument(fmt::format("{}: expected {} {}, found {} {}", name,
                                       NameOf(tensor->dtype()), ToString(expected),
                                       NameOf(past->dtype()), ToString(past->shape())));
  }
  *tensor = JoinKeys(*past, *tensor);
  return Status();
}

// attn_mask with rank 4; keys beyond its end are excluded.
StatusOr<Tensor> FullMask(const Tensor& given, const Shape& scores) {
  if (given.dtype() == DType::kI32) {
    return InvalidArgument(
        "attn_mask: found integers, expected booleans or floating-point numbers");
  }
  Shape shape = given.shape();
  if (shape.empty() || shape.size() > 4) {
    return InvalidArgument(
        fmt::format("attn_mask: shape {}, expected rank 1 to 4", ToString(given.shape())));
  }
  shape.insert(shape.begin(), 4 - shape.size(), 1);
  bool fits = shape[3] <= scores[3];
  for (std::size_t axis = 0; axis < 3; ++axis) {
    fits = fits && (shape[axis] == 1 || shape[axis] == scores[axis]);
  }
  if (!fits) {
    return InvalidArgument(fmt::format("attn_mask: shape {}, expected one that broadcasts to {}",
                                       ToString(given.shape()), ToString(scores)));
  }
  const Tensor mask = Reshaped(given, shape);
  if (shape[3] == scores[3]) return mask;
  const bool is_bool = mask.dtype() == DType::kBool;
  Tensor rest(mask.dtype(), {shape[0], shape[1], shape[2], scores[3] - shape[3]});
  for (Index i = 0; !is_bool && i < rest.size(); ++i) {
    rest.Set(i, -std::numeric_limits<double>::infinity());
  }
  // The same join as that of keys, with rows of the mask in the place of heads.
  const Index rows = shape[0] * shape[1] * shape[2];
  return Reshaped(JoinKeys(Reshaped(mask, {rows, 1, shape[3], 1}),
                           Reshaped(rest, {rows, 1, scores[3] - shape[3], 1})),
                  {shape[0], shape[1], shape[2], scores[3]});
}

Status CheckIs(const char* name, const Tensor& tensor, DType dtype, const Shape& shape) {
  if (tensor.dtype() == dtype && tensor.shape() == shape) return Status();
  return InvalidArgument(fmt::format("{}: expected {} {}, found {} {}", name, NameOf(dtype),
                                     ToString(shape), NameOf(tensor.dtype()),
                                     ToString(tensor.shape())));
}

// Q, K, V and the past.
Status ReadTensors(const std::array<const Tensor*, kInputs>& inputs, const HeadCounts& heads,
                   OnnxAttention* call) {
  const std::size_t rank = inputs[kQ]->rank();
  Tensor* const tensors[] = {&call->q, &call->k, &call->v};
  for (std::size_t i : {kQ, kK, kV}) {
    if (inputs[i]->rank() != rank) return InvalidArgument("Q, K and V have different ranks");
    StatusOr<Tensor> tensor =
        InHeads(kInputNames[i], *inputs[i], i == kQ ? heads.q : heads.kv, call->dtype);
    if (!tensor.ok()) return tensor.status();
    *tensors[i] = *std::move(tensor);
  }
  if (Status s = Join("past_key", inputs[kPastKey], &call->k); !s.ok()) return s;
  if (Status s = Join("past_value", inputs[kPastValue], &call->v); !s.ok()) return s;
  const Shape& q = call->q.shape();
  const Shape& k = call->k.shape();
  const Shape& v = call->v.shape();
  call->shape = {q[0], q[1], k[1], q[2], k[2], q[3], q[3], v[3]};
  call->past = inputs[kPastKey] == nullptr ? 0 : inputs[kPastKey]->shape()[2];
  if (call->q.size() == 0 || call->k.size() == 0 || call->v.size() == 0) {
    return Unsupported("tensors without elements");
  }
  // Files have at most 2^26 elements, so that this product is exact.
  if (q[0] * q[1] * q[2] * k[2] > kMostScores) {
    return Unsupported(fmt::format("more than {} scores", kMostScores));
  }
  const bool fits = k == Shape{q[0], k[1], k[2], q[3]} && v == Shape{q[0], k[1], k[2], v[3]} &&
                    q[1] > 0 && k[1] > 0 && q[1] % k[1] == 0;
  if (fits) return Status();
  return InvalidArgument(fmt::format("Q {}, K {} and V {} do not fit together", ToString(q),
                                     ToString(k), ToString(v)));
}

Status ReadOutputs(const OnnxModel& model, const OnnxDataSet& data, std::size_t rank,
                   OnnxAttention* call) {
  const Dimensions& s = call->shape;
  std::array<const Tensor*, kOutputs> outputs{};
  for (std::size_t i = 0; i < kOutputs; ++i) outputs[i] = At(model.outputs, data.outputs, i);
  if (outputs[kY] == nullptr) return InvalidArgument("the output Y is missing");
  const Shape y{s.batch, s.q_heads, s.q_len, s.v_dim};
  const Shape flat{s.batch, s.q_len, s.q_heads * s.v_dim};
  if (Status c = CheckIs("Y", *outputs[kY], call->dtype, rank == 3 ? flat : y); !c.ok()) return c;
  call->y = rank == 3 ? SplitHeads(*outputs[kY], s.q_heads) : *outputs[kY];
  if (outputs[kScores] != nullptr) {
    const Shape matrix{s.batch, s.q_heads, s.q_len, s.kv_len};
    if (Status c = CheckIs("qk_matmul_output", *outputs[kScores], call->dtype, matrix); !c.ok()) {
      return c;
    }
    call->scores = *outputs[kScores];
  }
  call->present_key = outputs[kPresentKey];
  call->present_value = outputs[kPresentValue];
  return Status();
}

}  // namespace

Index OnnxAttention::CausalOffset(Index batch) const {
  return lengths ? static_cast<Index>(lengths->At(batch)) - shape.q_len : past;
}

bool OnnxAttention::Allows(Index batch, Index head, Index query, Index key) const {
  if (causal && key > query + CausalOffset(batch)) return false;
  if (lengths && static_cast<double>(key) >= lengths->At(batch)) return false;
  if (!mask || mask->dtype() != DType::kBool) return true;
  const std::array<Index, 4> full{shape.batch, shape.q_heads, shape.q_len, shape.kv_len};
  return BroadcastTo(mask->view<std::uint8_t, 4>(), full)(batch, head, query, key) != 0;
}

StatusOr<OnnxAttention> ReadOnnxAttention(const OnnxModel& model, const OnnxDataSet& data) {
  if (model.opset < 23 || model.opset > 24) {
    return Unsupported(fmt::format("Attention of version {}, not 23 or 24", model.opset));
  }
  if (model.inputs.size() > kInputs || model.outputs.size() > kOutputs) {
    return InvalidArgument("the node has more inputs or outputs than Attention");
  }
  std::array<const Tensor*, kInputs> inputs{};
  for (std::size_t i = 0; i < kInputs; ++i) inputs[i] = At(model.inputs, data.inputs, i);
  for (std::size_t i : {kQ, kK, kV}) {
    if (inputs[i] == nullptr) {
      return InvalidArgument(fmt::format("the input {} is missing", kInputNames[i]));
    }
  }
  if ((inputs[kPastKey] == nullptr) != (inputs[kPastValue] == nullptr)) {
    return InvalidArgument("only one of past_key and past_value is given");
  }
  if (inputs[kPastKey] != nullptr && inputs[kLengths] != nullptr) {
    return InvalidArgument("nonpad_kv_seqlen beside past_key, which excludes it");
  }
  OnnxAttention call;
  call.dtype = inputs[kQ]->dtype();
  if (!IsFloat(call.dtype)) {
    return InvalidArgument(fmt::format("Q in {}, expected floating point", NameOf(call.dtype)));
  }
  const StatusOr<HeadCounts> heads = ReadAttributes(model, call.dtype, &call);
  if (!heads.ok()) return heads.status();
  if (Status s = ReadTensors(inputs, *heads, &call); !s.ok()) return s;
  const Dimensions& s = call.shape;
  if (inputs[kMask] != nullptr) {
    StatusOr<Tensor> mask = FullMask(*inputs[kMask], {s.batch, s.q_heads, s.q_len, s.kv_len});
    if (!mask.ok()) return mask.status();
    call.mask = *std::move(mask);
  }
  if (inputs[kLengths] != nullptr) call.lengths = *inputs[kLengths];
  if (call.lengths) {
    if (Status c = CheckIs("nonpad_kv_seqlen", *call.lengths, DType::kI32, {s.batch}); !c.ok()) {
      return c;
    }
  }
  if (Status c = ReadOutputs(model, data, inputs[kQ]->rank(), &call); !c.ok()) return c;
  return call;
}

}  // namespace attest
