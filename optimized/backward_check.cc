// SPDX-License-Identifier: Apache-2.0
#include "optimized/backward_check.h"

#include <array>
#include <string>

#include "optimized/attention_check.h"

namespace attest {
namespace {

Status Wrong(const std::string& what) { return InvalidArgument("attention: " + what); }

template <std::size_t Rank>
Status CheckGiven(const char* name, const std::optional<Input<Rank>>& gradient,
                  const std::array<Index, Rank>& expected, DType dtype, DType wide) {
  if (!gradient) return Status();
  const auto text = [](const std::array<Index, Rank>& shape) {
    return ToString(Shape(shape.begin(), shape.end()));
  };
  if (gradient->shape != expected) {
    return Wrong(std::string(name) + " has shape " + text(gradient->shape) + ", expected " +
                 text(expected));
  }
  if (gradient->data == nullptr && ElementCount(Shape(expected.begin(), expected.end())) > 0) {
    return Wrong(std::string(name) + " has no data");
  }
  if (gradient->dtype != dtype && gradient->dtype != wide) {
    return Wrong(std::string(name) + " has element type " + std::string(NameOf(gradient->dtype)) +
                 ", expected " + std::string(NameOf(dtype)) +
                 (wide == dtype ? "" : " or " + std::string(NameOf(wide))));
  }
  return Status();
}

// The gradient of a tensor: its shape, and only if the tensor is there.
template <std::size_t Rank>
Status CheckOf(const char* name, const std::optional<Output<Rank>>& gradient,
               const std::optional<Input<Rank>>& tensor) {
  if (!gradient) return Status();
  if (!tensor) return Wrong(std::string(name) + " is asked for, but not its tensor given");
  return CheckOutput<Rank>(name, gradient, tensor->shape);
}

// Every axis of grad_bias has the scores' length, or 1.
Status CheckBias(const AttentionArgs& args, const std::optional<Output<4>>& gradient) {
  if (!gradient) return Status();
  if (!args.bias) return Wrong("grad_bias is asked for, but not its tensor given");
  std::array<Index, 4> expected = args.bias->shape;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (gradient->shape[axis] == 1) expected[axis] = 1;
  }
  return CheckOutput<4>("grad_bias", gradient, expected);
}

}  // namespace

Status CheckBackward(const AttentionArgs& args, const AttentionGradients& gradients) {
  const StatusOr<Dimensions> checked = CheckInputs(args);
  if (!checked.ok()) return checked.status();
  const DType dtype = args.q.dtype;
  const DType wide = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  const Index batch = args.q.shape[0];
  const Index heads = args.q.shape[1];
  const Index q_len = args.q.shape[2];
  Status s = CheckGiven<4>("grad_out", gradients.grad_out, {batch, heads, q_len, args.v.shape[3]},
                           dtype, dtype);
  if (s.ok()) {
    s = CheckGiven<3>("grad_lse", gradients.grad_lse, {batch, heads, q_len}, dtype, wide);
  }
  if (s.ok() && gradients.out.has_value() != gradients.lse.has_value()) {
    return Wrong(gradients.out ? "out is given, but not lse" : "lse is given, but not out");
  }
  if (s.ok() && gradients.out) {
    const DType type = gradients.out->dtype;
    if (!IsFloat(type)) return Wrong("out is not of a floating type");
    s = CheckGiven<4>("out", gradients.out, {batch, heads, q_len, args.v.shape[3]}, type, type);
  }
  if (s.ok()) s = CheckGiven<3>("lse", gradients.lse, {batch, heads, q_len}, wide, wide);
  if (s.ok()) s = CheckOutput<4>("grad_q", gradients.grad_q, args.q.shape);
  if (s.ok()) s = CheckOutput<4>("grad_k", gradients.grad_k, args.k.shape);
  if (s.ok()) s = CheckOutput<4>("grad_v", gradients.grad_v, args.v.shape);
  if (s.ok()) s = CheckBias(args, gradients.grad_bias);
  if (s.ok()) s = CheckOf<1>("grad_sinks", gradients.grad_sinks, args.sinks);
  const auto if_score = [&](ScoreKind score, const std::optional<Input<2>>& tensor) {
    return args.score == score ? tensor : std::nullopt;
  };
  const auto if_additive = [&](const std::optional<Input<1>>& tensor) {
    return args.score == ScoreKind::kAdditive ? tensor : std::nullopt;
  };
  if (s.ok()) s = CheckOf<2>("grad_w", gradients.grad_w, if_score(ScoreKind::kGeneral, args.w));
  if (s.ok()) {
    s = CheckOf<2>("grad_w_q", gradients.grad_w_q, if_score(ScoreKind::kAdditive, args.w_q));
  }
  if (s.ok()) {
    s = CheckOf<2>("grad_w_k", gradients.grad_w_k, if_score(ScoreKind::kAdditive, args.w_k));
  }
  if (s.ok()) s = CheckOf<1>("grad_b", gradients.grad_b, if_additive(args.b));
  if (s.ok()) s = CheckOf<1>("grad_v_a", gradients.grad_v_a, if_additive(args.v_a));
  return s;
}

}  // namespace attest
