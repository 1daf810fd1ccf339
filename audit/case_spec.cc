// SPDX-License-Identifier: Apache-2.0
#include "audit/case_spec.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>
#include <limits>

#include "core/random.h"

namespace attest {
namespace {

// One element of q, k or v. `row` and `column` are its position in the last two axes.
double Element(Values values, char tensor, const RandomStream& stream, Index flat, Index row,
               Index column, Index width) {
  const auto index = static_cast<std::uint64_t>(flat);
  switch (values) {
    case Values::kNormal:
      return stream.Normal(index);
    case Values::kOutliers: {
      const std::uint64_t extra = std::uint64_t{1} << 62;  // counters that no element uses
      const bool hit = stream.Uniform(index | extra) < 0.001;
      return stream.Normal(index) + (hit ? 10.0 * stream.Normal(index | extra << 1) : 0.0);
    }
    case Values::kSmallIntegers:
      return static_cast<double>(stream.Below(index, 7)) - 3.0;
    case Values::kTies:
      if (tensor != 'k') return stream.Normal(index);
      return stream.Normal(static_cast<std::uint64_t>(row % 3 * width + column));
    case Values::kOneHot:
      if (tensor == 'v') return static_cast<double>(stream.Below(index, 7)) - 3.0;
      return row % width == column ? 1.0 : 0.0;
    case Values::kSpread:
      return stream.Normal(index) * (column == 0 && tensor != 'v' ? 20.0 : 1.0);
    case Values::kConstantValues:
      return tensor == 'v' ? stream.Normal(static_cast<std::uint64_t>(column))
                           : stream.Normal(index);
    case Values::kSubnormal:
      return stream.Normal(index) * (tensor == 'v' ? 0x1p-130 : 1.0);
    case Values::kZero:
      return tensor == 'q' ? 0.0 : stream.Normal(index);
  }
  return 0.0;
}

Tensor DrawTensor(const CaseSpec& spec, char name, const Shape& shape, const RandomStream& stream) {
  Tensor tensor(spec.dtype, shape);
  const Index rows = shape[2];
  const Index width = shape[3];
  for (Index flat = 0; flat < tensor.size(); ++flat) {
    tensor.Set(flat,
               Element(spec.values, name, stream, flat, flat / width % rows, flat % width, width));
  }
  return tensor;
}

Tensor DrawLengths(Index batch, Index capacity, const RandomStream& stream) {
  Tensor lengths(DType::kI32, {batch});
  for (Index b = 0; b < batch; ++b) {
    const Index drawn = static_cast<Index>(
        stream.Below(static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(capacity) + 1));
    lengths.Set(b, static_cast<double>(b == 0 ? std::max<Index>(capacity - 1, 0) : drawn));
  }
  return lengths;
}

// Normal numbers times `factor`.
Tensor DrawNormal(DType dtype, const Shape& shape, const RandomStream& stream,
                  double factor = 1.0) {
  Tensor tensor(dtype, shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, factor * stream.Normal(static_cast<std::uint64_t>(i)));
  }
  return tensor;
}

// Parameters of scores, sinks, dropout, and what gradients are taken by.
void DrawExtras(const CaseSpec& spec, std::uint64_t seed, Case* problem) {
  const Contract& contract = problem->contract;
  const Dimensions& s = contract.shape;
  const auto add = [&](const char* name, DType dtype, const Shape& shape, double factor = 1.0) {
    problem->tensors[name] =
        DrawNormal(dtype, shape, RandomStream(seed, problem->name, name), factor);
  };
  // So that a projection of normal numbers is of size 1.
  const double of_q = 1.0 / std::sqrt(static_cast<double>(s.qk_dim));
  const double of_k = 1.0 / std::sqrt(static_cast<double>(s.k_dim));
  if (spec.score == ScoreKind::kGeneral) add("w", spec.dtype, {s.qk_dim, s.k_dim}, of_q * of_k);
  if (spec.score == ScoreKind::kAdditive) {
    constexpr Index kUnits = 5;
    add("w_q", spec.dtype, {kUnits, s.qk_dim}, of_q);
    add("w_k", spec.dtype, {kUnits, s.k_dim}, of_k);
    add("b", spec.dtype, {kUnits});
    add("v_a", spec.dtype, {kUnits});
  }
  if (spec.broadcast_bias) add("bias", contract.wide_dtype(), {1, s.q_heads, 1, s.kv_len});
  if (spec.sinks) add("sinks", contract.wide_dtype(), {s.q_heads});
  if (spec.dropout_rate > 0.0) {
    Tensor keep(DType::kBool, {s.batch, s.q_heads, s.q_len, s.kv_len});
    const RandomStream stream(seed, problem->name, "keep");
    for (Index i = 0; i < keep.size(); ++i) {
      const bool dropped = stream.Uniform(static_cast<std::uint64_t>(i)) < spec.dropout_rate;
      keep.Set(i, dropped ? 0.0 : 1.0);
    }
    problem->tensors["keep"] = std::move(keep);
  }
  if (spec.gradients) add("grad_out", spec.dtype, {s.batch, s.q_heads, s.q_len, s.v_dim});
  if (spec.grad_lse) add("grad_lse", contract.wide_dtype(), {s.batch, s.q_heads, s.q_len});
}

}  // namespace

const char* NameOf(Values values) {
  switch (values) {
    case Values::kNormal:
      return "normal";
    case Values::kOutliers:
      return "outliers";
    case Values::kSmallIntegers:
      return "integers";
    case Values::kTies:
      return "ties";
    case Values::kOneHot:
      return "one-hot";
    case Values::kSpread:
      return "spread";
    case Values::kConstantValues:
      return "constant-values";
    case Values::kSubnormal:
      return "subnormal";
    case Values::kZero:
      return "zero-queries";
  }
  return "";
}

std::string NameOf(const CaseSpec& spec) {
  const Dimensions& s = spec.shape;
  std::string name =
      fmt::format("{}x{}.{}x{}x{}x{}.{} {} {}", s.batch, s.q_heads, s.kv_heads, s.q_len, s.kv_len,
                  s.qk_dim, s.v_dim, NameOf(spec.dtype), NameOf(spec.values));
  if (spec.causal == Causal::kTopLeft) name += " causal-top-left";
  if (spec.causal == Causal::kBottomRight) name += " causal-bottom-right";
  if (spec.mask) name += " mask";
  if (spec.bias) name += " bias";
  if (spec.kv_lengths) name += " kv-lengths";
  if (spec.q_lengths) name += " q-lengths";
  if (spec.empty_row == EmptyRow::kNan) name += " empty-nan";
  if (spec.empty_row == EmptyRow::kUniform) name += " empty-uniform";
  if (s.k_dim != s.qk_dim) name += fmt::format(" keys-of-{}", s.k_dim);
  if (spec.score == ScoreKind::kGeneral) name += " general";
  if (spec.score == ScoreKind::kAdditive) name += " additive";
  if (spec.broadcast_bias) name += " broadcast-bias";
  if (spec.sinks) name += " sinks";
  if (spec.softcap > 0.0) name += fmt::format(" softcap={}", spec.softcap);
  if (spec.dropout_rate > 0.0) name += fmt::format(" dropout={}", spec.dropout_rate);
  if (spec.gradients) name += " gradients";
  if (spec.grad_lse) name += " grad-lse";
  if (!spec.scale.rsqrt_dk) name += fmt::format(" scale={:a}", spec.scale.value);
  return name;
}

Case MakeCase(const CaseSpec& spec, std::uint64_t seed) {
  Case problem;
  problem.name = NameOf(spec);
  Contract& contract = problem.contract;
  contract.shape = spec.shape;
  if (spec.score == ScoreKind::kDot) contract.shape.k_dim = spec.shape.qk_dim;
  contract.dtype = contract.out_dtype = spec.dtype;
  contract.causal = spec.causal;
  contract.empty_row = spec.empty_row;
  contract.scale = spec.scale;
  contract.score = spec.score;
  // The default of the other scores.
  if (spec.score != ScoreKind::kDot && spec.scale.rsqrt_dk) contract.scale = {false, 1.0};
  contract.softcap = spec.softcap;
  contract.dropout_rate = spec.dropout_rate;
  contract.outputs = {"out", "lse", "weights"};
  contract.arithmetic.profile = DefaultProfile(spec.dtype);

  const Dimensions& s = contract.shape;
  const auto stream = [&](const char* tensor) { return RandomStream(seed, problem.name, tensor); };
  problem.tensors["q"] =
      DrawTensor(spec, 'q', {s.batch, s.q_heads, s.q_len, s.qk_dim}, stream("q"));
  problem.tensors["k"] =
      DrawTensor(spec, 'k', {s.batch, s.kv_heads, s.kv_len, s.k_dim}, stream("k"));
  problem.tensors["v"] =
      DrawTensor(spec, 'v', {s.batch, s.kv_heads, s.kv_len, s.v_dim}, stream("v"));
  if (spec.mask) {
    Tensor mask(DType::kBool, {s.batch, 1, s.q_len, s.kv_len});
    for (Index i = 0; i < mask.size(); ++i) {
      mask.Set(i, stream("mask").Below(static_cast<std::uint64_t>(i), 4) == 0 ? 0.0 : 1.0);
    }
    problem.tensors["mask"] = std::move(mask);
  }
  if (spec.bias) {
    Tensor bias(contract.wide_dtype(), {1, s.q_heads, s.q_len, s.kv_len});
    for (Index i = 0; i < bias.size(); ++i) {
      const auto index = static_cast<std::uint64_t>(i);
      const bool excluded = stream("bias-excluded").Below(index, 8) == 0;
      bias.Set(i,
               excluded ? -std::numeric_limits<double>::infinity() : stream("bias").Normal(index));
    }
    problem.tensors["bias"] = std::move(bias);
  }
  if (spec.kv_lengths) {
    problem.tensors["kv_lengths"] = DrawLengths(s.batch, s.kv_len, stream("kv_lengths"));
  }
  if (spec.q_lengths) {
    problem.tensors["q_lengths"] = DrawLengths(s.batch, s.q_len, stream("q_lengths"));
  }
  DrawExtras(spec, seed, &problem);
  if (spec.gradients || spec.grad_lse) contract.outputs = AllowedOutputs(problem);
  const Status finished = FinishCase(&problem);
  assert(finished.ok());
  static_cast<void>(finished);
  return problem;
}

}  // namespace attest
