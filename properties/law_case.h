// SPDX-License-Identifier: Apache-2.0
// Drawn cases for laws: structure, features and gradients, made to suit the law that is checked.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "properties/case_generator.h"

namespace attest {

// A drawn case and what its specification does not say.
struct DrawnLawCase {
  DrawnCase drawn;
  Window window;
  bool alibi = false;
  bool documents = false;
};

// Changes a draw so that the law has something to say.
inline void Suit(const std::string& law, DrawnLawCase* draw) {
  CaseSpec& spec = draw->drawn.spec;
  Dimensions& s = spec.shape;
  const auto no_positions = [&] {
    spec.causal = Causal::kNone;
    spec.kv_lengths = draw->alibi = false;
    draw->window = {};
  };
  const auto gradients = [&] {
    spec.gradients = true;
    spec.empty_row = EmptyRow::kZero;
  };
  // Rules that leave a row some keys and not others.
  const auto rules = [&] {
    s.kv_len += 2;
    s.q_len += 1;
    if (spec.causal == Causal::kNone) spec.mask = true;
  };
  if (law == "masked-weights" || law == "partly-masked-junk" || law == "mask-as-bias") rules();
  if (law == "masked-junk" || law == "padding-removed") spec.kv_lengths = true;
  if (law == "padding-removed") draw->alibi = false;
  if (law == "empty-query-junk") {
    spec.q_lengths = true;
    s.q_len += 1;
  }
  if (law.find("junk") != std::string::npos || law == "padding-removed" || law == "causal-prefix" ||
      law == "identity-values" || law == "added-key" || law == "merged-parts") {
    spec.empty_row = EmptyRow::kZero;
  }
  if (law == "masked-bias-junk") {
    rules();
    spec.bias = true;
  }
  if (law == "causal-prefix") {
    if (spec.causal == Causal::kNone) spec.causal = Causal::kBottomRight;
    spec.kv_lengths = spec.q_lengths = draw->alibi = false;
    s.kv_len = std::max(s.kv_len, s.q_len);
  }
  if (law == "lipschitz") {
    s.q_len += 1;
    spec.mask = spec.bias = false;
    spec.causal = Causal::kNone;
    draw->window = {};
    draw->documents = false;
  }
  if (law == "key-order" || law == "added-key" || law == "doubled-keys" || law == "merged-parts") {
    no_positions();
    s.kv_len += 1;
  }
  if (law == "query-order") {
    no_positions();
    spec.q_lengths = false;
    s.q_len += 1;
  }
  if (law == "query-alone") {
    draw->alibi = false;
    s.q_len += 1;
  }
  if (law == "no-sink" || law == "doubled-keys" || law == "merged-parts" || law == "score-shift" ||
      law == "entropy" || law == "lipschitz" || law == "constant-value-gradients" ||
      law == "bias-gradient-sums") {
    spec.sinks = false;
  }
  if (law == "convex-hull" || law == "constant-value-gradients") spec.dropout_rate = 0.0;
  if (law == "score-shift") spec.bias = spec.broadcast_bias = false;
  if (law == "batch-order" || law == "batch-entry-alone") s.batch = 2;
  if (law == "grouped-heads") s.q_heads = 2 * s.kv_heads;
  if (law == "head-order" || law == "head-alone") {
    s.kv_heads = 2;
    s.q_heads = 4;
    draw->alibi = false;
  }
  if (law == "scale-in-query" || law == "padded-head-size") {
    spec.score = ScoreKind::kDot;
    spec.scale = {false, 1.0};
    // Queries among the subnormal numbers of their type say nothing.
    if (spec.dtype == DType::kF16) spec.dtype = DType::kF32;
    if (law == "scale-in-query" && spec.values == Values::kZero) spec.values = Values::kNormal;
  }
  if (law == "scaled-values") {
    spec.values = spec.values == Values::kOneHot ? Values::kOneHot : Values::kSmallIntegers;
    spec.scale = {};
    spec.bias = spec.broadcast_bias = false;
    if (spec.dtype == DType::kF16) spec.dtype = DType::kF64;
  }
  if (law == "huge-softcap") spec.softcap = 0.0;
  if (law.find("gradient") != std::string::npos) gradients();
  if (law == "masked-gradients") {
    spec.kv_lengths = spec.q_lengths = true;
    s.q_len += 1;
  }
  if (law == "added-gradients") s.q_len += 1;
  if (law == "scaled-gradients") spec.dtype = s.v_dim % 2 == 0 ? DType::kF64 : DType::kF32;
}

inline rc::Gen<DrawnLawCase> ArbitraryLawCase(const std::string& law) {
  return rc::gen::resize(
      rc::kNominalSize, rc::gen::exec([law] {
        DrawnLawCase draw;
        draw.drawn = *ArbitraryCase();
        CaseSpec& spec = draw.drawn.spec;
        const auto one_in = [](int n) { return *rc::gen::inRange(0, n) == n - 1; };
        if (one_in(6)) {
          spec.score = *rc::gen::element(ScoreKind::kGeneral, ScoreKind::kAdditive);
          spec.shape.k_dim = *LengthUpTo(12);
        }
        if (one_in(4)) spec.dtype = *rc::gen::element(DType::kF64, DType::kBF16, DType::kF16);
        spec.sinks = one_in(5);
        if (one_in(6)) spec.softcap = 2.0;
        if (one_in(6)) spec.dropout_rate = 0.25;
        spec.gradients = one_in(6) && spec.empty_row == EmptyRow::kZero;
        spec.grad_lse = spec.gradients && one_in(3);
        if (one_in(5))
          draw.window = {*rc::gen::inRange<Index>(-1, 6), *rc::gen::inRange<Index>(-1, 6)};
        draw.alibi = one_in(8);
        draw.documents = one_in(6);
        Suit(law, &draw);
        return draw;
      }));
}

inline Case MakeLawCase(const DrawnLawCase& draw) {
  Case problem = MakeCase(draw.drawn.spec, draw.drawn.seed);
  const Dimensions& s = problem.contract.shape;
  problem.contract.window = draw.window;
  if (draw.alibi) problem.contract.alibi = Alibi::kDefault;
  if (draw.documents) {
    for (const auto& [name, length] :
         {std::pair{"q_documents", s.q_len}, std::pair{"kv_documents", s.kv_len}}) {
      Tensor documents(DType::kI32, {s.batch, length});
      for (Index i = 0; i < documents.size(); ++i) {
        documents.Set(i, static_cast<double>(i % length / 5));
      }
      problem.tensors[name] = std::move(documents);
    }
  }
  return problem;
}

inline std::ostream& operator<<(std::ostream& stream, const DrawnLawCase& draw) {
  return stream << draw.drawn << ", window " << draw.window.left << " " << draw.window.right
                << (draw.alibi ? ", alibi" : "") << (draw.documents ? ", documents" : "");
}

}  // namespace attest
