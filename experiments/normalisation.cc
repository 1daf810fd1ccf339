// SPDX-License-Identifier: Apache-2.0
// Error of softmax and of the sum of its weights by algorithm, against certified weights and
// bounds.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "core/digest.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "experiments/softmax_rows.h"
#include "optimized/thread_pool.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr double kFarMax = 200.0;  // rows whose maximum is this far from 0 judge division-free

bool Any(const RowSpec& /*spec*/) { return true; }

}  // namespace

StatusOr<ordered_json> RunNormalisation(const ExperimentOptions& options) {
  const std::vector<DType> dtypes{DType::kF64, DType::kF32, DType::kBF16, DType::kF16};
  const std::vector<Index> lengths = options.quick
                                         ? std::vector<Index>{16, 256, 4096}
                                         : std::vector<Index>{16, 64, 256, 1024, 4096, 16384};
  const std::vector<double> spreads{0.0, 1.0, 10.0, 100.0, 1000.0};
  const std::vector<double> maxima{-200.0, -10.0, 0.0, 10.0, kFarMax, 2000.0};
  const int draws = options.quick ? 2 : 10;

  std::vector<SoftmaxRow> measured;
  for (const DType dtype : dtypes) {
    for (const Index n : lengths) {
      for (const double spread : spreads) {
        for (const double max : maxima) {
          for (int draw = 0; draw < draws; ++draw) {
            measured.emplace_back().spec = {dtype, n, spread, max, draw};
          }
        }
      }
    }
  }
  const std::size_t all = measured.size();
  constexpr std::size_t kBatch = 64;  // rows between two calls of `progress`
  ThreadPool pool(options.threads);
  for (std::size_t first = 0; first < all; first += kBatch) {
    pool.Run(std::min(kBatch, all - first), [&](std::size_t i, std::size_t /*thread*/) {
      MeasureRow(options.seed, &measured[first + i]);
    });
    if (options.progress) options.progress(std::min(first + kBatch, all), all);
  }
  std::string inputs;
  for (const SoftmaxRow& row : measured) {
    if (!row.status.ok()) return row.status;
    inputs += row.digest;
  }
  const SoftmaxRows rows(std::move(measured));

  // The rule of the verdict, evaluated.
  bool bounded = true;
  bool predicted = true;
  bool loses = true;
  double worst = 0.0;
  double worst_sum = 0.0;
  int judged = 0;
  int overflows = 0;
  ordered_json method_rows = ordered_json::array();
  ordered_json far_rows = ordered_json::array();
  ordered_json stagnation_rows = ordered_json::array();
  for (const DType dtype : dtypes) {
    for (const SoftmaxMethod& method : SoftmaxMethods(dtype)) {
      const SoftmaxCell cell = rows.CellOf(dtype, method.name, Any);
      bounded = bounded && cell.error_ratio <= 1.0 && cell.sum_ratio <= 1.0;
      predicted = predicted && cell.wrong_predictions == 0;
      worst = std::max(worst, cell.error_ratio);
      worst_sum = std::max(worst_sum, cell.sum_ratio);
      judged += cell.inside;
      overflows += cell.overflows;
      method_rows.push_back(
          {NameOf(dtype), method.name, cell.rows, cell.inside, cell.error_ratio, cell.sum_ratio,
           cell.sum_error, cell.norm_error,
           cell.first_order > 0.0 ? ordered_json(cell.first_order) : ordered_json(), cell.overflows,
           cell.wrong_predictions, cell.untold});
    }
    for (const char* method : {"shifted", "division-free", "log-shifted"}) {
      for (const double max : maxima) {
        const SoftmaxCell cell = rows.CellOf(dtype, method, [&](const RowSpec& spec) {
          return spec.max == max && spec.n == lengths.front();
        });
        far_rows.push_back({NameOf(dtype), method, max, cell.norm_error, cell.sum_error,
                            cell.error_ratio, cell.over_shifted});
      }
    }
    const SoftmaxCell far = rows.CellOf(
        dtype, "division-free", [](const RowSpec& spec) { return std::fabs(spec.max) >= kFarMax; });
    loses = loses && far.over_shifted > 1.0;
    for (const Index n : lengths) {
      const auto equal = [&](const RowSpec& spec) {
        return spec.spread == 0.0 && spec.max == 0.0 && spec.n == n;
      };
      for (const char* method : {"shifted", "online, tiles of 64", "kernel shifted"}) {
        const SoftmaxCell cell = rows.CellOf(dtype, method, equal);
        stagnation_rows.push_back({NameOf(dtype), method, n, 1.0 + cell.sum_error});
      }
    }
  }

  ordered_json record = NewRecord(
      {.name = "normalisation",
       .title = "Error and normalisation of softmax by algorithm",
       .claim =
           "Softmax errs by at most [n + 2 + 2 (max x - min x)] u shifted and (n + 3) u unshifted "
           "where nothing overflows; the division-free form exp(x - LSE) can be less accurate.",
       .source = "Blanchard, Higham and Higham 2021, theorems 3.3 and 4.3 and section 4; the "
                 "bounds of the other algorithms are derived in the same way.",
       .rule = fmt::format(
           "Reproduced if, for every algorithm, type and row in its domain, each weight errs by "
           "at most its bound and the weights' sum by at most the bound of the sum; if unshifted "
           "weights are useless (not finite, or all 0) on every row whose certified sum of "
           "exponentials is beyond the type and never inside the domain; and if in every type, "
           "with a maximum at least {} from 0, the division-free form exceeds the bound of the "
           "shifted one on some row. With limits if only the bounds hold.",
           kFarMax)});
  record["verdict"] =
      !bounded ? "not reproduced" : (predicted && loses ? "reproduced" : "reproduced with limits");
  const SoftmaxCell mixed = rows.CellOf(DType::kBF16, "f32, exponentials added, then stored", Any);
  const SoftmaxCell same = rows.CellOf(DType::kBF16, "f32, stored exponentials added", Any);
  const SoftmaxCell far32 = rows.CellOf(DType::kF32, "division-free", Any);
  record["summary"] = fmt::format(
      "{} pairs of row and algorithm: largest error / bound {:.3f} of a weight, {:.3f} of the "
      "sum. {} overflows of unshifted weights, {} as predicted. In f32 the division-free form "
      "reaches {:.3g} times the bound of the shifted one. bf16 exponentials, added as they are "
      "stored, give weights that sum to 1 within {:.2g}; added before, within {:.2g}.",
      judged, worst, worst_sum, overflows, predicted ? "all" : "not all", far32.over_shifted,
      same.sum_error, mixed.sum_error);
  record["tables"] = {
      {{"title", "Every algorithm in every type"},
       {"note",
        "Largest values over the rows in the domain. Ratios are to bounds that are evaluated from "
        "the certified weights; the error in units of u is max |error| / max weight. Kernels "
        "compute 16-bit rows in f32."},
       {"columns",
        {"type", "algorithm", "rows", "in domain", "error / bound", "sum error / bound",
         "|sum - 1|", "error / u", "over the source's first order", "overflows",
         "wrongly predicted", "untold"}},
       {"rows", method_rows}},
      {{"title", fmt::format("By the maximum of the row, n = {}", lengths.front())},
       {"note",
        "exp(x - LSE) rounds LSE to its type, so that its error grows with |LSE|; "
        "exp((x - max) - ln sum) does not. The last column takes the bound of the shifted "
        "algorithm for the same row."},
       {"columns",
        {"type", "algorithm", "max x", "error / u", "|sum - 1|", "error / bound",
         "error / bound of shifted"}},
       {"rows", far_rows}},
      {{"title", "Equal logits: the sum of all weights"},
       {"note",
        "Added one after the other in p bits, ones stop to count at 2^p: 256 in bf16, "
        "2048 in f16. Weights 1/256 then sum to n/256. Kernels add in f32."},
       {"columns", {"type", "algorithm", "n", "sum of weights"}},
       {"rows", stagnation_rows}}};

  const std::vector<std::string> compared{
      "unshifted",     "shifted",     "online, tiles of 1", "online, tiles of 64",
      "division-free", "log-shifted", "kernel shifted",     "kernel two-pass"};
  std::vector<double> ns;
  for (const Index n : lengths) ns.push_back(static_cast<double>(n));
  const auto by_length = [](const RowSpec& spec, double n) {
    return static_cast<double>(spec.n) == n && spec.max == 0.0 && spec.spread == 1.0;
  };
  const auto by_spread = [](const RowSpec& spec, double spread) {
    return spec.spread == spread && spec.max == 0.0;
  };
  const auto by_max = [](const RowSpec& spec, double max) {
    return spec.max == max && spec.spread == 1.0;
  };
  const auto plot = [&](const char* title, const char* note, const char* x, const char* y,
                        ordered_json series) {
    record["plots"].push_back({{"title", title},
                               {"note", note},
                               {"x", {{"label", x}, {"scale", "log"}}},
                               {"y", {{"label", y}, {"scale", "log"}}},
                               {"series", std::move(series)}});
  };
  plot("Error by length, f32", "Spread 1, maximum 0.", "n", "max |error| / (u max weight)",
       rows.Series(DType::kF32, compared, ns, by_length, &SoftmaxCell::norm_error));
  plot("|sum - 1| by length, f32", "Spread 1, maximum 0.", "n", "|sum - 1|",
       rows.Series(DType::kF32, compared, ns, by_length, &SoftmaxCell::sum_error));
  plot("Error by spread, f32", "Maximum 0, all lengths.", "max x - min x",
       "max |error| / (u max weight)",
       rows.Series(DType::kF32, compared, {1.0, 10.0, 100.0, 1000.0}, by_spread,
                   &SoftmaxCell::norm_error));
  plot("Error by maximum, f32", "Spread 1, all lengths; unshifted up to where it overflows.",
       "max x", "max |error| / (u max weight)",
       rows.Series(DType::kF32, compared, {10.0, kFarMax, 2000.0}, by_max,
                   &SoftmaxCell::norm_error));
  plot("Error by length, bf16", "Spread 1, maximum 0.", "n", "max |error| / (u max weight)",
       rows.Series(DType::kBF16,
                   {"shifted", "online, tiles of 1", "online, tiles of 64", "online, tiles of 512",
                    "kernel shifted", "f32, stored exponentials added",
                    "f32, exponentials added, then stored"},
                   ns, by_length, &SoftmaxCell::norm_error));
  record["notes"] = {
      "Bounds are e^H - 1 of the exact weight, H the sum of all roundings on its way, each ln(1/(1 "
      "- u)) at most: to first order the [n + 2 + 2 R] u of the source for the shifted algorithm "
      "with an exponential accurate to u. No term of higher order is dropped, so they hold where n "
      "u is not small (bf16), but say little there. Kernels: docs/functions.md.",
      "The sum of weights of the plain shifted and unshifted algorithms is bounded by n roundings "
      "alone, whatever the spread and the exponential: numerators and denominator hold the same "
      "values. That is lost where exponentials are rounded between the two.",
      "\"Untold\" rows are too near the overflow of an unshifted sum to predict, or so low that "
      "exponentials underflow; nothing is judged there. Plain loops round every operation to the "
      "type; the exponential and logarithm are this project's, of docs/functions.md."};
  AddManifest(options, Sha256(std::as_bytes(std::span(inputs))), &record);
  return record;
}

}  // namespace attest
