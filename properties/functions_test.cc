// SPDX-License-Identifier: Apache-2.0
// The elementary functions stay within their documented ULP on every SIMD target and in every mode,
// and Reproducible gives the same bits on every target.
//
// ULP = |got - exact| / ulp(exact). The exact value is that of the C library in the next wider
// type: within 1e-8 ULP for floats (double), within 0.002 ULP for doubles (long double); the worst
// argument of every function of doubles is measured again with MPFR.
#include "optimized/functions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/digest.h"
#include "core/dtype.h"
#include "core/random.h"
#include "optimized/targets.h"
#ifdef ATTEST_WITH_MPFR
#include <mpfr.h>
#endif

namespace attest {
namespace {

constexpr Mode kModes[] = {Mode::kFast, Mode::kReproducible, Mode::kAccurate};

template <class T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;
template <class T>
using BitsOf = std::conditional_t<std::is_same_v<T, float>, std::uint32_t, std::uint64_t>;

template <class T>
const FloatFormat& FormatOfType() {
  return FormatOf(DTypeOf<T>::value);
}

// One function of one type, with the error that its header states.
template <class T>
struct Function {
  std::string_view name;
  void (*each)(Mode, const T*, T*, std::size_t);
  Wider<T> (*exact)(Wider<T>);
  double fast_ulp;
  double accurate_ulp;
  T lowest;  // arguments that are not special for it
  T highest;

  double ulp(Mode mode) const { return mode == Mode::kAccurate ? accurate_ulp : fast_ulp; }
};

template <class T>
constexpr T kInf = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kQuietNan = std::numeric_limits<T>::quiet_NaN();

const std::vector<Function<float>>& FloatFunctions() {
  static const std::vector<Function<float>> functions = {
      {"exp", ExpEach, std::exp, 0.86, 0.78, -104.5f, 89.5f},
      {"exp2", Exp2Each, std::exp2, 0.86, 0.78, -151.0f, 128.5f},
      {"log", LogEach, std::log, 1.0, 1.0, 0.0f, kInf<float>},
      {"tanh", TanhEach, std::tanh, 1.6, 1.6, -10.0f, 10.0f},
      {"softmax_exp2", SoftmaxExp2Each, std::exp2, 0.88, 0.88, -151.0f, 127.5f},
  };
  return functions;
}

const std::vector<Function<double>>& DoubleFunctions() {
  static const std::vector<Function<double>> functions = {
      {"exp", ExpEach, std::exp, 0.86, 0.72, -746.0, 710.0},
      {"exp2", Exp2Each, std::exp2, 0.86, 0.72, -1076.0, 1024.5},
      {"log", LogEach, std::log, 1.0, 1.0, 0.0, kInf<double>},
      {"tanh", TanhEach, std::tanh, 1.6, 1.6, -20.0, 20.0},
  };
  return functions;
}

// The exact value and the unit that an error is counted in. Overflow counts as the power of two
// above the finite numbers: an infinity is correct from there on, and a rounding error just below.
template <class T>
struct Exact {
  Wider<T> value;
  Wider<T> inverse_ulp;
};

template <class T>
Wider<T> Overflow() {
  return std::ldexp(Wider<T>{1}, FormatOfType<T>().max_exponent + 1);
}

// floor(log2 |value|), by its bits where that is quick.
inline int ExponentOf(double value) {
  return static_cast<int>(std::bit_cast<std::uint64_t>(value) >> 52 & 0x7ff) - 1023;
}
inline int ExponentOf(long double value) {
  return value == 0 ? -(1 << 20) : std::isfinite(value) ? std::ilogb(value) : 1 << 20;
}
inline double PowerOfTwo(double, int n) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + n) << 52);
}
inline long double PowerOfTwo(long double, int n) { return std::ldexp(1.0L, n); }

template <class T>
Exact<T> ExactOf(const Function<T>& function, T x) {
  Wider<T> value = function.exact(static_cast<Wider<T>>(x));
  if (value >= Overflow<T>() && x != kInf<T>) value = Overflow<T>();
  const FloatFormat& format = FormatOfType<T>();
  const int exponent =
      std::min(std::max(ExponentOf(value), format.min_exponent), format.max_exponent);
  return {value, PowerOfTwo(value, format.precision - 1 - exponent)};
}

// |got - exact| / ulp(exact); NaN when one of got and exact is NaN, infinity when one is infinite.
template <class T>
double UlpError(const Exact<T>& exact, T got) {
  const auto value = static_cast<Wider<T>>(got);
  if (value == exact.value) return 0.0;
  if (std::isnan(exact.value) && std::isnan(value)) return 0.0;
  const Wider<T> finite = value == kInf<T> && exact.value < kInf<Wider<T>> ? Overflow<T>() : value;
  return static_cast<double>(std::fabs(finite - exact.value) * exact.inverse_ulp);
}

// Largest error over a set of arguments, and the argument that attains it. A NaN stays.
template <class T>
struct Worst {
  double ulp = 0.0;
  T x{};

  void Add(T argument, double error) {
    if (!std::isnan(ulp) && !(error <= ulp)) *this = {error, argument};
  }
};

// Whether the mode answers for x: the function of softmax ends at 127.5 and may flush.
template <class T>
bool Answers(const Function<T>& function, Mode mode, T x) {
  if (function.name != "softmax_exp2") return true;
  return !(x > function.highest) && !(mode == Mode::kFast && x <= T{-126.5});
}

template <class T>
void MeasureArguments(const Function<T>& function, const std::vector<T>& x, bool all_targets,
                      std::map<std::string, Worst<T>>& worst) {
  std::vector<Exact<T>> exact(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) exact[i] = ExactOf(function, x[i]);
  std::vector<T> y(x.size());
  std::vector<BitsOf<T>> first;
  for (const std::string_view target : RunnableTargets()) {
    const bool fused = target.starts_with("AVX");
    if (!all_targets && !fused && target != "SSE4") continue;
    const auto scope = ScopedTarget::Force(target);
    for (const Mode mode : kModes) {
      if (!all_targets && !fused && mode == Mode::kReproducible) continue;
      function.each(mode, x.data(), y.data(), x.size());
      auto& row = worst[std::string(NameOf(mode)) + " " + std::string(target)];
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (Answers(function, mode, x[i])) row.Add(x[i], UlpError(exact[i], y[i]));
      }
      if (mode != Mode::kReproducible) continue;
      std::vector<BitsOf<T>> bits(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        bits[i] = std::isnan(y[i]) || !Answers(function, mode, x[i])
                      ? BitsOf<T>{0}
                      : std::bit_cast<BitsOf<T>>(y[i]);
      }
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << function.name << ": bits of " << target;
    }
  }
}

#ifdef ATTEST_WITH_MPFR
double UlpByMpfr(std::string_view name, double x, double got) {
  mpfr_t value;
  mpfr_init2(value, 200);
  mpfr_set_d(value, x, MPFR_RNDN);
  if (name == "exp") mpfr_exp(value, value, MPFR_RNDN);
  if (name == "exp2") mpfr_exp2(value, value, MPFR_RNDN);
  if (name == "log") mpfr_log(value, value, MPFR_RNDN);
  if (name == "tanh") mpfr_tanh(value, value, MPFR_RNDN);
  const double ulp = Ulp(mpfr_get_d(value, MPFR_RNDZ), kFormatF64);
  mpfr_sub_d(value, value, got, MPFR_RNDN);
  mpfr_div_d(value, value, ulp, MPFR_RNDN);
  const double error = std::fabs(mpfr_get_d(value, MPFR_RNDN));
  mpfr_clear(value);
  return error;
}
#endif

template <class T>
void ExpectWithinStatedUlp(const Function<T>& function, std::map<std::string, Worst<T>>& worst,
                           bool print) {
  for (auto& [name, row] : worst) {
    const Mode mode = name.starts_with("accurate") ? Mode::kAccurate : Mode::kFast;
    double measured = row.ulp;
#ifdef ATTEST_WITH_MPFR
    if constexpr (std::is_same_v<T, double>) {
      if (std::isfinite(row.ulp)) {
        const std::size_t space = name.find(' ');
        const auto scope = ScopedTarget::Force(name.substr(space + 1));
        for (const Mode candidate : kModes) {
          if (name.substr(0, space) != NameOf(candidate)) continue;
          double y = 0.0;
          function.each(candidate, &row.x, &y, 1);
          const double arbitrated = UlpByMpfr(function.name, row.x, y);
          EXPECT_NEAR(arbitrated, measured, 0.002) << "the C library's long double";
          measured = arbitrated;
        }
      }
    }
#endif
    EXPECT_TRUE(measured <= function.ulp(mode)) << function.name << " " << name << ": " << measured
                                                << " ULP at " << static_cast<double>(row.x);
    EXPECT_GT(measured, 0.5) << "a correctly rounded result would be a different function";
    if (print) {
      std::printf("%-12s %s %-20s at most %.6f ULP, at x = %a\n",
                  std::string(function.name).c_str(), std::is_same_v<T, float> ? "f32" : "f64",
                  name.c_str(), measured, static_cast<double>(row.x));
    }
  }
  if (print) std::fflush(stdout);
}

// Every binade with the mantissas that reductions stumble over, and random numbers where the
// function is neither constant nor overflows.
template <class T>
std::vector<T> StructuredArguments(const Function<T>& function, std::size_t random) {
  std::vector<T> x;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  const BitsOf<T> full = (BitsOf<T>{1} << kMantissa) - 1;
  const RandomStream stream(3, "functions", "arguments");
  std::uint64_t drawn = 0;
  const auto next = [&] { return stream.Below(drawn++, std::uint64_t{1} << 62); };
  const BitsOf<T> exponents = BitsOf<T>{1} << (std::numeric_limits<BitsOf<T>>::digits - kMantissa);
  for (BitsOf<T> high = 0; high < exponents; ++high) {
    const BitsOf<T> base = high << kMantissa;
    for (const BitsOf<T> mantissa :
         {BitsOf<T>{0}, BitsOf<T>{1}, full / 2, full / 2 + 1, full - 1, full,
          static_cast<BitsOf<T>>(next() & full), static_cast<BitsOf<T>>(next() & full)}) {
      x.push_back(std::bit_cast<T>(base | mantissa));
    }
  }
  const T low = std::max(function.lowest, T{-1e6}), high = std::min(function.highest, T{1e6});
  for (std::size_t i = 0; i < random; ++i) {
    const auto unit = static_cast<T>(static_cast<double>(next()) * 0x1p-62);
    switch (i % 4) {
      case 0:
        x.push_back(low + unit * (high - low));
        break;
      case 1:  // near 0 (exp, tanh) and near 1 (log)
        x.push_back((function.name == "log" ? T{1} : T{0}) +
                    (unit - T{0.5}) * std::ldexp(T{1}, -static_cast<int>(next() % 40)));
        break;
      case 2:  // ends of the reduced interval: odd multiples of ln 2 / 2, of 1/32, of sqrt(1/2)
        if (function.name == "log") {
          x.push_back(std::ldexp(static_cast<T>(0.70710678118654752L) *
                                     (T{1} + (unit - T{0.5}) * static_cast<T>(1e-3)),
                                 static_cast<int>(next() % 200) - 100));
        } else {
          const T step =
              function.name.ends_with("exp2") ? T{0.03125} : static_cast<T>(0.34657359027997264);
          x.push_back(std::round(low / step + unit * (high - low) / step) * step *
                      (T{1} + (unit - T{0.5}) * std::numeric_limits<T>::epsilon() * 16));
        }
        break;
      default:
        x.push_back((unit - T{0.5}) * T{4} + (function.name == "log" ? T{2} : T{0}));
    }
  }
  return x;
}

template <class T>
void CheckSample(const Function<T>& function, std::size_t random) {
  std::map<std::string, Worst<T>> worst;
  MeasureArguments(function, StructuredArguments(function, random), true, worst);
  ExpectWithinStatedUlp(function, worst, std::getenv("ATTEST_PRINT") != nullptr);
}

TEST(FloatFunctions, StayWithinTheirUlpOnASample) {
  for (const Function<float>& function : FloatFunctions()) CheckSample(function, 30000);
}

// A million arguments and more each.
TEST(DoubleFunctions, ExpStaysWithinItsUlp) { CheckSample(DoubleFunctions()[0], 1000000); }
TEST(DoubleFunctions, Exp2StaysWithinItsUlp) { CheckSample(DoubleFunctions()[1], 1000000); }
TEST(DoubleFunctions, LogStaysWithinItsUlp) { CheckSample(DoubleFunctions()[2], 1000000); }
TEST(DoubleFunctions, TanhStaysWithinItsUlp) { CheckSample(DoubleFunctions()[3], 1000000); }

template <class T>
void ExpectValues(const Function<T>& function, const std::vector<T>& x,
                  const std::vector<T>& expected) {
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const Mode mode : kModes) {
      std::vector<T> y(x.size());
      function.each(mode, x.data(), y.data(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (!Answers(function, mode, x[i])) continue;
        const bool same =
            std::isnan(expected[i])
                ? std::isnan(y[i])
                : y[i] == expected[i] && std::signbit(y[i]) == std::signbit(expected[i]);
        EXPECT_TRUE(same) << function.name << ", " << target << ", " << NameOf(mode)
                          << ": x = " << x[i] << " gives " << y[i] << " instead of " << expected[i];
      }
    }
  }
}

// Where exhaustion found the largest errors; samples missed them.
TEST(FloatFunctions, StayWithinTheirUlpAtTheWorstArguments) {
  const std::vector<float> worst_arguments[] = {
      {-0x1.79050cp+2f, 0x1.e00788p+5f, -0x1.5ed25p+6f, -0x1.5ebab8p+6f},
      {-0x1.fc993ap-2f, 0x1.22516ep-1f, -0x1.f9cf08p+6f, -0x1.fa3facp+6f},
      {0x1.69cf3ep+0f},
      {0x1.ff7a42p-5f},
      {-0x1.f9fc6ap+6f, 0x1.fe3a54p-2f, -0x1.f98784p+6f, -0x1.fa41d6p+6f}};
  for (std::size_t f = 0; f < FloatFunctions().size(); ++f) {
    std::map<std::string, Worst<float>> worst;
    MeasureArguments(FloatFunctions()[f], worst_arguments[f], true, worst);
    ExpectWithinStatedUlp(FloatFunctions()[f], worst, false);
  }
}

template <class T>
void ExpectSpecialValues(const std::vector<Function<T>>& functions) {
  using Limits = std::numeric_limits<T>;
  constexpr T kTiny = Limits::denorm_min();
  const T nan = kQuietNan<T>, inf = kInf<T>, max = Limits::max(), one = 1, zero = 0;
  // A NaN with a payload, whose bits an exponent is easily added to.
  const T payload =
      std::bit_cast<T>(static_cast<BitsOf<T>>(std::bit_cast<BitsOf<T>>(nan) | BitsOf<T>{0x155}));
  ExpectValues(functions[0], {zero, -zero, -inf, inf, max, -max, nan, -nan, payload, kTiny, -kTiny},
               {one, one, zero, inf, inf, zero, nan, nan, nan, one, one});
  std::vector<T> x = {zero, -zero, -inf, inf, max, -max, nan, -nan, payload};
  std::vector<T> y = {one, one, zero, inf, inf, zero, nan, nan, nan};
  const FloatFormat& format = FormatOfType<T>();
  for (int n = format.min_exponent - format.precision; n <= format.max_exponent + 1; ++n) {
    x.push_back(static_cast<T>(n));
    y.push_back(std::ldexp(T{1}, n));
  }
  ExpectValues(functions[1], x, y);
  ExpectValues(functions[2], {zero, -zero, -inf, inf, -one, -kTiny, -max, one, nan, -nan, payload},
               {-inf, -inf, nan, inf, nan, nan, nan, zero, nan, nan, nan});
  ExpectValues(functions[3],
               {zero, -zero, inf, -inf, kTiny, -kTiny, max, -max, T{30}, T{-30}, nan, payload},
               {zero, -zero, one, -one, kTiny, -kTiny, one, -one, one, -one, nan, nan});
  if (functions.size() > 4) ExpectValues(functions[4], x, y);
}

TEST(FloatFunctions, ReturnExactSpecialValues) { ExpectSpecialValues(FloatFunctions()); }
TEST(DoubleFunctions, ReturnExactSpecialValues) { ExpectSpecialValues(DoubleFunctions()); }

TEST(FloatFunctions, ExpUnderflowsGradually) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  // e^-100 = 26.55 * 2^-149
  ExpectValues(FloatFunctions()[0], {-100.0f, -103.2f, -103.9f, -104.1f},
               {27 * kTiny, kTiny, kTiny, 0.0f});
}

// Every length up to beyond several vectors, misaligned, between guards, and in place.
template <class T>
void ExpectEveryLengthAlike(const Function<T>& function) {
  constexpr T kGuard = T{-1234.5};
  std::vector<T> x(260), all(260);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<T>(0.37) * static_cast<T>(i % 71) * (function.name == "log" ? T{1} : T{-1});
  }
  for (const Mode mode : kModes) {
    function.each(mode, x.data(), all.data(), all.size());
    for (std::size_t n = 0; n <= 257; ++n) {
      const std::size_t start = n % 3;
      std::vector<T> y(n + 2, kGuard);
      function.each(mode, x.data() + start, y.data() + 1, n);
      EXPECT_EQ(y.front(), kGuard);
      EXPECT_EQ(y.back(), kGuard) << "written beyond the end, n = " << n;
      std::vector<T> in_place(x.begin() + static_cast<std::ptrdiff_t>(start),
                              x.begin() + static_cast<std::ptrdiff_t>(start + n));
      function.each(mode, in_place.data(), in_place.data(), n);
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(y[i + 1], all[start + i]) << function.name << " " << n << ", " << i;
        ASSERT_EQ(in_place[i], all[start + i]) << function.name << " " << n << ", " << i;
      }
    }
  }
}

TEST(FloatFunctions, TreatEveryLengthAndPlaceAlike) {
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const Function<float>& function : FloatFunctions()) ExpectEveryLengthAlike(function);
    for (const Function<double>& function : DoubleFunctions()) ExpectEveryLengthAlike(function);
  }
}

// Digests of Reproducible results: bits that no target, compiler or library may change.
template <class T>
std::string DigestOf(const Function<T>& function) {
  std::vector<T> x = StructuredArguments(function, 20000);
  std::erase_if(x, [&](T value) {
    return std::isnan(value) || !Answers(function, Mode::kReproducible, value) ||
           (function.name == "log" && value < T{0});
  });
  std::vector<T> y(x.size());
  function.each(Mode::kReproducible, x.data(), y.data(), y.size());
  return Sha256(std::as_bytes(std::span(y)));
}

template <class T>
void ExpectDigests(const std::vector<Function<T>>& functions,
                   const std::map<std::string_view, std::string_view>& golden) {
  for (const std::string_view target : RunnableTargets()) {
    const auto scope = ScopedTarget::Force(target);
    for (const Function<T>& function : functions) {
      EXPECT_EQ(DigestOf(function), golden.at(function.name)) << function.name << ", " << target;
    }
  }
}

TEST(FloatFunctions, ReproducibleBitsAreGolden) {
  ExpectDigests(
      FloatFunctions(),
      {{"exp", "001312b955622190f07970aad45b27ecfbe17c08ee8b0e7992199f5892dccb2e"},
       {"exp2", "20f8fbfc6c19178fbfa7437a1150f87c67cc3f0f6e207482fcef5788fba814ba"},
       {"log", "87f50e399b004899ffc307e39df8d6e1452b4a16b956c6a8c9fb5dbee17e3b14"},
       {"tanh", "105ef3a899145ad8c69364f0002e0158bdbabddb4cfebdbb8f07670536839b2f"},
       {"softmax_exp2", "60dedd3100b41c0d95cd590b84c6589d2f5916ba2ed46c8c6a0d896665210f5f"}});
}

TEST(DoubleFunctions, ReproducibleBitsAreGolden) {
  ExpectDigests(DoubleFunctions(),
                {{"exp", "7c8a8fdecca64e9c5e69ea845235c678cef77a199465d4bc4de5aaeb234c6e30"},
                 {"exp2", "55d111b5f0e1edd6f831d3639e5cb0bb94557843b4bac3b90d2be7154dab2e5a"},
                 {"log", "0b976d28a170dad324691f48361c3dd63307e812cd08512f3ff326ddf3623781"},
                 {"tanh", "47b9793b2c3d6ecf4ff83bb51b6498889ca72843dd1d7dbd772886036667387b"}});
}

// All 2^32 floats in every mode on AVX3, AVX2 and SSE4; prints the figures of the headers. SSSE3
// and the baseline do the operations of SSE4, Reproducible everywhere those of AVX2, some of them
// twenty times slower; the tests above run them on samples.
TEST(Exhaustive, EveryFloat) {
  if (std::getenv("ATTEST_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set ATTEST_EXHAUSTIVE=1";
  constexpr std::uint32_t kChunk = 1u << 16;
  const char* only = std::getenv("ATTEST_EXHAUSTIVE_FUNCTION");
  for (const Function<float>& function : FloatFunctions()) {
    if (only != nullptr && function.name != only) continue;
    std::map<std::string, Worst<float>> worst;
    std::vector<float> x(kChunk);
    for (std::uint64_t start = 0; start < std::uint64_t{1} << 32; start += kChunk) {
      for (std::uint32_t i = 0; i < kChunk; ++i) {
        x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(start) + i);
      }
      MeasureArguments(function, x, false, worst);
    }
    ExpectWithinStatedUlp(function, worst, true);
  }
}

}  // namespace
}  // namespace attest
