// SPDX-License-Identifier: Apache-2.0
#include "experiments/activation_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "experiments/record.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

std::string PlaceOf(const HeadGroup& group, const AuditedHead& head) {
  return fmt::format("L{} h{}, n = {}", head.layer, head.head, group.tokens);
}

// The larger of two that may be NaN, which counts as largest.
void Raise(double value, double* largest) {
  if (!(value <= *largest)) *largest = value;
}

KernelError Worst(const std::vector<KernelError>& errors) {
  KernelError worst;
  for (const KernelError& error : errors) {
    Raise(error.bound_ratio, &worst.bound_ratio);
    Raise(error.relative, &worst.relative);
  }
  return worst;
}

// Averages and worst values over heads of one quantisation.
struct MetricSummary {
  TensorMetrics mean{};
  TensorMetrics worst{.cosine = 1.0};
  int count = 0;

  void Add(const TensorMetrics& m) {
    const double n = ++count;
    mean.cosine += (m.cosine - mean.cosine) / n;
    mean.relative_l1 += (m.relative_l1 - mean.relative_l1) / n;
    mean.rmse += (m.rmse - mean.rmse) / n;
    worst.cosine = std::min(worst.cosine, m.cosine);
    Raise(m.relative_l1, &worst.relative_l1);
    Raise(m.rmse, &worst.rmse);
    Raise(m.worst_row, &worst.worst_row);
  }
};

// Zhang et al. 2025, over layers of Llama 2 7B and Unidiffuser: mean and worst cosine similarity,
// mean relative L1 error and RMSE; null where they are not at hand.
ordered_json Published(const Quantisation& q) {
  struct Figures {
    CodeFormat qk, pv;
    ordered_json values;
  };
  const ordered_json none;
  const Figures figures[] = {
      {CodeFormat::kInt8, CodeFormat::kE4M3, {0.9994, 0.7636, 0.0345, 3.53e-3}},
      {CodeFormat::kInt8, CodeFormat::kE5M2, {0.9981, 0.7898, 0.0572, 6.11e-3}},
      {CodeFormat::kInt8, CodeFormat::kInt8, {0.9970, 0.5640, 0.1035, 6.82e-3}},
      {CodeFormat::kInt8, CodeFormat::kF16, {none, 0.9999, none, none}},
      {CodeFormat::kE4M3, CodeFormat::kE4M3, {0.9981, none, none, none}},
      {CodeFormat::kE4M3, CodeFormat::kE5M2, {0.9968, none, none, none}},
      {CodeFormat::kE4M3, CodeFormat::kInt8, {0.9958, none, none, none}},
      {CodeFormat::kE5M2, CodeFormat::kE4M3, {0.9937, none, none, none}},
      {CodeFormat::kE5M2, CodeFormat::kE5M2, {0.9922, none, none, none}},
      {CodeFormat::kE5M2, CodeFormat::kInt8, {0.9913, none, none, none}}};
  for (const Figures& f : figures) {
    if (f.qk == q.qk && f.pv == q.pv && !q.smooth_keys) return f.values;
  }
  return {none, none, none, none};
}

}  // namespace

double MedianOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

ordered_json ShapeTable(const std::vector<HeadGroup>& groups) {
  using Field = double (*)(const HeadAudit&);
  constexpr Field kFields[] = {[](const HeadAudit& a) { return a.shape.least_logit; },
                               [](const HeadAudit& a) { return a.shape.largest_logit; },
                               [](const HeadAudit& a) { return a.shape.largest_spread; },
                               [](const HeadAudit& a) { return a.shape.mean_entropy; },
                               [](const HeadAudit& a) { return a.shape.least_entropy; },
                               [](const HeadAudit& a) { return a.shape.mean_largest; },
                               [](const HeadAudit& a) { return a.shape.outliers[0]; },
                               [](const HeadAudit& a) { return a.shape.outliers[1]; },
                               [](const HeadAudit& a) { return a.shape.outliers[2]; },
                               [](const HeadAudit& a) { return a.shape.key_mean; },
                               [](const HeadAudit& a) { return a.theorems.largest_ratio; },
                               [](const HeadAudit& a) { return a.shape.sink; }};
  ordered_json rows = ordered_json::array();
  for (const HeadGroup& group : groups) {
    for (const AuditedHead& head : group.real) {
      ordered_json row{head.layer, head.head, group.tokens, group.dim};
      for (const Field field : kFields) row.push_back(field(head.audit));
      row.push_back(head.audit.shape.sink_key);
      rows.push_back(row);
    }
    ordered_json row{"random", "median", group.tokens, group.dim};
    for (const Field field : kFields) {
      row.push_back(RangeOf(group, [&](const HeadAudit& a) { return field(a); }).median);
    }
    row.push_back(nullptr);
    rows.push_back(row);
  }
  return {{"title", "Attention of each head"},
          {"note",
           "From certified weights. Entropy over ln n, mean and least of the rows; outliers: "
           "largest magnitude over the root mean square; mean key: its norm over the root mean "
           "square norm of a key; share: the largest mean weight that a key receives, times n."},
          {"columns",
           {"layer", "head", "n", "d", "least logit", "largest logit", "largest spread of a row",
            "mean entropy / ln n", "least entropy / ln n", "mean max p", "outliers of q",
            "outliers of k", "outliers of v", "mean key", "largest entropy bound / entropy",
            "largest share of a key", "that key"}},
          {"rows", rows}};
}

ordered_json LossTable(const std::vector<HeadGroup>& groups) {
  ordered_json rows = ordered_json::array();
  for (const HeadGroup& group : groups) {
    for (const AuditedHead& head : group.real) {
      ordered_json row{head.layer, head.head, group.tokens, group.dim};
      for (const std::size_t type : {std::size_t{1}, std::size_t{2}}) {
        const auto loss = [&](const HeadAudit& a) { return a.input_loss[type]; };
        const RandomRange random = RangeOf(group, loss);
        row.push_back(loss(head.audit));
        row.push_back(random.median);
        row.push_back(random.largest);
        row.push_back(loss(head.audit) / random.median);
      }
      rows.push_back(row);
    }
  }
  return {{"title", "What rounding q, k and v costs, by layer and head"},
          {"note",
           "max |o(rounded q, k, v) - o(q, k, v)| / max |o(q, k, v)|, both exact; beside it the "
           "median and the largest of the random draws of the same shape."},
          {"columns",
           {"layer", "head", "n", "d", "bf16", "random, median", "random, largest", "bf16 / median",
            "f16", "random, median", "random, largest", "f16 / median"}},
          {"rows", rows}};
}

ordered_json KernelTable(const std::vector<HeadGroup>& groups,
                         const std::vector<std::string>& kernels) {
  ordered_json rows = ordered_json::array();
  const auto add = [&](const std::string& name, const char* type, const auto& error_of,
                       bool random) {
    KernelError real, drawn;
    std::string place, relative_place;
    for (const HeadGroup& group : groups) {
      for (const AuditedHead& head : group.real) {
        const KernelError error = error_of(head.audit);
        if (!(error.bound_ratio <= real.bound_ratio)) place = PlaceOf(group, head);
        if (!(error.relative <= real.relative)) relative_place = PlaceOf(group, head);
        real = Worst({real, error});
      }
      for (const HeadAudit& audit : group.random) drawn = Worst({drawn, error_of(audit)});
    }
    rows.push_back({name, type, real.bound_ratio, place,
                    random ? ordered_json(drawn.bound_ratio) : ordered_json(), real.relative,
                    relative_place, random ? ordered_json(drawn.relative) : ordered_json()});
  };
  for (std::size_t t = 0; t < kAuditedTypes.size(); ++t) {
    const std::string type(NameOf(kAuditedTypes[t]));
    for (std::size_t k = 0; k < kernels.size(); ++k) {
      add(kernels[k], type.c_str(), [&](const HeadAudit& a) { return a.kernels[t][k]; }, true);
    }
    if (t == 0) {
      add(
          "TensorFlow.js 4.22.0, recorded", "f32", [](const HeadAudit& a) { return a.recorded; },
          false);
    }
  }
  return {{"title", "Kernels on real and on random inputs"},
          {"note",
           "Largest error over its bound (docs/bounds.md) and largest error over max |o|, over all "
           "heads and sentences, against the exact result of the inputs in the type."},
          {"columns",
           {"kernel", "type", "error / bound, real", "at", "error / bound, random",
            "error / max |o|, real", "at", "error / max |o|, random"}},
          {"rows", rows}};
}

ordered_json HeadErrorTable(const std::vector<HeadGroup>& groups) {
  ordered_json rows = ordered_json::array();
  for (const HeadGroup& group : groups) {
    for (const AuditedHead& head : group.real) {
      for (std::size_t t = 0; t < kAuditedTypes.size(); ++t) {
        const KernelError worst = Worst(head.audit.kernels[t]);
        const RandomRange random =
            RangeOf(group, [&](const HeadAudit& a) { return Worst(a.kernels[t]).relative; });
        const bool recorded = t == 0;
        rows.push_back({head.layer, head.head, group.tokens, group.dim, NameOf(kAuditedTypes[t]),
                        worst.bound_ratio, worst.relative, random.median,
                        worst.relative / random.median,
                        recorded ? ordered_json(head.audit.recorded.bound_ratio) : ordered_json(),
                        recorded ? ordered_json(head.audit.recorded.relative) : ordered_json()});
      }
    }
  }
  return {{"title", "The kernels' errors by layer and head"},
          {"note", "Of the built-in kernel that is worst there."},
          {"columns",
           {"layer", "head", "n", "d", "type", "error / bound", "error / max |o|", "random, median",
            "real / median", "TensorFlow.js, error / bound", "TensorFlow.js, error / max |o|"}},
          {"rows", rows}};
}

ordered_json QuantisedTable(const std::vector<HeadGroup>& groups) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < kQuantisations.size(); ++i) {
    for (const bool real : {true, false}) {
      MetricSummary summary;
      for (const HeadGroup& group : groups) {
        for (const AuditedHead& head : group.real) {
          if (real) summary.Add(head.audit.quantised.at(i));
        }
        for (const HeadAudit& audit : group.random) {
          if (!real && !audit.quantised.empty()) summary.Add(audit.quantised.at(i));
        }
      }
      const Quantisation& q = kQuantisations[i];
      ordered_json row{fmt::format("{}{}", NameOf(q.qk), q.smooth_keys ? ", smooth k" : ""),
                       NameOf(q.pv),
                       real ? "real" : "random",
                       summary.mean.cosine,
                       summary.worst.cosine,
                       summary.mean.relative_l1,
                       summary.worst.relative_l1,
                       summary.mean.rmse,
                       summary.worst.rmse,
                       summary.worst.worst_row};
      for (const ordered_json& value : Published(q)) row.push_back(real ? value : ordered_json());
      rows.push_back(row);
    }
  }
  return {{"title", "8-bit attention by the metrics of SageAttention"},
          {"note",
           "Emulated; averages over heads and sentences, each a tensor of its own, and the worst "
           "of them; the worst row of all is |o' - o| / |o|. Published: Zhang et al. 2025, average "
           "and worst layer of Llama 2 7B and Unidiffuser, other activations than these; which "
           "granularity of scales they were taken with is not known here."},
          {"columns",
           {"q, k", "P, v", "inputs", "mean cosine", "worst cosine", "mean relative L1",
            "worst relative L1", "mean RMSE", "worst RMSE", "worst row", "published mean cosine",
            "published worst cosine", "published mean relative L1", "published mean RMSE"}},
          {"rows", rows}};
}

ordered_json ActivationPlots(const std::vector<HeadGroup>& groups) {
  // Columns: (layer, head); rows: n.
  std::map<std::pair<int, Index>, std::map<Index, double>> entropy, loss, ratio;
  std::map<Index, std::map<Index, double>> random;  // by d
  for (const HeadGroup& group : groups) {
    const auto bf16 = [](const HeadAudit& a) { return a.input_loss[1]; };
    random[group.dim][group.tokens] = RangeOf(group, bf16).median;
    for (const AuditedHead& head : group.real) {
      const std::pair key(head.layer, head.head);
      entropy[key][group.tokens] = head.audit.shape.mean_entropy;
      loss[key][group.tokens] = bf16(head.audit);
      ratio[key][group.tokens] = bf16(head.audit) / random[group.dim][group.tokens];
    }
  }
  ordered_json heads = ordered_json::array();
  std::map<Index, bool> lengths;
  for (const auto& [key, by_length] : loss) {
    heads.push_back(fmt::format("L{} h{}", key.first, key.second));
    for (const auto& [n, value] : by_length) lengths[n] = true;
  }
  ordered_json ns = ordered_json::array();
  for (const auto& [n, unused] : lengths) ns.push_back(n);
  const auto map_of = [&](const HeatMapText& text, const auto& values) {
    ordered_json z = ordered_json::array();
    for (const auto& [n, unused] : lengths) {
      ordered_json row = ordered_json::array();
      for (const auto& [key, by_length] : values) {
        const auto found = by_length.find(n);
        row.push_back(found == by_length.end() ? ordered_json() : ordered_json(found->second));
      }
      z.push_back(row);
    }
    return HeatMap(text, heads, ns, z);
  };
  ordered_json series = ordered_json::array();
  const auto add = [&](const std::string& name, const std::map<Index, double>& by_length) {
    ordered_json points = ordered_json::array();
    for (const auto& [n, value] : by_length) points.push_back({n, value});
    series.push_back({{"name", name}, {"points", points}});
  };
  for (const auto& [key, by_length] : loss) {
    add(fmt::format("L{} h{}", key.first, key.second), by_length);
  }
  for (const auto& [dim, by_length] : random) {
    add(fmt::format("N(0, 1), d = {}, median", dim), by_length);
  }
  return {{{"title", "Loss by rounding q, k and v to bf16"},
           {"note", "Exact results for rounded inputs against exact results, over max |o|."},
           {"x", {{"label", "tokens"}, {"scale", "log"}}},
           {"y", {{"label", "loss"}, {"scale", "log"}}},
           {"series", series}},
          map_of({"bf16 loss over that of random inputs", "Median of the draws of the same shape.",
                  "layer and head", "tokens", "times", true},
                 ratio),
          map_of({"Mean entropy of a row over ln n", "1: uniform weights; 0: one key has them all.",
                  "layer and head", "tokens", "entropy / ln n", false},
                 entropy)};
}

}  // namespace attest
