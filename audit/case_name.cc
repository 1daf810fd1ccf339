// SPDX-License-Identifier: Apache-2.0
// Names of specifications: what two cases differ in, their names differ in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "audit/case_spec.h"

namespace attest {
namespace {

// "[b1qk]": an axis of length 1 by its number, the others by letters.
std::string AxesOf(const Broadcast& broadcast) {
  std::string axes = "[bhqk]";
  if (broadcast.batch) axes[1] = '1';
  if (broadcast.heads) axes[2] = '1';
  if (broadcast.queries) axes[3] = '1';
  if (broadcast.keys) axes[4] = '1';
  return axes;
}

const char* NameOf(MaskPattern pattern) {
  switch (pattern) {
    case MaskPattern::kNone:
      return "none";
    case MaskPattern::kRandom:
      return "random";
    case MaskPattern::kAllTrue:
      return "all-true";
    case MaskPattern::kAllFalse:
      return "all-false";
    case MaskPattern::kEmptyRows:
      return "empty-rows";
    case MaskPattern::kHoles:
      return "holes";
    case MaskPattern::kNotFirst:
      return "not-first";
    case MaskPattern::kOnlyFirst:
      return "only-first";
    case MaskPattern::kOnlyLast:
      return "only-last";
    case MaskPattern::kPrefix:
      return "prefix";
    case MaskPattern::kSuffix:
      return "suffix";
    case MaskPattern::kCausalTopLeft:
      return "top-left";
    case MaskPattern::kCausalBottomRight:
      return "bottom-right";
    case MaskPattern::kOneKey:
      return "one-key";
    case MaskPattern::kByHead:
      return "by-head";
  }
  return "";
}

const char* NameOf(BiasPattern pattern) {
  switch (pattern) {
    case BiasPattern::kNone:
      return "none";
    case BiasPattern::kNormal:
      return "normal";
    case BiasPattern::kExcluding:
      return "excluding";
    case BiasPattern::kLarge:
      return "large";
    case BiasPattern::kFarBelow:
      return "far-below";
  }
  return "";
}

const char* NameOf(Documents documents) {
  switch (documents) {
    case Documents::kNone:
      return "none";
    case Documents::kBlocks:
      return "blocks";
    case Documents::kInterleaved:
      return "interleaved";
    case Documents::kApart:
      return "apart";
  }
  return "";
}

std::string NameOf(const DirectScores& scores) {
  switch (scores.pattern) {
    case ScorePattern::kDrawn:
      return "";
    case ScorePattern::kEqual:
      return fmt::format(" scores={}", scores.level);
    case ScorePattern::kIncreasing:
      return fmt::format(" scores={}+{}j", scores.level, scores.step);
    case ScorePattern::kDecreasing:
      return fmt::format(" scores={}-{}j", scores.level, scores.step);
    case ScorePattern::kNeedle:
      return fmt::format(" scores={}{:+}@{}", scores.level, scores.step, scores.needle);
    case ScorePattern::kZigzag:
      return fmt::format(" scores={}{:+}odd", scores.level, scores.step);
  }
  return "";
}

// Long lists that count up are told by their ends.
std::string ListName(const std::vector<Index>& list) {
  bool counts = list.size() > 4;
  for (std::size_t i = 1; i < list.size(); ++i) counts = counts && list[i] == list[i - 1] + 1;
  if (counts) return fmt::format("{}..{}", list.front(), list.back());
  return fmt::format("{}", fmt::join(list, ","));
}

// What came after the first fields, whose names must stay: the numbers of a case depend on them.
std::string NameOfMore(const CaseSpec& spec) {
  std::string name = NameOf(spec.scores);
  if (spec.mask_pattern != MaskPattern::kNone) {
    name += fmt::format(" mask={}{}", NameOf(spec.mask_pattern), AxesOf(spec.mask_broadcast));
  }
  if (spec.bias_pattern != BiasPattern::kNone) {
    name += fmt::format(" bias={}{}", NameOf(spec.bias_pattern), AxesOf(spec.bias_broadcast));
  }
  if (!spec.kv_length_list.empty()) name += " kv-lengths=" + ListName(spec.kv_length_list);
  if (!spec.q_length_list.empty()) name += " q-lengths=" + ListName(spec.q_length_list);
  if (spec.window.left >= 0 || spec.window.right >= 0) {
    name += fmt::format(" window={},{}", spec.window.left, spec.window.right);
  }
  if (spec.documents != Documents::kNone)
    name += fmt::format(" documents={}", NameOf(spec.documents));
  if (spec.alibi == Alibi::kNone) name += " alibi=off";
  if (spec.alibi == Alibi::kDefault) name += " alibi=default";
  if (spec.alibi == Alibi::kTensor) name += " alibi=tensor";
  if (spec.sink_level) name += fmt::format(" sinks={}", *spec.sink_level);
  const Broadcast& keep = spec.keep_broadcast;
  if (keep.batch || keep.heads || keep.queries || keep.keys) name += " keep" + AxesOf(keep);
  if (spec.no_keep) name += " no-keep";
  if (spec.local) {
    name +=
        fmt::format(" {}={}", spec.local->gaussian ? "local-p" : "local", spec.local->half_width);
  }
  if (spec.junk) name += " junk";
  if (spec.poisoned_key) name += fmt::format(" nan-key={}", *spec.poisoned_key);
  if (!spec.outputs.empty()) name += fmt::format(" only={}", fmt::join(spec.outputs, ","));
  return name;
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
    case Values::kOnes:
      return "ones";
    case Values::kIdentity:
      return "identity";
    case Values::kExponents:
      return "exponents";
    case Values::kMantissas:
      return "mantissas";
    case Values::kConstantRows:
      return "constant-rows";
    case Values::kCancellation:
      return "cancellation";
    case Values::kLargeProducts:
      return "large-products";
    case Values::kNearOverflow:
      return "near-overflow";
    case Values::kTiny:
      return "tiny";
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
  return name + NameOfMore(spec);
}

}  // namespace attest
