// SPDX-License-Identifier: Apache-2.0
#include "experiments/softmax_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "optimized/functions.h"

namespace attest {
namespace {

bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// The type in which a method computes.
DType ArithmeticOf(SoftmaxWay way, DType dtype) {
  const bool wide = way == SoftmaxWay::kKernel || way == SoftmaxWay::kStoredSame ||
                    way == SoftmaxWay::kStoredMixed;
  return wide && IsNarrow(dtype) ? DType::kF32 : dtype;
}

double ExpOf(double x, DType dtype) {
  double y;
  ExpEach(Mode::kReproducible, &x, &y, 1);
  return RoundToDType(y, dtype);
}

double LogOf(double x, DType dtype) {
  double y;
  LogEach(Mode::kReproducible, &x, &y, 1);
  return RoundToDType(y, dtype);
}

template <class T>
StatusOr<std::vector<double>> RunKernel(SoftmaxAlgorithm algorithm, DType dtype,
                                        std::span<const double> x) {
  const auto n = static_cast<Index>(x.size());
  Tensor in(dtype, {1, n});
  Tensor out(dtype, {1, n});
  for (Index j = 0; j < n; ++j) in.Set(j, x[static_cast<std::size_t>(j)]);
  const Tensor& from = in;
  const View<const T, 2> rows = from.view<T, 2>();
  if (Status s = RowSoftmax(Reproducible(), algorithm, rows, out.view<T, 2>(), nullptr); !s.ok()) {
    return s;
  }
  return ToDoubles(out);
}

// Plain loops. Operations are done in double and rounded to the type: for +, -, *, / of numbers
// with p bits that is one correct rounding to p bits wherever 53 >= 2 p + 2.
class PlainLoops {
 public:
  PlainLoops(const SoftmaxMethod& method, DType dtype, std::span<const double> x)
      : method_(method), dtype_(dtype), work_(ArithmeticOf(method.way, dtype)), x_(x) {}

  std::vector<double> Run() {
    if (method_.way != SoftmaxWay::kUnshifted) max_ = *std::max_element(x_.begin(), x_.end());
    const double sum = method_.way == SoftmaxWay::kOnline ? OnlineSum() : Sum();
    const double log = LogOf(sum, work_);
    const double lse = Round(max_ + log);
    std::vector<double> weights;
    for (const double x : x_) {
      switch (method_.way) {
        case SoftmaxWay::kDivisionFree:
          weights.push_back(ExpOf(Round(x - lse), work_));
          break;
        case SoftmaxWay::kLogShifted:
          weights.push_back(ExpOf(Round(Round(x - max_) - log), work_));
          break;
        case SoftmaxWay::kStoredSame:
        case SoftmaxWay::kStoredMixed:
          weights.push_back(Round(RoundToDType(Exponential(x), dtype_) / sum));
          break;
        default:
          weights.push_back(Round(Exponential(x) / sum));
      }
    }
    return weights;
  }

 private:
  double Round(double value) const { return RoundToDType(value, work_); }
  double Exponential(double x) const { return ExpOf(Round(x - max_), work_); }

  double Sum() const {
    double sum = 0.0;
    for (const double x : x_) {
      double term = Exponential(x);
      if (method_.way == SoftmaxWay::kStoredSame) term = RoundToDType(term, dtype_);
      sum = Round(sum + term);
    }
    return sum;
  }

  double OnlineSum() const {
    double sum = 0.0;
    double max = -std::numeric_limits<double>::infinity();
    const auto tile = static_cast<std::size_t>(method_.tile);
    for (std::size_t j = 0; j < x_.size(); j += tile) {
      const std::span<const double> part = x_.subspan(j, std::min(tile, x_.size() - j));
      const double raised = std::max(max, *std::max_element(part.begin(), part.end()));
      if (raised > max && j > 0) sum = Round(sum * ExpOf(Round(max - raised), work_));
      max = raised;
      for (const double x : part) sum = Round(sum + ExpOf(Round(x - max), work_));
    }
    return sum;
  }

  const SoftmaxMethod& method_;
  DType dtype_;
  DType work_;
  std::span<const double> x_;
  double max_ = 0.0;
};

// Gaps max - x_j above this give an exponential of 0, also with the rounding of the gap.
double LargestGap(const FloatFormat& format) {
  const int bits = format.precision - format.min_exponent;  // of half the smallest number: 2^-bits
  return 1.0077 * std::log(2.0) * bits + 0.01;
}

// How often a tile raises the maximum of those before it.
double Raises(std::span<const double> x, Index tile) {
  double max = x[0];
  double raises = 0.0;
  const auto step = static_cast<std::size_t>(tile);
  for (std::size_t j = 0; j < x.size(); j += step) {
    const std::span<const double> part = x.subspan(j, std::min(step, x.size() - j));
    const double raised = std::max(max, *std::max_element(part.begin(), part.end()));
    if (raised > max && j > 0) raises += 1.0;
    max = raised;
  }
  return raises;
}

// What the derivations below are made of, for one row and one arithmetic.
struct Terms {
  double n = 0.0;
  double u = 0.0;      // unit roundoff
  double rounded = 0;  // |ln(1 + d)| for |d| <= u, at most
  double exp = 0;      // the same for an exponential or a logarithm
  double tiny = 0.0;   // smallest subnormal number
  double max = 0.0;
  double spread = 0.0;  // R: largest gap that matters
};

// Exponents H with computed = exact e^(+-H), for the sum and for a weight whose gap is `gap`. An
// absolute error of at most `tiny` an exponential, relative to a sum of at least 1 (unshifted: of
// e^LSE), counts twice, which makes up for products of errors.
double SumExponent(const SoftmaxMethod& method, DType dtype, const Terms& t, double scale,
                   std::span<const double> x) {
  const double absolute = 2.0 * t.n * t.tiny * scale;
  if (method.way == SoftmaxWay::kKernel) {  // docs/functions.md, "Softmax"
    const double argument = method.algorithm == SoftmaxAlgorithm::kUnshifted ? 0.0
                            : t.u < 0x1p-50                                  ? t.spread
                                                                             : 2.5 * t.spread;
    const double blocks = std::ceil(t.n / 64.0);
    const bool online = method.algorithm == SoftmaxAlgorithm::kOnline;
    return (argument + 2.0 + blocks + 6.0 + (online ? argument + 3.0 * blocks : 0.0)) * t.u +
           absolute;
  }
  const double argument = method.way == SoftmaxWay::kUnshifted ? 0.0 : t.u * t.spread;
  double exponent = argument + t.exp + (t.n - 1.0) * t.rounded + absolute;
  if (method.way == SoftmaxWay::kOnline) {
    // The arguments of the rescalings and of the term add up to its gap.
    const double raises = Raises(x, method.tile);
    exponent += raises * (t.exp + t.rounded + 2.0 * (t.n + 1.0) * t.tiny);
  }
  if (method.way == SoftmaxWay::kStoredSame) {
    const FloatFormat& stored = FormatOf(dtype);
    exponent += -std::log1p(-stored.unit_roundoff()) + 2.0 * t.n * stored.smallest_subnormal();
  }
  return exponent;
}

double WeightExponent(const SoftmaxMethod& method, DType dtype, const Terms& t, double sum,
                      double gap, double x, double lse) {
  const double stored = -std::log1p(-FormatOf(dtype).unit_roundoff());
  // ln sum as computed: its error and an upper bound of it.
  const double log_sum = std::max(0.0, lse - t.max);
  const double log_relative = t.exp;  // of the logarithm function
  const double log_error = sum + std::expm1(log_relative) * (log_sum + sum);
  switch (method.way) {
    case SoftmaxWay::kKernel: {
      const double argument = method.algorithm == SoftmaxAlgorithm::kUnshifted ? 0.0
                              : t.u < 0x1p-50                                  ? t.spread
                                                                               : 2.5 * t.spread;
      return (sum + (argument + 4.0) * t.u) * (1.0 + 1e-6) + (IsNarrow(dtype) ? stored : 0.0);
    }
    case SoftmaxWay::kUnshifted:
      return sum + t.exp + t.rounded;
    case SoftmaxWay::kDivisionFree: {
      const double lse_error = log_error + t.u * (std::fabs(lse) + log_error);
      return lse_error + t.u * (std::fabs(x - lse) + lse_error) + t.exp;
    }
    case SoftmaxWay::kLogShifted: {
      const double whole = t.max - x;
      return t.u * whole + log_error + t.u * (whole * (1.0 + t.u) + log_sum + log_error) + t.exp;
    }
    case SoftmaxWay::kStoredSame:
    case SoftmaxWay::kStoredMixed:
      return sum + t.u * gap + t.exp + stored + t.rounded;
    default:
      return sum + t.u * gap + t.exp + t.rounded;
  }
}

}  // namespace

std::vector<SoftmaxMethod> SoftmaxMethods(DType dtype) {
  using enum SoftmaxWay;
  std::vector<SoftmaxMethod> methods{
      {"kernel unshifted", kKernel, SoftmaxAlgorithm::kUnshifted},
      {"kernel shifted", kKernel, SoftmaxAlgorithm::kShifted},
      {"kernel online, tiles of 64", kKernel, SoftmaxAlgorithm::kOnline},
      {"kernel two-pass", kKernel, SoftmaxAlgorithm::kTwoPass},
      {"unshifted", kUnshifted},
      {"shifted", kShifted},
  };
  for (const Index tile : {1, 8, 64, 512}) {
    methods.push_back(
        {.name = fmt::format("online, tiles of {}", tile), .way = kOnline, .tile = tile});
  }
  methods.push_back({"division-free", kDivisionFree});
  methods.push_back({"log-shifted", kLogShifted});
  if (IsNarrow(dtype)) {
    methods.push_back({"f32, stored exponentials added", kStoredSame});
    methods.push_back({"f32, exponentials added, then stored", kStoredMixed});
  }
  return methods;
}

StatusOr<std::vector<double>> ComputeSoftmax(const SoftmaxMethod& method, DType dtype,
                                             std::span<const double> x) {
  if (x.empty()) return std::vector<double>();
  if (method.way != SoftmaxWay::kKernel) return PlainLoops(method, dtype, x).Run();
  switch (dtype) {
    case DType::kF64:
      return RunKernel<double>(method.algorithm, dtype, x);
    case DType::kF32:
      return RunKernel<float>(method.algorithm, dtype, x);
    case DType::kBF16:
      return RunKernel<BFloat16>(method.algorithm, dtype, x);
    case DType::kF16:
      return RunKernel<Float16>(method.algorithm, dtype, x);
    default:
      return InvalidArgument("softmax: no floating-point type");
  }
}

SoftmaxBound BoundSoftmax(const SoftmaxMethod& method, DType dtype, std::span<const double> x,
                          std::span<const double> exact, double lse) {
  const DType work = ArithmeticOf(method.way, dtype);
  const FloatFormat& format = FormatOf(work);
  const double cut = LargestGap(format);
  Terms t;
  t.n = static_cast<double>(x.size());
  t.u = format.unit_roundoff();
  t.rounded = -std::log1p(-t.u);
  // Double: at most 1 ULP, two units; others: the double one (2^-52 relative) rounded once.
  t.exp = work == DType::kF64 ? 2.0 * t.rounded : t.rounded + 0x1p-51;
  t.tiny = format.smallest_subnormal();
  t.max = x.empty() ? 0.0 : *std::max_element(x.begin(), x.end());
  for (const double value : x) {
    if (t.max - value <= cut) t.spread = std::max(t.spread, t.max - value);
  }

  SoftmaxBound bound;
  const bool unshifted =
      method.way == SoftmaxWay::kUnshifted ||
      (method.way == SoftmaxWay::kKernel && method.algorithm == SoftmaxAlgorithm::kUnshifted);
  double scale = 1.0;  // 1 / the least sum
  if (unshifted) {
    scale = std::exp(-lse);
    if (!(2.0 * t.n * t.tiny * scale <= 0.5)) {
      bound.domain = SoftmaxBound::Domain::kUnderflows;
      return bound;
    }
  }
  const double sum = SumExponent(method, dtype, t, scale, x);
  if (unshifted) {
    const double limit = std::log(format.largest_finite());
    if (lse > limit - sum - 1e-9) {
      bound.domain =
          lse > limit + sum + 1e-9 ? SoftmaxBound::Domain::kOverflows : SoftmaxBound::Domain::kNear;
      return bound;
    }
  }
  const bool stores =
      method.way == SoftmaxWay::kStoredSame || method.way == SoftmaxWay::kStoredMixed;
  const bool narrowed = method.way == SoftmaxWay::kKernel && IsNarrow(dtype);
  // Underflow of the exponential, of the quotient, of what is stored.
  const double absolute =
      t.tiny * (scale + 1.0) + (stores || narrowed ? FormatOf(dtype).smallest_subnormal() : 0.0);
  for (std::size_t j = 0; j < x.size(); ++j) {
    const double gap = std::min(t.max - x[j], cut);
    const double exponent = WeightExponent(method, dtype, t, sum, gap, x[j], lse);
    bound.weight.push_back(exact[j] * (1.0 + 0x1p-48) * std::expm1(exponent) + absolute);
  }
  // Where numerators and denominator hold the same exponentials their errors cancel.
  const bool cancels = method.way == SoftmaxWay::kUnshifted || method.way == SoftmaxWay::kShifted ||
                       method.way == SoftmaxWay::kStoredSame;
  if (cancels) {
    bound.sum = std::expm1(t.n * t.rounded) + t.n * t.tiny;
  } else {
    for (const double error : bound.weight) bound.sum += error;
  }
  return bound;
}

}  // namespace attest
