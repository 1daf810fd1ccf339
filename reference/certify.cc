// SPDX-License-Identifier: Apache-2.0
#include "reference/certify.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "core/fp_environment.h"
#include "reference/gradient_enclosure.h"
#include "reference/rounding.h"
#include "reference/row_enclosure.h"

namespace attest {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr long kTiePrecision = 512;  // ties are looked for from here on
constexpr long kLargestPrecision = 16384;
constexpr long kLargestTranscendental = 4096;  // where a tie may be undecidable anyway

CertifiedValue Exactly(double value) { return {value, value, 0.0, 0.0, true}; }

// What column `column` of v does to the output where it is not finite: NaN, an infinity, or
// nothing (all values that take part are finite).
std::optional<double> NonFiniteColumn(const CaseData& data, const RowId& row, const RowPlan& plan,
                                      Index column) {
  double sum = 0.0;
  bool special = false;
  const auto add = [&](Index key, bool positive_weight) {
    const double value = data.Value(row, key)[static_cast<std::size_t>(column)];
    if (std::isfinite(value)) return;
    special = true;
    sum += positive_weight ? value : kNaN;  // 0 * NaN and 0 * infinity are NaN
  };
  for (const KeyTerm& term : plan.terms) add(term.key, term.keep != 0.0);
  for (const Index key : plan.vanishing) add(key, false);
  if (!special) return std::nullopt;
  return sum;
}

// Everything about one run that does not change from row to row.
class Certifier {
 public:
  Certifier(const Case& problem, CaseData data, const CertifyOptions& options)
      : contract_(problem.contract), data_(std::move(data)), options_(options) {
    for (const std::string& name : contract_.outputs) {
      if (name.starts_with("grad_")) {
        const std::string tensor = name.substr(5);
        for (std::vector<Index>& part : IndependentParts(data_, tensor)) {
          gradients_.push_back({tensor, std::move(part)});
        }
      } else if (name != "out" && name != "lse" && name != "weights") {
        continue;
      }
      CertifiedTensor& tensor = result_.outputs[name];
      tensor.dtype = OutputDType(problem, name);
      tensor.shape = OutputShape(problem, name);
      const auto size = static_cast<std::size_t>(ElementCount(tensor.shape));
      tensor.values.resize(size);
      if (options.digits > 0) tensor.digits.resize(size);
    }
    if (options.conditions) {
      const Dimensions& s = contract_.shape;
      const auto size = static_cast<std::size_t>(s.batch * s.q_heads * s.q_len * s.kv_len);
      result_.conditions.allowed.resize(size);
      result_.conditions.weight.resize(size);
      result_.conditions.log_weight.resize(size);
      result_.conditions.score_condition.resize(size);
    }
  }

  StatusOr<Certified> Run() {
    const Dimensions& s = contract_.shape;
    const Index rows = s.batch * s.q_heads * s.q_len;
    const Index all = rows + static_cast<Index>(gradients_.size());
    std::atomic<Index> next{0};
    std::atomic<bool> cancelled{false};
    const auto work = [&] {
      for (Index step = next++; step < all && !cancelled; step = next++) {
        if (step < rows) {
          DoRow(step);
        } else {
          DoGradient(gradients_[static_cast<std::size_t>(step - rows)]);
        }
        const std::lock_guard lock(mutex_);
        ++done_;
        if (options_.progress && !options_.progress(done_, all)) cancelled = true;
      }
      Ball::FreeThreadCaches();
    };
    std::vector<std::thread> helpers;
    for (int i = 1; i < options_.threads; ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
    if (cancelled) return Internal("cancelled");
    return std::move(result_);
  }

 private:
  // An element that an enclosure decides, and where it goes.
  struct Pending {
    const char* tensor;
    Index element;
    Index position;  // output column, or term of the plan
  };

  // Elements of one gradient that other rows reach than those of its other parts.
  struct GradientPart {
    std::string tensor;
    std::vector<Index> elements;
  };

  CertifiedTensor* Find(const char* name) {
    const auto found = result_.outputs.find(name);
    return found == result_.outputs.end() ? nullptr : &found->second;
  }
  void Set(const char* name, Index element, const CertifiedValue& value) {
    CertifiedTensor* tensor = Find(name);
    if (tensor != nullptr) tensor->values[static_cast<std::size_t>(element)] = value;
  }

  void DoRow(Index flat) {
    const Dimensions& s = contract_.shape;
    const RowId row = RowAt(s, flat);
    const RowPlan plan = data_.Plan(row);
    for (Index j = 0; j < s.kv_len; ++j) Set("weights", flat * s.kv_len + j, Exactly(0.0));
    switch (plan.kind) {
      case RowPlan::Kind::kEmpty:
        EmptyRowValues(flat, row, plan);
        break;
      case RowPlan::Kind::kNotANumber:
        NotANumberRow(flat, plan);
        break;
      case RowPlan::Kind::kAllMinusInfinity:
        if (plan.sink) {
          SinkTakesAll(flat, row, plan);
        } else {
          NotANumberRow(flat, plan);
        }
        break;
      case RowPlan::Kind::kFinite:
        FiniteRow(flat, row, plan);
        break;
    }
    if (options_.conditions) MarkAllowed(flat, plan);
  }

  void SetOutputRow(Index flat, double value) {
    const Index width = contract_.shape.v_dim;
    for (Index c = 0; c < width; ++c) Set("out", flat * width + c, Exactly(value));
  }

  void NotANumberRow(Index flat, const RowPlan& plan) {
    SetOutputRow(flat, kNaN);
    Set("lse", flat, Exactly(kNaN));
    const Index n = contract_.shape.kv_len;
    for (const KeyTerm& term : plan.terms) Set("weights", flat * n + term.key, Exactly(kNaN));
    for (const Index key : plan.vanishing) Set("weights", flat * n + key, Exactly(kNaN));
    for (const Index key : plan.not_a_number) Set("weights", flat * n + key, Exactly(kNaN));
  }

  // All allowed scores are -infinity and a finite sink takes the whole weight.
  void SinkTakesAll(Index flat, const RowId& row, const RowPlan& plan) {
    const Index width = contract_.shape.v_dim;
    for (Index c = 0; c < width; ++c) {
      Set("out", flat * width + c, Exactly(NonFiniteColumn(data_, row, plan, c).value_or(0.0)));
    }
    Set("lse", flat, Exactly(*plan.sink));
  }

  void EmptyRowValues(Index flat, const RowId& row, const RowPlan& plan) {
    if (plan.sink_is_nan || plan.sink) {
      SetOutputRow(flat, plan.sink_is_nan ? kNaN : 0.0);
      Set("lse", flat, Exactly(plan.sink_is_nan ? kNaN : *plan.sink));
      return;
    }
    const bool nan = contract_.empty_row == EmptyRow::kNan;
    SetOutputRow(flat, nan ? kNaN : 0.0);
    Set("lse", flat, Exactly(nan ? kNaN : -kInfinity));
    const Index n = contract_.shape.kv_len;
    if (nan) {
      for (Index j = 0; j < n; ++j) Set("weights", flat * n + j, Exactly(kNaN));
    } else if (contract_.empty_row == EmptyRow::kUniform && n > 0) {
      UniformRow(flat, row);
    }
  }

  // The mean of v over all keys, whatever they hold; weights 1/Tk.
  void UniformRow(Index flat, const RowId& row) {
    const Index n = contract_.shape.kv_len;
    const Index width = contract_.shape.v_dim;
    const auto mean = [&](Index column) {
      Ball sum;
      for (Index j = 0; j < n; ++j) {
        sum.AddProduct(Ball(1.0), data_.Value(row, j)[static_cast<std::size_t>(column)]);
      }
      return sum / Ball(static_cast<long>(n));
    };
    std::vector<Pending> pending;
    for (Index c = 0; c < width; ++c) {
      double special = 0.0;
      for (Index j = 0; j < n; ++j) {
        const double value = data_.Value(row, j)[static_cast<std::size_t>(c)];
        if (!std::isfinite(value)) special += value;
      }
      if (special == 0.0) {
        pending.push_back({"out", flat * width + c, c});
      } else {
        Set("out", flat * width + c, Exactly(special));
      }
    }
    for (Index j = 0; j < n; ++j) pending.push_back({"weights", flat * n + j, -1});
    // A mean is a rational number: at the precision that holds the sum exactly, a midpoint is
    // exact and rounds to even by itself.
    Resolve(
        std::move(pending),
        [&](const Pending& p) {
          return p.position < 0 ? Ball(1.0) / Ball(static_cast<long>(n)) : mean(p.position);
        },
        [](const Pending&, Ball*, const FloatFormat&) { return std::optional<double>(); }, [] {});
  }

  void FiniteRow(Index flat, const RowId& row, const RowPlan& plan) {
    const Index width = contract_.shape.v_dim;
    const Index n = contract_.shape.kv_len;
    std::vector<Pending> pending;
    for (Index c = 0; c < width; ++c) {
      if (const std::optional<double> special = NonFiniteColumn(data_, row, plan, c); special) {
        Set("out", flat * width + c, Exactly(*special));
      } else {
        pending.push_back({"out", flat * width + c, c});
      }
    }
    pending.push_back({"lse", flat, -1});
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      pending.push_back({"weights", flat * n + plan.terms[t].key, static_cast<Index>(t)});
    }
    std::optional<RowEnclosure> enclosure;
    Resolve(
        std::move(pending),
        [&](const Pending& p) {
          if (p.tensor[0] == 'o') return enclosure->Output(p.position);
          return p.position < 0 ? enclosure->LogSumExp()
                                : enclosure->Weight(static_cast<std::size_t>(p.position));
        },
        [&](const Pending& p, Ball* value, const FloatFormat& format) -> std::optional<double> {
          if (p.tensor[0] == 'l') return enclosure->RoundLogSumExpNearMidpoint(format);
          if (p.tensor[0] != 'o') return std::nullopt;
          if (const std::optional<Ball> exact = enclosure->ExactOutput(p.position); exact) {
            *value = *exact;
            return RoundedTo(*exact, format);
          }
          return enclosure->RoundNearMidpoint(p.position, format);
        },
        [&] {
          enclosure.emplace(data_, row, plan);
          // The last precision's are the tightest.
          if (options_.conditions) StoreConditions(flat, row, plan, *enclosure);
        });
  }

  // Raises the working precision until every pending element is decided. `prepare` runs at each new
  // precision, `enclose` gives an element's enclosure; `decide` its rounding where it is, or is
  // next to, a midpoint, with a tighter enclosure if it knows one.
  template <class Enclose, class Decide, class Prepare>
  void Resolve(std::vector<Pending> pending, const Enclose& enclose, const Decide& decide,
               const Prepare& prepare) {
    std::erase_if(pending, [&](const Pending& p) { return Find(p.tensor) == nullptr; });
    long bits = FirstPrecision();
    const long largest =
        std::max(bits, std::min(data_.transcendental() ? kLargestTranscendental : kLargestPrecision,
                                Ball::LargestPrecision()));
    for (;; bits *= 2) {
      Ball::SetPrecision(bits);
      prepare();
      std::vector<Pending> undecided;
      for (const Pending& p : pending) {
        if (!Settle(p, enclose(p), bits, decide)) undecided.push_back(p);
      }
      pending = std::move(undecided);
      if (pending.empty() || 2 * bits > largest) break;
    }
    const std::lock_guard lock(mutex_);
    result_.largest_precision = std::max(result_.largest_precision, static_cast<int>(bits));
    result_.undecided += static_cast<Index>(pending.size());
  }

  template <class Decide>
  bool Settle(const Pending& p, Ball enclosure, long bits, const Decide& decide) {
    CertifiedTensor& tensor = *Find(p.tensor);
    const auto element = static_cast<std::size_t>(p.element);
    const FloatFormat& format = FormatOf(tensor.dtype);
    std::optional<double> rounded = RoundedTo(enclosure, format);
    std::optional<std::string> digits = Digits(enclosure);
    if (bits >= kTiePrecision && !(rounded && digits)) {
      const std::optional<double> decided = decide(p, &enclosure, format);
      if (!rounded) rounded = decided;
      digits = Digits(enclosure);
    }
    const CentreRadius centre = ToCentreRadius(enclosure);
    tensor.values[element] = {rounded.value_or(RoundToDType(centre.hi, tensor.dtype)), centre.hi,
                              centre.lo, centre.radius, rounded.has_value()};
    if (options_.digits > 0) tensor.digits[element] = digits.value_or("");
    return rounded && digits;
  }

  // All elements of the part at once, at doubled precision until they are decided.
  void DoGradient(const GradientPart& part) {
    const std::string name = "grad_" + part.tensor;
    CertifiedTensor& tensor = *Find(name.c_str());
    const FloatFormat& format = FormatOf(tensor.dtype);
    std::vector<Index> pending = part.elements;
    long bits = FirstPrecision();
    for (;; bits *= 2) {
      Ball::SetPrecision(bits);
      const std::vector<GradientElement> enclosures = EncloseGradient(data_, part.tensor, pending);
      std::vector<Index> undecided;
      for (std::size_t e = 0; e < pending.size(); ++e) {
        const Pending p{name.c_str(), pending[e], 0};
        if (enclosures[e].not_a_number) {
          tensor.values[static_cast<std::size_t>(p.element)] = Exactly(kNaN);
          continue;
        }
        const bool settled =
            Settle(p, enclosures[e].value, bits,
                   [&](const Pending&, Ball* value, const FloatFormat&) -> std::optional<double> {
                     const std::optional<Ball> exact = ExactGradient(data_, part.tensor, p.element);
                     if (!exact) return std::nullopt;
                     *value = *exact;
                     return RoundedTo(*exact, format);
                   });
        if (!settled) undecided.push_back(p.element);
      }
      pending = std::move(undecided);
      if (pending.empty() || 2 * bits > std::max(bits, kLargestTranscendental)) break;
    }
    const std::lock_guard lock(mutex_);
    result_.largest_precision = std::max(result_.largest_precision, static_cast<int>(bits));
    result_.undecided += static_cast<Index>(pending.size());
  }

  long FirstPrecision() const {
    return std::max<long>(contract_.dtype == DType::kF64 ? 256 : 128, 64 + 4 * options_.digits);
  }

  // The decimal digits that are asked for; empty text where none are, nothing where not decided.
  std::optional<std::string> Digits(const Ball& enclosure) const {
    if (options_.digits == 0) return "";
    return DecimalDigits(enclosure, options_.digits);
  }

  // The sum of the magnitudes of what a score sums up, before the scale.
  double ScoreMagnitude(std::span<const double> q, std::span<const double> k) const {
    double sum = 0.0;
    if (contract_.score == ScoreKind::kDot) {
      for (std::size_t d = 0; d < q.size(); ++d) sum += std::fabs(q[d] * k[d]);
    } else if (contract_.score == ScoreKind::kGeneral) {
      for (std::size_t b = 0; b < k.size(); ++b) {
        const std::span<const double> w = data_.WColumn(static_cast<Index>(b));
        for (std::size_t a = 0; a < q.size(); ++a) sum += std::fabs(q[a] * w[a] * k[b]);
      }
    } else {
      for (const double factor : data_.va()) sum += std::fabs(factor);
    }
    return sum;
  }

  void StoreConditions(Index flat, const RowId& row, const RowPlan& plan,
                       const RowEnclosure& enclosure) {
    const std::span<const double> q = data_.Query(row);
    const double scale = contract_.scale.rsqrt_dk
                             ? 1.0 / std::sqrt(static_cast<double>(contract_.shape.k_dim))
                             : std::fabs(contract_.scale.value);
    // Covers the roundings of the sum below and of the scale.
    const Dimensions& s = contract_.shape;
    const auto summands = static_cast<double>(q.size()) * static_cast<double>(s.k_dim) +
                          static_cast<double>(data_.additive_width());
    const double inflation = 1.0 + (summands + 4.0) * 0x1p-52;
    for (std::size_t t = 0; t < plan.terms.size(); ++t) {
      const Index key = plan.terms[t].key;
      double sum = ScoreMagnitude(q, data_.Key(row, key));
      if (plan.terms[t].capped) sum = std::fabs(*plan.terms[t].capped) / std::max(scale, 1e-300);
      const auto at = static_cast<std::size_t>(flat * contract_.shape.kv_len + key);
      result_.conditions.weight[at] = enclosure.Weight(t).Midpoint();
      result_.conditions.log_weight[at] = enclosure.LogWeight(t).Midpoint();
      result_.conditions.score_condition[at] = sum * scale * inflation;
    }
  }

  void MarkAllowed(Index flat, const RowPlan& plan) {
    const auto mark = [&](Index key) {
      result_.conditions.allowed[static_cast<std::size_t>(flat * contract_.shape.kv_len + key)] = 1;
    };
    for (const KeyTerm& term : plan.terms) mark(term.key);
    for (const Index key : plan.vanishing) mark(key);
    for (const Index key : plan.not_a_number) mark(key);
  }

  const Contract& contract_;
  const CaseData data_;
  const CertifyOptions& options_;
  std::vector<GradientPart> gradients_;
  Certified result_;
  std::mutex mutex_;
  Index done_ = 0;
};

}  // namespace

StatusOr<Certified> Certify(const Case& problem, const CertifyOptions& options) {
  if (Status s = CheckFloatingPointEnvironment(); !s.ok()) return s;
  StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return data.status();
  return Certifier(problem, *std::move(data), options).Run();
}

std::map<std::string, std::string> ReferenceLibraries() { return Ball::Libraries(); }

}  // namespace attest
