// SPDX-License-Identifier: Apache-2.0
#include "audit/probe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include "audit/case_spec.h"
#include "audit/judge.h"

namespace attest {
namespace {

using Change = std::function<void(CaseSpec*)>;

// What makes the plainest case need something; without an entry the plainest case needs it.
struct Trial {
  std::string_view list;
  const char* name;
  Change change;
};

const std::vector<Trial>& Trials() {
  static const std::vector<Trial> trials{
      {"scores", "general", [](CaseSpec* s) { s->score = ScoreKind::kGeneral; }},
      {"scores", "additive", [](CaseSpec* s) { s->score = ScoreKind::kAdditive; }},
      {"masks", "boolean", [](CaseSpec* s) { s->mask = true; }},
      {"masks", "bias", [](CaseSpec* s) { s->bias = true; }},
      {"masks", "causal_top_left", [](CaseSpec* s) { s->causal = Causal::kTopLeft; }},
      {"masks", "causal_bottom_right", [](CaseSpec* s) { s->causal = Causal::kBottomRight; }},
      {"masks", "window", [](CaseSpec* s) { s->window = {1, 1}; }},
      {"masks", "kv_lengths", [](CaseSpec* s) { s->kv_length_list = {3}; }},
      {"masks", "q_lengths", [](CaseSpec* s) { s->q_length_list = {2}; }},
      {"masks", "documents", [](CaseSpec* s) { s->documents = Documents::kBlocks; }},
      {"masks", "local", [](CaseSpec* s) { s->local = LocalWindow{2.0, false}; }},
      {"features", "gqa", [](CaseSpec* s) { s->shape.kv_heads = 1; }},
      {"features", "alibi", [](CaseSpec* s) { s->alibi = Alibi::kDefault; }},
      {"features", "softcap", [](CaseSpec* s) { s->softcap = 2.0; }},
      {"features", "sinks", [](CaseSpec* s) { s->sinks = true; }},
      {"features", "dropout", [](CaseSpec* s) { s->dropout_rate = 0.25; }},
      {"features", "explicit_scale", [](CaseSpec* s) { s->scale = {false, 0.375}; }},
      {"features", "v_dim", [](CaseSpec* s) { s->shape.v_dim += 2; }},
      {"features", "out_dtype",
       [](CaseSpec* s) { s->out_dtype = s->dtype == DType::kBF16 ? DType::kF32 : DType::kBF16; }},
      {"features", "grad_lse", [](CaseSpec* s) { s->grad_lse = true; }},
  };
  return trials;
}

// The gradients of a case that has them are those of its tensors.
const std::vector<Trial>& OutputTrials() {
  static const std::vector<Trial> trials{
      {"outputs", "lse", {}},
      {"outputs", "weights", {}},
      {"outputs", "grad_q", [](CaseSpec* s) { s->gradients = true; }},
      {"outputs", "grad_k", [](CaseSpec* s) { s->gradients = true; }},
      {"outputs", "grad_v", [](CaseSpec* s) { s->gradients = true; }},
      {"outputs", "grad_bias", [](CaseSpec* s) { s->gradients = s->bias = true; }},
      {"outputs", "grad_sinks", [](CaseSpec* s) { s->gradients = s->sinks = true; }},
      {"outputs", "grad_w",
       [](CaseSpec* s) { s->gradients = true, s->score = ScoreKind::kGeneral; }},
      {"outputs", "grad_w_q",
       [](CaseSpec* s) { s->gradients = true, s->score = ScoreKind::kAdditive; }},
      {"outputs", "grad_w_k",
       [](CaseSpec* s) { s->gradients = true, s->score = ScoreKind::kAdditive; }},
      {"outputs", "grad_v_a",
       [](CaseSpec* s) { s->gradients = true, s->score = ScoreKind::kAdditive; }},
      {"outputs", "grad_b",
       [](CaseSpec* s) { s->gradients = true, s->score = ScoreKind::kAdditive; }},
  };
  return trials;
}

// What was found of one list.
struct Found {
  NameSet taken;
  std::vector<std::string> declined;  // with the reason

  std::string Sentence(std::string_view list) const {
    std::string text =
        fmt::format("{}, by trial: {}", list,
                    taken.empty() ? "none" : fmt::format("{}", fmt::join(taken, ", ")));
    if (!declined.empty()) text += fmt::format("; not {}", fmt::join(declined, ", "));
    return text;
  }
};

class Prober {
 public:
  Prober(const Subject& subject, Capabilities* capabilities, std::vector<std::string>* assumptions)
      : subject_(subject), capabilities_(*capabilities), assumptions_(*assumptions) {}

  void Run() {
    if (IsComplete() || !FindType()) return;
    std::optional<NameSet>* const lists[] = {&capabilities_.scores, &capabilities_.masks,
                                             &capabilities_.features};
    const std::array<std::string_view, 3> names{"scores", "masks", "features"};
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!*lists[i]) *lists[i] = FindNames(names[i]);
    }
    if (!capabilities_.outputs) capabilities_.outputs = FindOutputs();
    if (!capabilities_.empty_row) FindEmptyRow();
    if (!capabilities_.layouts) FindLayouts();
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      if (capabilities_.dtypes->contains(NameOf(dtype))) FindProfile(dtype);
    }
  }

 private:
  bool IsComplete() const {
    const Capabilities& c = capabilities_;
    return c.dtypes && c.scores && c.masks && c.features && c.outputs && c.empty_row && c.layouts &&
           !c.arithmetic.empty();
  }

  CaseSpec Plainest() const {
    CaseSpec spec{.shape = {1, 2, 2, 3, 5, 4, 4, 4}, .dtype = dtype_};
    if (capabilities_.head_dims && !capabilities_.head_dims->empty()) {
      const Index dim = *capabilities_.head_dims->begin();
      spec.shape.qk_dim = spec.shape.k_dim = spec.shape.v_dim = dim;
    }
    spec.outputs = {"out"};
    return spec;
  }

  Outcome Try(const CaseSpec& spec) const { return subject_.Run(MakeCase(spec, 0), {}); }

  // Whether an answer says that the subject does not offer what it was asked.
  static bool Declines(const Outcome& outcome) {
    return outcome.kind == Outcome::Kind::kUnsupported ||
           (outcome.kind == Outcome::Kind::kFailed && outcome.code == "error");
  }

  static bool IsRight(const StatusOr<Expectation>& expected, const Outcome& outcome) {
    return outcome.kind == Outcome::Kind::kOk && expected.ok() && outcome.outputs.contains("out") &&
           Judge(*expected, "out", outcome.outputs.at("out")).violations == 0;
  }

  static void Note(const Outcome& outcome, const std::string& name, Found* found) {
    if (Declines(outcome)) {
      found->declined.push_back(fmt::format("{} ({})", name, outcome.message.substr(0, 80)));
    } else {
      found->taken.insert(name);
    }
  }

  // The types, and the one of the other trials. False when no plain case is answered.
  bool FindType() {
    Found found;
    bool any = false;
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      const std::string name(NameOf(dtype));
      if (capabilities_.dtypes && !capabilities_.dtypes->contains(name)) continue;
      const DType chosen = std::exchange(dtype_, dtype);
      const Outcome outcome = Try(Plainest());
      const bool answered = outcome.kind == Outcome::Kind::kOk;
      if (any || !answered) dtype_ = chosen;
      any = any || answered;
      Note(outcome, name, &found);
    }
    if (!any) return false;
    if (!capabilities_.dtypes) {
      assumptions_.push_back(found.Sentence("dtypes"));
      capabilities_.dtypes = found.taken;
    }
    return true;
  }

  NameSet FindNames(std::string_view list) {
    Found found;
    if (list == "scores") found.taken.insert("dot");
    for (const Trial& trial : Trials()) {
      if (trial.list != list) continue;
      CaseSpec spec = Plainest();
      trial.change(&spec);
      if (spec.grad_lse) spec.outputs = {"grad_q"};
      Note(Try(spec), trial.name, &found);
    }
    assumptions_.push_back(found.Sentence(list));
    return found.taken;
  }

  NameSet FindOutputs() {
    Found found;
    found.taken.insert("out");
    for (const Trial& trial : OutputTrials()) {
      CaseSpec spec = Plainest();
      if (trial.change) trial.change(&spec);
      spec.outputs = {"out", trial.name};
      Outcome outcome = Try(spec);
      if (outcome.kind == Outcome::Kind::kOk && !outcome.outputs.contains(trial.name)) {
        outcome = Outcome::Unsupported("not in the result");
      }
      Note(outcome, trial.name, &found);
    }
    assumptions_.push_back(found.Sentence("outputs"));
    return found.taken;
  }

  // A case of rows without an allowed key; nothing where the subject takes no such rule.
  std::optional<Case> EmptyRows() const {
    CaseSpec spec = Plainest();
    if (capabilities_.masks->contains("boolean")) {
      spec.mask_pattern = MaskPattern::kAllFalse;
    } else if (capabilities_.masks->contains("kv_lengths")) {
      spec.kv_length_list = {0};
    } else {
      return std::nullopt;
    }
    return MakeCase(spec, 0);
  }

  void FindEmptyRow() {
    const std::optional<Case> rows = EmptyRows();
    if (!rows) return;
    const auto with = [&](EmptyRow policy) {
      Case problem = *rows;
      problem.contract.empty_row = policy;
      return problem;
    };
    const Outcome zero = subject_.Run(with(EmptyRow::kZero), {});
    const Outcome nan = subject_.Run(with(EmptyRow::kNan), {});
    const auto fits = [&](EmptyRow policy, const Outcome& outcome) {
      const StatusOr<Expectation> expected = Expect(with(policy));
      return IsRight(expected, outcome);
    };
    // Whoever follows the contract needs no declaration.
    if (fits(EmptyRow::kZero, zero) && fits(EmptyRow::kNan, nan)) return;
    const std::array<std::pair<EmptyRow, const char*>, 3> policies{
        {{EmptyRow::kZero, "zero"}, {EmptyRow::kNan, "nan"}, {EmptyRow::kUniform, "uniform"}}};
    for (const auto& [policy, name] : policies) {
      if (!fits(policy, zero) || !fits(policy, nan)) continue;
      capabilities_.empty_row = policy;
      assumptions_.push_back(fmt::format("rows without an allowed key, by trial: {}", name));
      return;
    }
  }

  void FindLayouts() {
    const Case problem = MakeCase(Plainest(), 0);
    const Outcome outcome = subject_.Run(problem, {.layout = Layout::kPadded});
    const StatusOr<Expectation> expected = Expect(problem);
    const bool right = IsRight(expected, outcome);
    capabilities_.layouts = right ? CapabilityNames("layouts") : NameSet{"dense"};
    assumptions_.push_back(right ? "layouts, by trial: any strides"
                                 : "layouts, by trial: dense tensors only");
  }

  bool StaysWithin(DType dtype, const std::string& profile) const {
    for (const Values values : {Values::kNormal, Values::kOutliers, Values::kSpread}) {
      CaseSpec spec = Plainest();
      spec.dtype = dtype;
      spec.shape.q_len = 8;
      spec.shape.kv_len = 40;
      spec.values = values;
      Case problem = MakeCase(spec, 0);
      problem.contract.arithmetic.profile = profile;
      const Outcome outcome = subject_.Run(problem, {});
      const StatusOr<Expectation> expected = Expect(problem);
      if (!IsRight(expected, outcome)) return false;
    }
    return true;
  }

  void FindProfile(DType dtype) {
    for (const Arithmetic& declared : capabilities_.arithmetic) {
      if (HasProfile(dtype, declared.profile)) return;
    }
    const std::string flash(DefaultProfile(dtype));
    const std::string math = fmt::format("{}-math", NameOf(dtype));
    if (StaysWithin(dtype, flash) || !StaysWithin(dtype, math)) return;
    Arithmetic assumed;
    if (!capabilities_.arithmetic.empty()) assumed = capabilities_.arithmetic.front();
    assumed.profile = math;
    capabilities_.arithmetic.insert(capabilities_.arithmetic.begin(), assumed);
    assumptions_.push_back(
        fmt::format("arithmetic of {}, by trial: {} (its bounds hold, those of {} do not)",
                    NameOf(dtype), math, flash));
  }

  const Subject& subject_;
  Capabilities& capabilities_;
  std::vector<std::string>& assumptions_;
  DType dtype_ = DType::kF32;  // of the trials
};

}  // namespace

void Probe(const Subject& subject, Capabilities* capabilities,
           std::vector<std::string>* assumptions) {
  Prober(subject, capabilities, assumptions).Run();
}

}  // namespace attest
