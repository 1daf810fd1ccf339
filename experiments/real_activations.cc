// SPDX-License-Identifier: Apache-2.0
// What an audit measures on activations of a real model, beside random inputs of the same shape.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "audit/builtin.h"
#include "core/digest.h"
#include "experiments/activation_heads.h"
#include "experiments/activation_tables.h"
#include "experiments/emulated_attention.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

// Draws of each shape that are quantised too.
constexpr std::size_t kQuantisedDraws = 2;

// What decides the verdict, and what the summary says.
struct Findings {
  double largest_factor = 0.0;  // of the heads that lose more than every draw, over the median
  std::string place;
  double largest_f16 = 0.0;
  double largest_draw = 0.0;  // of a random draw, over the median of its shape
  double bound_ratio = 0.0;   // of built-in kernels, real inputs
  double recorded_ratio = 0.0;
  int violations = 0;  // elements' bounds or theorems: heads with one
};

Findings FindingsOf(const std::vector<HeadGroup>& groups) {
  Findings found;
  for (const HeadGroup& group : groups) {
    const auto bf16 = [](const HeadAudit& a) { return a.input_loss[1]; };
    const RandomRange random = RangeOf(group, bf16);
    const RandomRange f16 = RangeOf(group, [](const HeadAudit& a) { return a.input_loss[2]; });
    found.largest_draw = std::max(found.largest_draw, random.largest / random.median);
    for (const AuditedHead& head : group.real) {
      const double factor = bf16(head.audit) / random.median;
      if (bf16(head.audit) > random.largest && factor > found.largest_factor) {
        found.largest_factor = factor;
        found.place =
            fmt::format("layer {}, head {}, {} tokens", head.layer, head.head, group.tokens);
      }
      found.largest_f16 = std::max(found.largest_f16, head.audit.input_loss[2] / f16.median);
      found.recorded_ratio = std::max(found.recorded_ratio, head.audit.recorded.bound_ratio);
      bool violated = head.audit.theorems.violations > 0;
      for (const std::vector<KernelError>& errors : head.audit.kernels) {
        for (const KernelError& error : errors) {
          found.bound_ratio = std::max(found.bound_ratio, error.bound_ratio);
          violated = violated || !(error.bound_ratio <= 1.0);
        }
      }
      if (violated) ++found.violations;
    }
  }
  return found;
}

// A row of the quantised table.
const ordered_json& QuantisedRow(const ordered_json& table, const char* qk, const char* pv,
                                 const char* which) {
  for (const ordered_json& row : table["rows"]) {
    if (row[0] == qk && row[1] == pv && row[2] == which) return row;
  }
  return table["rows"][0];
}

}  // namespace

StatusOr<ordered_json> RunRealActivations(const ExperimentOptions& options) {
  const std::size_t draws = options.quick ? 9 : 99;
  StatusOr<std::vector<ActivationHead>> heads = ReadActivationHeads();
  if (!heads.ok()) return heads.status();
  std::map<std::pair<Index, Index>, std::vector<const ActivationHead*>> shapes;  // by (d, tokens)
  std::string inputs;
  for (const ActivationHead& head : *heads) {
    shapes[{head.problem.contract.shape.qk_dim, head.tokens}].push_back(&head);
    inputs += Sha256(head.problem.tensors) + Sha256({{"out", head.recorded}});
  }

  ThreadPool pool(options.threads);
  std::vector<std::string> names;
  for (const BuiltinKernel& kernel : BuiltinKernels()) names.push_back(kernel.name);
  std::vector<Subjects> subjects(pool.threads());  // a subject runs one call at a time
  for (Subjects& mine : subjects) {
    for (const std::string& name : names) {
      StatusOr<std::unique_ptr<Subject>> subject = MakeBuiltinSubject(name);
      if (!subject.ok()) return subject.status();
      mine.push_back(*std::move(subject));
    }
  }

  std::vector<HeadGroup> groups;
  for (const auto& [shape, members] : shapes) {
    HeadGroup group{.tokens = shape.second, .dim = shape.first, .real = {}, .random = {}};
    std::vector<Case> drawn;
    for (std::size_t draw = 0; draw < draws; ++draw) {
      drawn.push_back(
          NormalCase(fmt::format("real-activations n{} d{} draw {}", group.tokens, group.dim, draw),
                     group.tokens, group.tokens, group.dim, DType::kF32, false, options.seed));
      inputs += Sha256(drawn.back().tensors);
    }
    std::vector<StatusOr<HeadAudit>> audits(members.size() + draws, HeadAudit{});
    pool.Run(audits.size(), [&](std::size_t i, std::size_t thread) {
      const bool real = i < members.size();
      const std::size_t draw = i - members.size();
      audits[i] = AuditHead(real ? members[i]->problem : drawn[draw],
                            real ? &members[i]->recorded : nullptr, subjects[thread],
                            real || draw < kQuantisedDraws);
    });
    for (std::size_t i = 0; i < audits.size(); ++i) {
      if (!audits[i].ok()) return audits[i].status();
      if (i < members.size()) {
        group.real.push_back({members[i]->layer, members[i]->head, *std::move(audits[i])});
      } else {
        group.random.push_back(*std::move(audits[i]));
      }
    }
    groups.push_back(std::move(group));
    if (options.progress) options.progress(groups.size(), shapes.size());
  }

  const Findings found = FindingsOf(groups);
  ordered_json record = NewRecord(
      {.name = "real-activations",
       .title = "Attention of a real model beside random inputs",
       .claim =
           "Rounding q, k and v to bf16 costs up to 14 times more on the peaky heads of a real "
           "model than on random inputs of the same shape, so that an audit on random data "
           "alone gives too small an error bar.",
       .source = "The factor was measured for this project on a small model of the Llama 2 kind "
                 "whose activations are not shipped; these are of the Universal Sentence Encoder "
                 "Lite (cases/use_lite). Metrics of 8-bit attention: Zhang et al. 2025.",
       .rule = fmt::format(
           "The loss of a head on a sentence is the largest difference between the exact outputs "
           "for rounded and for unrounded q, k, v, over the largest output. Reproduced if some "
           "head loses at least 5 times as much as the median of {} random draws of its shape, and "
           "more than each of them. With limits if at least 2 times. Not reproduced otherwise.",
           draws)});
  record["verdict"] = found.largest_factor >= 5.0   ? "reproduced"
                      : found.largest_factor >= 2.0 ? "reproduced with limits"
                                                    : "not reproduced";
  record["tables"] = {LossTable(groups), ShapeTable(groups), KernelTable(groups, names),
                      HeadErrorTable(groups), QuantisedTable(groups)};
  record["plots"] = ActivationPlots(groups);
  const ordered_json& table = record["tables"][4];
  const ordered_json& e4m3 = QuantisedRow(table, "INT8", "e4m3", "real");
  const ordered_json& f16 = QuantisedRow(table, "INT8", "f16", "real");
  const ordered_json& e5m2 = QuantisedRow(table, "e5m2", "f16", "real");
  const ordered_json& drawn = QuantisedRow(table, "e5m2", "f16", "random");
  record["summary"] = fmt::format(
      "{} heads and sentences: bf16 inputs cost up to {:.1f} times the median of random inputs "
      "({}), f16 up to {:.1f}; the worst random draw costs {:.1f} times its median. Built-in "
      "kernels stay at {:.2f} of the bound or below, TensorFlow.js at {:.2f}; {} heads violate a "
      "bound or a theorem. INT8 q and k with e4m3 P and v: mean cosine {:.3f}%, worst row "
      "{:.1f}%; with f16 P and v {:.3f}% and {:.1f}%.",
      heads->size(), found.largest_factor,
      found.place.empty() ? "none above all draws" : found.place, found.largest_f16,
      found.largest_draw, found.bound_ratio, found.recorded_ratio, found.violations,
      100.0 * e4m3[3].get<double>(), 100.0 * e4m3[9].get<double>(), 100.0 * f16[3].get<double>(),
      100.0 * f16[9].get<double>());
  record["notes"] = {
      fmt::format(
          "All {} heads and sentences of cases/use_lite, {} draws of N(0, 1) for each of {} "
          "shapes; 8-bit attention on {} draws of each. The padding of a sentence is cut "
          "off, which changes no exact weight by more than e^-999999900.",
          heads->size(), draws, groups.size(), kQuantisedDraws),
      "cases/onnx has node tests, not activations; no other activations are shipped. The smaller a "
      "model and the shorter its sentences, the less can be said of large ones: these have no "
      "massive activations (Sun et al. 2024).",
      "8-bit attention is emulated: q and k with a scale for each row, P = exp(s - m) with one "
      "fixed scale, v with a scale for each column, all keys in one tile, f32 sums, f16 outputs; "
      "f16 P and v have no scales. The error is against the exact result for the inputs in f32.",
      "The published averages are over layers of other models, with their tensors flattened over "
      "all heads; here each head is a tensor. The order of the formats can be compared, and is not "
      "the published one throughout: there e4m3 is the best 8-bit format of P and v and INT8 the "
      "worst; here, with a scale for each column of v and values without outliers, INT8 is the "
      "best.",
      fmt::format("What an average hides is the same. With q and k in e5m2 and P and v in f16 the "
                  "mean cosine similarity is {:.2f}% on real heads and {:.2f}% on random inputs, "
                  "the worst row is wrong by {:.0f}% and {:.0f}%.",
                  100.0 * e5m2[3].get<double>(), 100.0 * drawn[3].get<double>(),
                  100.0 * e5m2[9].get<double>(), 100.0 * drawn[9].get<double>()),
      "The heads that the factor of 14 came from have logits down to -158 and a head size of 8. "
      "Here the head that loses most is the one with the largest logits, from -30 to 34."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
