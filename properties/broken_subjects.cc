// SPDX-License-Identifier: Apache-2.0
#include "properties/broken_subjects.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "audit/builtin.h"
#include "properties/tensor_axis.h"

namespace attest {
namespace {

using Misread = std::function<void(Case*)>;
using Spoil = std::function<void(const Case&, const CallOptions&, TensorMap*)>;

class Broken : public Subject {
 public:
  explicit Broken(const BrokenSubject& broken)
      : broken_(broken), kernel_(*MakeBuiltinSubject("tiled")), info_(kernel_->info()) {
    info_.name = "broken: " + broken.mistake;
  }
  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions& options) const override {
    Case read = problem;
    if (broken_.misread) broken_.misread(&read);
    Outcome outcome = kernel_->Run(read, options);
    if (outcome.kind == Outcome::Kind::kOk && broken_.spoil) {
      broken_.spoil(problem, options, &outcome.outputs);
    }
    return outcome;
  }

 private:
  const BrokenSubject& broken_;
  std::unique_ptr<Subject> kernel_;
  SubjectInfo info_;
};

// Every element x of an output, where it is there, becomes change(x, position).
template <class Change>
void Each(TensorMap* outputs, const std::string& name, const Change& change) {
  const auto found = outputs->find(name);
  if (found == outputs->end()) return;
  for (Index i = 0; i < found->second.size(); ++i) {
    found->second.Set(i, change(found->second.At(i), i));
  }
}

// out times `factor` in the calls that `when` picks.
template <class When>
Spoil OutTimes(double factor, const When& when) {
  return [factor, when](const Case& problem, const CallOptions& options, TensorMap* outputs) {
    if (when(problem, options)) Each(outputs, "out", [&](double x, Index) { return factor * x; });
  };
}

template <class Change>
Spoil Every(const std::string& output, const Change& change) {
  return [output, change](const Case&, const CallOptions&, TensorMap* outputs) {
    Each(outputs, output, change);
  };
}

// Every gradient plus a constant: no longer linear.
void OffsetGradients(const Case&, const CallOptions&, TensorMap* outputs) {
  for (auto& [name, tensor] : *outputs) {
    if (name.starts_with("grad_")) Each(outputs, name, [](double x, Index) { return x + 0.01; });
  }
}

// NaN everywhere as soon as there is one in a tensor.
Spoil PoisonedBy(const std::string& tensor) {
  return [tensor](const Case& problem, const CallOptions&, TensorMap* outputs) {
    const std::vector<double> values = ToDoubles(*problem.Find(tensor));
    const bool poisoned =
        std::any_of(values.begin(), values.end(), [](double x) { return std::isnan(x); });
    if (!poisoned) return;
    Each(outputs, "out", [](double, Index) { return std::numeric_limits<double>::quiet_NaN(); });
  };
}

// The last of an axis of length `of` is off by a percent.
Spoil LastOff(Index Dimensions::* extent, const std::function<Index(const Case&)>& inner) {
  return [extent, inner](const Case& problem, const CallOptions&, TensorMap* outputs) {
    const Index count = problem.contract.shape.*extent;
    Each(outputs, "out",
         [&](double x, Index i) { return i / inner(problem) % count == count - 1 ? 1.01 * x : x; });
  };
}

void Sharpen(Case* problem) {
  const double scale = problem->contract.scale.rsqrt_dk
                           ? 1.0 / std::sqrt(static_cast<double>(problem->contract.shape.k_dim))
                           : problem->contract.scale.value;
  problem->contract.scale = {false, 4.0 * scale};
}

void IgnoreScale(Case* problem) {
  if (problem->contract.score == ScoreKind::kDot) problem->contract.scale = {};
}

void IgnoreLastKey(Case* problem) {
  const Dimensions& s = problem->contract.shape;
  if (s.kv_len < 2 || problem->Find("mask") != nullptr) return;
  Tensor mask(DType::kBool, {1, 1, 1, s.kv_len});
  for (Index j = 0; j + 1 < s.kv_len; ++j) mask.Set(j, 1.0);
  problem->tensors["mask"] = std::move(mask);
}

// Query head h reads key/value head h mod Hkv.
void TileHeads(Case* problem) {
  Dimensions& s = problem->contract.shape;
  if (s.kv_heads == s.q_heads || problem->Find("grad_out") != nullptr) return;
  std::vector<Index> owner;
  for (Index h = 0; h < s.q_heads; ++h) owner.push_back(h % s.kv_heads);
  for (const char* name : {"k", "v"}) {
    problem->tensors[name] = Gather(problem->tensors[name], 1, owner);
  }
  s.kv_heads = s.q_heads;
}

void IgnoreMinusInfinityOf(const char* name, Case* problem) {
  const auto found = problem->tensors.find(name);
  if (found == problem->tensors.end()) return;
  for (Index i = 0; i < found->second.size(); ++i) {
    if (std::isinf(found->second.At(i))) found->second.Set(i, 0.0);
  }
}

Index RowOfOut(const Case& problem) { return problem.contract.shape.v_dim; }
Index HeadOfOut(const Case& problem) {
  return problem.contract.shape.q_len * problem.contract.shape.v_dim;
}
Index EntryOfOut(const Case& problem) {
  return problem.contract.shape.q_heads * HeadOfOut(problem);
}

}  // namespace

const std::vector<BrokenSubject>& BrokenSubjects() {
  static const std::vector<BrokenSubject> list{
      {"within-bound",
       "a thousandth too large",
       {},
       Every("out", [](double x, Index) { return 1.001 * x; })},
      {"weight-range",
       "weights below 0",
       {},
       Every("weights", [](double p, Index) { return p - 1e-6; })},
      {"weight-sums",
       "a denominator without its last bits",
       {},
       Every("weights", [](double p, Index) { return 1.001 * p; })},
      {"masked-weights",
       "a little weight for all",
       {},
       Every("weights", [](double p, Index) { return p == 0.0 ? 1e-30 : p; })},
      {"weights-give-output",
       "the weights of the keys in reverse",
       {},
       [](const Case& problem, const CallOptions&, TensorMap* outputs) {
         const Index n = problem.contract.shape.kv_len;
         const auto found = outputs->find("weights");
         if (found == outputs->end() || n == 0) return;
         std::vector<Index> order(static_cast<std::size_t>(n));
         std::iota(order.rbegin(), order.rend(), Index{0});
         found->second = Gather(found->second, 3, order);
       }},
      {"constant-values",
       "a denominator that is too large",
       {},
       Every("out", [](double x, Index) { return 0.999 * x; })},
      {"convex-hull", "an offset", {}, Every("out", [](double x, Index) { return x + 0.01; })},
      {"identity-values",
       "the values of the next key",
       [](Case* problem) {
         Tensor& v = problem->tensors.at("v");
         const Index n = v.shape()[2];
         std::vector<Index> next;
         for (Index j = 0; j < n; ++j) next.push_back((j + 1) % n);
         v = Gather(v, 2, next);
       },
       {}},
      {"jacobian-norm",
       "weights that are not normalised",
       {},
       Every("weights", [](double p, Index) { return 1.5 * p; })},
      {"dispersion", "scores times 4", Sharpen, {}},
      {"entropy", "scores times 4", Sharpen, {}},
      {"lipschitz", "scores times 4", Sharpen, {}},
      {"masked-junk", "0 times NaN", {}, PoisonedBy("v")},
      {"partly-masked-junk", "0 times NaN", {}, PoisonedBy("v")},
      {"empty-query-junk", "NaN of a query without keys", {}, PoisonedBy("q")},
      {"masked-bias-junk",
       "masked keys added up with their bias",
       [](Case* problem) {
         if (problem->Find("bias") != nullptr) problem->tensors.erase("mask");
       },
       {}},
      {"mask-as-booleans",
       "no boolean mask",
       [](Case* problem) { problem->tensors.erase("mask"); },
       {}},
      {"mask-as-bias",
       "-infinity in a bias taken for 0",
       [](Case* problem) { IgnoreMinusInfinityOf("bias", problem); },
       {}},
      {"padding-removed",
       "no lengths",
       [](Case* problem) {
         problem->tensors.erase("kv_lengths");
         problem->tensors.erase("q_lengths");
       },
       {}},
      {"causal-prefix",
       "top-left for bottom-right",
       [](Case* problem) {
         if (problem->contract.causal == Causal::kBottomRight) {
           problem->contract.causal = Causal::kTopLeft;
         }
       },
       {}},
      {"no-sink",
       "a sink of -infinity taken for 0",
       [](Case* problem) { IgnoreMinusInfinityOf("sinks", problem); },
       {}},
      {"idle-rules",
       "lengths one short",
       [](Case* problem) {
         const auto lengths = problem->tensors.find("kv_lengths");
         if (lengths == problem->tensors.end()) return;
         for (Index b = 0; b < lengths->second.size(); ++b) {
           lengths->second.Set(b, std::max(0.0, lengths->second.At(b) - 1.0));
         }
       },
       {}},
      {"key-order", "no last key", IgnoreLastKey, {}},
      {"query-order", "the last query off", {}, LastOff(&Dimensions::q_len, RowOfOut)},
      {"batch-order", "the last batch entry off", {}, LastOff(&Dimensions::batch, EntryOfOut)},
      {"head-order", "the last head off", {}, LastOff(&Dimensions::q_heads, HeadOfOut)},
      {"grouped-heads", "grouped heads tiled", TileHeads, {}},
      {"batch-entry-alone",
       "other bits for other batches",
       {},
       OutTimes(1.0 + 0x1p-22,
                [](const Case& c, const CallOptions&) { return c.contract.shape.batch > 1; })},
      {"head-alone",
       "other bits for other numbers of heads",
       {},
       OutTimes(1.0 + 0x1p-22,
                [](const Case& c, const CallOptions&) { return c.contract.shape.kv_heads > 1; })},
      {"query-alone",
       "other bits for other numbers of queries",
       {},
       OutTimes(1.0 + 0x1p-22,
                [](const Case& c, const CallOptions&) { return c.contract.shape.q_len > 1; })},
      {"added-key",
       "a phantom key in rows of odd length",
       {},
       OutTimes(0.9, [](const Case& c,
                        const CallOptions&) { return c.contract.shape.kv_len % 2 == 1; })},
      {"doubled-keys",
       "an LSE to the base 2",
       {},
       Every("lse", [](double x, Index) { return 1.4426950408889634 * x; })},
      {"merged-parts",
       "an LSE to the base 2",
       {},
       Every("lse", [](double x, Index) { return 1.4426950408889634 * x; })},
      {"score-shift", "no bias", [](Case* problem) { problem->tensors.erase("bias"); }, {}},
      {"negated-values",
       "rounding upwards",
       {},
       Every("out", [](double x, Index) { return x + 0x1p-20; })},
      {"scaled-values",
       "outputs beyond 2 cut off",
       {},
       Every("out", [](double x, Index) { return std::clamp(x, -2.0, 2.0); })},
      {"scale-in-query", "no explicit scale", IgnoreScale, {}},
      {"padded-head-size", "no explicit scale", IgnoreScale, {}},
      {"huge-softcap",
       "every cap taken for 1",
       [](Case* problem) {
         if (problem->contract.softcap > 0.0) problem->contract.softcap = 1.0;
       },
       {}},
      {"repeatable",
       "junk added to an output",
       {},
       OutTimes(
           1.0 + 0x1p-20,
           [](const Case&, const CallOptions& options) { return options.junk == Junk::kHuge; })},
      {"threads",
       "other sums for three threads",
       {},
       OutTimes(1.0 + 0x1p-22,
                [](const Case&, const CallOptions& options) { return options.threads == 3; })},
      {"layouts",
       "strides that are not 1 ignored",
       {},
       OutTimes(0.5, [](const Case&,
                        const CallOptions& options) { return options.layout == Layout::kSpread; })},
      {"optional-outputs",
       "no causal rule with weights",
       [](Case* problem) {
         if (problem->contract.Wants("weights")) problem->contract.causal = Causal::kNone;
       },
       {}},
      {"bias-gradient-sums", "no delta", {}, OffsetGradients},
      {"masked-gradients",
       "gradients that are not cleared",
       {},
       Every("grad_k", [](double x, Index) { return x == 0.0 ? 1e-30 : x; })},
      {"constant-value-gradients", "no delta", {}, OffsetGradients},
      {"scaled-gradients", "a constant in gradients", {}, OffsetGradients},
      {"added-gradients", "a constant in gradients", {}, OffsetGradients},
  };
  return list;
}

std::unique_ptr<Subject> MakeBrokenSubject(const BrokenSubject& broken) {
  return std::make_unique<Broken>(broken);
}

}  // namespace attest
