// SPDX-License-Identifier: Apache-2.0
#include "audit/case_spec.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "audit/case_values.h"
#include "core/random.h"

namespace attest {
namespace {

Tensor DrawLengths(Index batch, Index capacity, const RandomStream& stream) {
  Tensor lengths(DType::kI32, {batch});
  for (Index b = 0; b < batch; ++b) {
    const Index drawn = static_cast<Index>(
        stream.Below(static_cast<std::uint64_t>(b), static_cast<std::uint64_t>(capacity) + 1));
    lengths.Set(b, static_cast<double>(b == 0 ? std::max<Index>(capacity - 1, 0) : drawn));
  }
  return lengths;
}

Tensor RepeatedLengths(Index batch, const std::vector<Index>& list) {
  Tensor lengths(DType::kI32, {batch});
  for (Index b = 0; b < batch; ++b) {
    lengths.Set(b, static_cast<double>(list[static_cast<std::size_t>(b) % list.size()]));
  }
  return lengths;
}

// Sinks of about one level; where that is -infinity, odd heads have a finite one.
Tensor LevelSinks(double level, DType dtype, Index heads) {
  Tensor sinks(dtype, {heads});
  for (Index h = 0; h < heads; ++h) {
    const double step = static_cast<double>(h);
    sinks.Set(h, std::isinf(level) && h % 2 == 1 ? step : level + step);
  }
  return sinks;
}

// Centres half a key apart from whole ones as well, over the whole length.
Tensor DrawCentres(const Dimensions& s, DType dtype, const RandomStream& stream) {
  Tensor centres(dtype, {s.batch, s.q_heads, s.q_len});
  for (Index i = 0; i < centres.size(); ++i) {
    const std::uint64_t half_steps = static_cast<std::uint64_t>(std::max<Index>(2 * s.kv_len, 1));
    centres.Set(i,
                0.5 * static_cast<double>(stream.Below(static_cast<std::uint64_t>(i), half_steps)));
  }
  return centres;
}

// Masks, lengths and positions beyond the plain ones.
void DrawMore(const CaseSpec& spec, std::uint64_t seed, Case* problem) {
  Contract& contract = problem->contract;
  const Dimensions& s = contract.shape;
  TensorMap& tensors = problem->tensors;
  const auto stream = [&](const char* tensor) { return RandomStream(seed, problem->name, tensor); };
  if (spec.mask_pattern != MaskPattern::kNone) tensors["mask"] = DrawMask(spec, stream("mask"));
  if (spec.bias_pattern != BiasPattern::kNone) {
    tensors["bias"] = DrawBias(spec, contract.wide_dtype(), stream("bias"));
  }
  if (!spec.kv_length_list.empty()) {
    tensors["kv_lengths"] = RepeatedLengths(s.batch, spec.kv_length_list);
  }
  if (!spec.q_length_list.empty()) {
    tensors["q_lengths"] = RepeatedLengths(s.batch, spec.q_length_list);
  }
  if (spec.documents != Documents::kNone) {
    tensors["q_documents"] = DrawDocuments(spec, false);
    tensors["kv_documents"] = DrawDocuments(spec, true);
  }
  if (spec.alibi == Alibi::kTensor || spec.alibi == Alibi::kNone) {
    tensors["alibi_slopes"] =
        DrawNormal(contract.wide_dtype(), {s.q_heads}, stream("alibi_slopes"), 0.5);
  }
  if (spec.sink_level) {
    tensors["sinks"] = LevelSinks(*spec.sink_level, contract.wide_dtype(), s.q_heads);
  }
  if (spec.local) {
    tensors["local_center"] = DrawCentres(s, contract.wide_dtype(), stream("local_center"));
  }
  if (spec.poisoned_key) {
    for (const char* name : {"k", "v"}) {
      Tensor& tensor = tensors.at(name);
      const Index width = tensor.shape()[3];
      const Index key = *spec.poisoned_key;
      for (Index row = key; row < s.batch * s.kv_heads * s.kv_len; row += s.kv_len) {
        tensor.Set(row * width + width - 1, std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
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
  if (spec.dropout_rate > 0.0 && !spec.no_keep) {
    Tensor keep(DType::kBool, BroadcastShape(s, spec.keep_broadcast));
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
  contract.window = spec.window;
  contract.alibi = spec.alibi;
  contract.local = spec.local;
  if (spec.scores.pattern != ScorePattern::kDrawn) contract.scale = {false, 1.0};
  contract.outputs = {"out", "lse", "weights"};
  contract.arithmetic.profile = DefaultProfile(spec.dtype);

  const Dimensions& s = contract.shape;
  const auto stream = [&](const char* tensor) { return RandomStream(seed, problem.name, tensor); };
  problem.tensors["q"] =
      DrawOperand(spec, 'q', {s.batch, s.q_heads, s.q_len, s.qk_dim}, stream("q"));
  problem.tensors["k"] =
      DrawOperand(spec, 'k', {s.batch, s.kv_heads, s.kv_len, s.k_dim}, stream("k"));
  problem.tensors["v"] =
      DrawOperand(spec, 'v', {s.batch, s.kv_heads, s.kv_len, s.v_dim}, stream("v"));
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
  DrawMore(spec, seed, &problem);
  if (spec.gradients || spec.grad_lse) contract.outputs = AllowedOutputs(problem);
  if (!spec.outputs.empty()) contract.outputs = spec.outputs;
  const Status finished = FinishCase(&problem);
  assert(finished.ok());
  static_cast<void>(finished);
  if (spec.junk) FillInvisibleKeys(&problem);
  return problem;
}

}  // namespace attest
