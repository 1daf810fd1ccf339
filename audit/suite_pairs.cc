// SPDX-License-Identifier: Apache-2.0
// Every two features of the contract in one case: covering arrays over their values.
#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include "audit/pairwise.h"
#include "audit/suite_family.h"
#include "audit/suite_pairs.h"

namespace attest {
namespace {

using Change = std::function<void(CaseSpec&)>;

// Values of a field, in the order of the choices; the first one is the plain one.
template <class T>
std::vector<Change> Set(T CaseSpec::* field, std::vector<T> values) {
  std::vector<Change> changes;
  for (T& value : values) {
    changes.push_back([field, value = std::move(value)](CaseSpec& spec) { spec.*field = value; });
  }
  return changes;
}

void Plain(CaseSpec&) {}

std::vector<Change> Lengths() {
  const auto lengths = [](Index q_len, Index kv_len) {
    return [=](CaseSpec& spec) {
      spec.shape.q_len = q_len;
      spec.shape.kv_len = kv_len;
    };
  };
  return {lengths(3, 7), lengths(6, 6), lengths(7, 4), lengths(1, 9)};
}

std::vector<Change> Heads() {
  const auto heads = [](Index batch, Index q_heads, Index kv_heads) {
    return [=](CaseSpec& spec) {
      spec.shape.batch = batch;
      spec.shape.q_heads = q_heads;
      spec.shape.kv_heads = kv_heads;
    };
  };
  return {heads(2, 2, 2), heads(2, 4, 2), heads(1, 3, 1), heads(1, 6, 3), heads(1, 1, 1)};
}

std::vector<Change> HeadSizes() {
  const auto sizes = [](Index qk, Index v) {
    return [=](CaseSpec& spec) {
      spec.shape.qk_dim = spec.shape.k_dim = qk;
      spec.shape.v_dim = v;
    };
  };
  return {sizes(4, 4), sizes(3, 6), sizes(6, 3)};
}

std::vector<Change> Masks() {
  const auto mask = [](MaskPattern pattern, Broadcast broadcast) {
    return [=](CaseSpec& spec) {
      spec.mask_pattern = pattern;
      spec.mask_broadcast = broadcast;
    };
  };
  return {Plain,
          mask(MaskPattern::kRandom, {}),
          mask(MaskPattern::kRandom, {false, true, true, false}),
          mask(MaskPattern::kRandom, {true, false, false, true}),
          mask(MaskPattern::kEmptyRows, {true, true, false, false}),
          mask(MaskPattern::kNotFirst, kKeysOnly)};
}

std::vector<Change> Biases() {
  const auto bias = [](BiasPattern pattern, Broadcast broadcast) {
    return [=](CaseSpec& spec) {
      spec.bias_pattern = pattern;
      spec.bias_broadcast = broadcast;
    };
  };
  return {Plain, bias(BiasPattern::kNormal, {}), bias(BiasPattern::kExcluding, {}),
          bias(BiasPattern::kNormal, {true, false, true, false}),
          bias(BiasPattern::kNormal, {false, true, false, true})};
}

std::vector<Change> Sinks() {
  const auto sinks = [](double level) { return [=](CaseSpec& spec) { spec.sink_level = level; }; };
  return {Plain, [](CaseSpec& spec) { spec.sinks = true; },
          sinks(-std::numeric_limits<double>::infinity()), sinks(20.0), sinks(-200.0)};
}

std::vector<Change> Dropouts() {
  return {Plain, [](CaseSpec& spec) { spec.dropout_rate = 0.25; },
          [](CaseSpec& spec) {
            spec.dropout_rate = 0.5;
            spec.no_keep = true;
          }};
}

// What every family of pairs varies.
std::vector<PairParameter> CommonParameters() {
  return {
      {"lengths", Lengths()},
      {"heads", Heads()},
      {"head sizes", HeadSizes()},
      {"causal", Set(&CaseSpec::causal, {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight})},
      {"window", Set(&CaseSpec::window, {Window{}, Window{1, -1}, Window{-1, 1}, Window{2, 0}})},
      {"key lengths",
       {Plain, [](CaseSpec& spec) { spec.kv_lengths = true; },
        [](CaseSpec& spec) { spec.kv_length_list = {0, spec.shape.kv_len}; }}},
      {"query lengths",
       {Plain, [](CaseSpec& spec) { spec.q_lengths = true; },
        [](CaseSpec& spec) { spec.q_length_list = {spec.shape.q_len, 0}; }}},
      {"documents",
       Set(&CaseSpec::documents, {Documents::kNone, Documents::kBlocks, Documents::kInterleaved})},
      {"mask", Masks()},
      {"bias", Biases()},
      {"ALiBi",
       Set(&CaseSpec::alibi, {Alibi::kUnset, Alibi::kDefault, Alibi::kTensor, Alibi::kNone})},
      {"soft cap", Set(&CaseSpec::softcap, {0.0, 1.5})},
      {"sinks", Sinks()},
      {"dropout", Dropouts()},
      {"local", Set(&CaseSpec::local, {std::optional<LocalWindow>{}, LocalWindow{2.5, false},
                                       LocalWindow{3.0, true}})},
      {"empty rows",
       Set(&CaseSpec::empty_row, {EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform})},
      {"scale", Set(&CaseSpec::scale, {Scale{}, Scale{false, 1.0}, Scale{false, -0.75}})},
  };
}

PairParameter ValueClasses() {
  return {"values",
          Set(&CaseSpec::values, {Values::kNormal, Values::kSmallIntegers, Values::kTies,
                                  Values::kOnes, Values::kExponents, Values::kConstantRows})};
}

PairParameter Outputs() {
  using List = std::vector<std::string>;
  return {"outputs", Set(&CaseSpec::outputs, {List{}, List{"out"}, List{"out", "lse"}})};
}

PairParameter Scores() {
  const auto other = [](ScoreKind kind, Index more) {
    return [=](CaseSpec& spec) {
      spec.score = kind;
      spec.shape.k_dim = spec.shape.qk_dim + more;
    };
  };
  return {"score",
          {Plain, other(ScoreKind::kGeneral, 0), other(ScoreKind::kGeneral, 1),
           other(ScoreKind::kAdditive, 0), other(ScoreKind::kAdditive, 1)}};
}

PairParameter Gradients() {
  const auto flow = [](bool grad_out, bool grad_lse) {
    return [=](CaseSpec& spec) {
      spec.gradients = grad_out;
      spec.grad_lse = grad_lse;
    };
  };
  return {"gradients", {flow(true, false), flow(true, true), flow(false, true)}};
}

FamilySpecs Specs(const PairFamily& family) {
  FamilySpecs specs;
  for (const std::vector<std::size_t>& row : family.Rows()) {
    CaseSpec spec{.shape = Shaped(1, 1, 1, 1, 1, 1, 1)};
    for (std::size_t p = 0; p < row.size(); ++p) family.parameters[p].values[row[p]](spec);
    specs.push_back({family.name, spec});
  }
  return specs;
}

}  // namespace

std::vector<std::vector<std::size_t>> PairFamily::Rows() const {
  std::vector<std::size_t> levels;
  for (const PairParameter& parameter : parameters) levels.push_back(parameter.values.size());
  return CoverPairs(levels, [this](std::size_t a, std::size_t x, std::size_t b, std::size_t y) {
    return CanCombine(a, x, b, y);
  });
}

bool PairFamily::CanCombine(std::size_t a, std::size_t a_value, std::size_t b,
                            std::size_t b_value) const {
  // A list of outputs leaves out the gradients; "none" has none to leave out.
  const std::string_view first = parameters[a].name;
  const std::string_view second = parameters[b].name;
  if (first == "outputs" && second == "gradients or none") return a_value == 0 || b_value == 0;
  return true;
}

PairFamily ForwardPairFamily() {
  PairFamily family{"pairs", CommonParameters()};
  family.parameters.push_back(ValueClasses());
  family.parameters.push_back(Outputs());
  return family;
}

PairFamily GradientPairFamily() {
  PairFamily family{"pairs: gradients", CommonParameters()};
  family.parameters.push_back(Gradients());
  return family;
}

PairFamily AllPairFamily() {
  PairFamily family{"pairs: types and scores", CommonParameters()};
  family.parameters.push_back(
      {"type", Set(&CaseSpec::dtype, {DType::kF32, DType::kBF16, DType::kF16, DType::kF64})});
  family.parameters.push_back(Scores());
  family.parameters.push_back(ValueClasses());
  family.parameters.push_back(Outputs());
  PairParameter gradients = Gradients();
  gradients.name = "gradients or none";
  gradients.values.insert(gradients.values.begin(), Plain);
  family.parameters.push_back(std::move(gradients));
  return family;
}

FamilySpecs ForwardPairs() { return Specs(ForwardPairFamily()); }
FamilySpecs GradientPairs() { return Specs(GradientPairFamily()); }
FamilySpecs AllPairs() { return Specs(AllPairFamily()); }

}  // namespace attest
