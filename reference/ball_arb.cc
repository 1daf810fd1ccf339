// SPDX-License-Identifier: Apache-2.0
// Balls on Arb.
#include <arb.h>
#include <gmp.h>
#include <mpfr.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "reference/ball.h"

namespace attest {

struct BallAccess {
  static arb_ptr Get(Ball& ball) { return std::launder(reinterpret_cast<arb_ptr>(ball.storage_)); }
  static arb_srcptr Get(const Ball& ball) {
    return std::launder(reinterpret_cast<arb_srcptr>(ball.storage_));
  }
};

namespace {

static_assert(sizeof(arb_struct) == sizeof(Ball) && alignof(arb_struct) <= alignof(Ball));

thread_local long working_precision = 128;

arb_ptr Get(Ball& ball) { return BallAccess::Get(ball); }
arb_srcptr Get(const Ball& ball) { return BallAccess::Get(ball); }

// A double as an Arb number for the duration of a call.
class ArfDouble {
 public:
  explicit ArfDouble(double value) {
    arf_init(value_);
    arf_set_d(value_, value);
  }
  ArfDouble(const ArfDouble&) = delete;
  ArfDouble& operator=(const ArfDouble&) = delete;
  ~ArfDouble() { arf_clear(value_); }
  arf_srcptr get() const { return value_; }

 private:
  arf_t value_;
};

// |value| = mantissa * 2^exponent with an odd mantissa; 0 has mantissa 0.
struct OddDouble {
  std::uint64_t mantissa = 0;
  int exponent = 0;
};
OddDouble Decompose(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto biased = static_cast<int>((bits >> 52) & 0x7ff);
  std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52) - 1);
  if (biased != 0) mantissa |= std::uint64_t{1} << 52;
  if (mantissa == 0) return {};
  const int zeros = std::countr_zero(mantissa);
  return {mantissa >> zeros, std::max(biased, 1) - 1075 + zeros};
}

// A sum of products as an integer of kLimbs 64-bit limbs (two's complement) times a power of two.
class FixedPointSum {
 public:
  static constexpr int kBits = 256;

  explicit FixedPointSum(int lowest) : lowest_(lowest) {}

  // Adds +-a * b, a multiple of 2^lowest.
  void Add(const OddDouble& a, const OddDouble& b, bool negative) {
    const auto product = static_cast<Wide>(a.mantissa) * b.mantissa;
    const auto shift = static_cast<unsigned>(a.exponent + b.exponent - lowest_);
    std::array<std::uint64_t, 3> parts{static_cast<std::uint64_t>(product),
                                       static_cast<std::uint64_t>(product >> 64), 0};
    const unsigned within = shift % 64;
    if (within != 0) {
      parts[2] = parts[1] >> (64 - within);
      parts[1] = (parts[1] << within) | (parts[0] >> (64 - within));
      parts[0] <<= within;
    }
    const unsigned first = shift / 64;
    Wide carry = negative ? 1 : 0;  // -x is the complement of x, plus 1
    for (unsigned i = 0; i < limbs_.size(); ++i) {
      std::uint64_t part = i >= first && i - first < 3 ? parts[i - first] : 0;
      if (negative) part = ~part;
      carry += limbs_[i];
      carry += part;
      limbs_[i] = static_cast<std::uint64_t>(carry);
      carry >>= 64;
    }
  }

  Ball Value() const {
    fmpz_t integer;
    fmpz_init(integer);
    fmpz_set_signed_ui_array(integer, limbs_.data(), static_cast<slong>(limbs_.size()));
    Ball sum;
    arb_set_fmpz(Get(sum), integer);
    arb_mul_2exp_si(Get(sum), Get(sum), lowest_);
    fmpz_clear(integer);
    return sum;
  }

 private:
  using Wide = unsigned __int128;
  int lowest_;
  std::array<ulong, kBits / 64> limbs_{};
};

int BitWidth(std::uint64_t value) { return static_cast<int>(std::bit_width(value)); }

// The sum, where every partial sum has at most `bits` bits for certain and they fit a
// FixedPointSum.
std::optional<Ball> FixedPointDot(std::span<const double> a, std::span<const double> b, long bits) {
  int lowest = std::numeric_limits<int>::max();
  int highest = std::numeric_limits<int>::min();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const OddDouble x = Decompose(a[i]);
    const OddDouble y = Decompose(b[i]);
    if (x.mantissa == 0 || y.mantissa == 0) continue;
    const int low = x.exponent + y.exponent;
    lowest = std::min(lowest, low);
    highest = std::max(highest, low + BitWidth(x.mantissa) + BitWidth(y.mantissa));
  }
  if (lowest > highest) return Ball();
  const int width = highest - lowest + BitWidth(a.size());
  if (width > bits || width + 1 > FixedPointSum::kBits) return std::nullopt;
  FixedPointSum sum(lowest);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const OddDouble x = Decompose(a[i]);
    const OddDouble y = Decompose(b[i]);
    if (x.mantissa == 0 || y.mantissa == 0) continue;
    sum.Add(x, y, std::signbit(a[i]) != std::signbit(b[i]));
  }
  return sum.Value();
}

// The sum in order, as long as every partial sum is exact.
std::optional<Ball> ExactDot(std::span<const double> a, std::span<const double> b) {
  Ball sum;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const ArfDouble x(a[i]);
    const ArfDouble y(b[i]);
    arf_ptr mid = arb_midref(Get(sum));
    if (arf_addmul(mid, x.get(), y.get(), working_precision, ARB_RND) != 0) return std::nullopt;
  }
  return sum;
}

// A vector of exact Arb numbers that frees itself.
class ArbVector {
 public:
  ~ArbVector() { _arb_vec_clear(values_, size_); }
  // At least `size` numbers, whose radii are 0.
  arb_ptr Get(std::size_t size) {
    const auto wanted = static_cast<slong>(size);
    if (wanted > size_) {
      _arb_vec_clear(values_, size_);
      values_ = _arb_vec_init(wanted);
      size_ = wanted;
    }
    return values_;
  }
  void Clear() {
    _arb_vec_clear(values_, size_);
    values_ = _arb_vec_init(0);
    size_ = 0;
  }

 private:
  arb_ptr values_ = _arb_vec_init(0);
  slong size_ = 0;
};

ArbVector& Scratch(int which) {
  thread_local std::array<ArbVector, 2> scratch;
  return scratch[static_cast<std::size_t>(which)];
}

arb_srcptr Load(std::span<const double> values, int which) {
  const arb_ptr loaded = Scratch(which).Get(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) arf_set_d(arb_midref(loaded + i), values[i]);
  return loaded;
}

}  // namespace

void Ball::SetPrecision(long bits) {
  working_precision = std::clamp<long>(bits, 64, LargestPrecision());
}
long Ball::precision() { return working_precision; }
long Ball::LargestPrecision() { return 1L << 30; }

void Ball::FreeThreadCaches() {
  Scratch(0).Clear();
  Scratch(1).Clear();
  flint_cleanup();
}

std::map<std::string, std::string> Ball::Libraries() {
  return {{"Arb", arb_version},
          {"FLINT", FLINT_VERSION},
          {"GMP", gmp_version},
          {"MPFR", mpfr_get_version()}};
}

Ball::Ball() {
  new (storage_) arb_struct;
  arb_init(Get(*this));
}
Ball::Ball(double value) : Ball() { arb_set_d(Get(*this), value); }
Ball::Ball(long value) : Ball() { arb_set_si(Get(*this), value); }

Ball Ball::PowerOfTwo(std::int64_t exponent) { return TimesPowerOfTwo(Ball(1.0), exponent); }

Ball::Ball(const Ball& other) : Ball() { arb_set(Get(*this), Get(other)); }
Ball::Ball(Ball&& other) noexcept : Ball() { arb_swap(Get(*this), Get(other)); }
Ball& Ball::operator=(const Ball& other) {
  arb_set(Get(*this), Get(other));
  return *this;
}
Ball& Ball::operator=(Ball&& other) noexcept {
  arb_swap(Get(*this), Get(other));
  return *this;
}
Ball::~Ball() { arb_clear(Get(*this)); }

bool Ball::IsFinite() const { return arb_is_finite(Get(*this)) != 0; }
bool Ball::IsExact() const { return IsFinite() && arb_is_exact(Get(*this)) != 0; }
bool Ball::IsZero() const { return arb_is_zero(Get(*this)) != 0; }
bool Ball::ContainsZero() const { return arb_contains_zero(Get(*this)) != 0; }

int Ball::Sign() const {
  if (arb_is_positive(Get(*this)) != 0) return 1;
  return arb_is_negative(Get(*this)) != 0 ? -1 : 0;
}

double Ball::Midpoint() const { return arf_get_d(arb_midref(Get(*this)), ARF_RND_NEAR); }

double Ball::MagnitudeBound() const {
  if (!IsFinite()) return std::numeric_limits<double>::infinity();
  arf_t bound;
  arf_init(bound);
  arb_get_abs_ubound_arf(bound, Get(*this), 64);
  const double magnitude = arf_get_d(bound, ARF_RND_UP);
  arf_clear(bound);
  return magnitude;
}

Ball Ball::Lower() const {
  Ball lower;
  arb_get_lbound_arf(arb_midref(Get(lower)), Get(*this), working_precision + 32);
  return lower;
}

Ball Ball::Upper() const {
  Ball upper;
  arb_get_ubound_arf(arb_midref(Get(upper)), Get(*this), working_precision + 32);
  return upper;
}

std::int64_t Ball::Exponent() const {
  assert(IsExact() && !IsZero());
  // Arb's mantissas lie in [1/2, 1).
  const fmpz* exponent = ARF_EXPREF(arb_midref(Get(*this)));
  constexpr slong kLimit = slong{1} << 62;
  if (fmpz_cmp_si(exponent, kLimit) > 0) return kLimit;
  if (fmpz_cmp_si(exponent, -kLimit) < 0) return -kLimit;
  return fmpz_get_si(exponent) - 1;
}

Ball Ball::RoundedToBits(std::int64_t bits) const {
  assert(IsExact() && bits >= 1);
  Ball rounded;
  arf_set_round(arb_midref(Get(rounded)), arb_midref(Get(*this)), bits, ARF_RND_NEAR);
  return rounded;
}

std::string Ball::IntegerDigits() const {
  fmpz_t integer;
  fmpz_init(integer);
  [[maybe_unused]] const int found = arb_get_unique_fmpz(integer, Get(*this));
  assert(found != 0);
  char* text = fmpz_get_str(nullptr, 10, integer);
  std::string digits(text);
  flint_free(text);
  fmpz_clear(integer);
  return digits;
}

Ball Ball::Dot(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  if (std::optional<Ball> sum = FixedPointDot(a, b, working_precision)) return *std::move(sum);
  if (std::optional<Ball> sum = ExactDot(a, b)) return *std::move(sum);
  Ball sum;
  arb_dot(Get(sum), nullptr, 0, Load(a, 0), 1, Load(b, 1), 1, static_cast<slong>(a.size()),
          working_precision);
  return sum;
}

Ball Ball::Dot(std::span<const Ball> a, std::span<const double> b) {
  assert(a.size() == b.size());
  Ball sum;
  if (a.empty()) return sum;
  arb_dot(Get(sum), nullptr, 0, Get(a[0]), 1, Load(b, 0), 1, static_cast<slong>(a.size()),
          working_precision);
  if (sum.IsExact() ||
      !std::all_of(a.begin(), a.end(), [](const Ball& x) { return x.IsExact(); })) {
    return sum;
  }
  Ball exact;
  for (std::size_t i = 0; i < a.size() && exact.IsExact(); ++i) exact.AddProduct(a[i], b[i]);
  return exact.IsExact() ? exact : sum;
}

void Ball::AddProduct(const Ball& factor, double value) {
  const ArfDouble exact(value);
  arb_addmul_arf(Get(*this), Get(factor), exact.get(), working_precision);
}

Ball operator+(const Ball& a, const Ball& b) {
  Ball sum;
  arb_add(Get(sum), Get(a), Get(b), working_precision);
  return sum;
}

Ball& Ball::operator+=(const Ball& b) {
  arb_add(Get(*this), Get(*this), Get(b), working_precision);
  return *this;
}

Ball operator-(const Ball& a, const Ball& b) {
  Ball difference;
  arb_sub(Get(difference), Get(a), Get(b), working_precision);
  return difference;
}

Ball operator-(const Ball& a) {
  Ball negated;
  arb_neg(Get(negated), Get(a));
  return negated;
}

Ball operator*(const Ball& a, const Ball& b) {
  Ball product;
  arb_mul(Get(product), Get(a), Get(b), working_precision);
  return product;
}

Ball operator/(const Ball& a, const Ball& b) {
  Ball quotient;
  arb_div(Get(quotient), Get(a), Get(b), working_precision);
  return quotient;
}

Ball TimesPowerOfTwo(const Ball& a, std::int64_t exponent) {
  Ball product;
  arb_mul_2exp_si(Get(product), Get(a), exponent);
  return product;
}

namespace {

using Function = void (*)(arb_t, const arb_t, slong);

Ball Apply(Function function, const Ball& x) {
  Ball result;
  function(Get(result), Get(x), working_precision);
  return result;
}

}  // namespace

Ball Exp(const Ball& x) { return Apply(arb_exp, x); }
Ball Log(const Ball& x) { return Apply(arb_log, x); }
Ball Sqrt(const Ball& x) { return Apply(arb_sqrt, x); }
Ball Tanh(const Ball& x) { return Apply(arb_tanh, x); }

Ball Exp2(const Ball& x) {
  if (x.IsExact() && arb_is_int(Get(x)) != 0 && std::fabs(x.Midpoint()) < 0x1p62) {
    return Ball::PowerOfTwo(static_cast<std::int64_t>(x.Midpoint()));
  }
  // The product needs as many more bits as x has before the point.
  Ball exponent;
  const slong bits = working_precision + 64;
  arb_const_log2(Get(exponent), bits);
  arb_mul(Get(exponent), Get(exponent), Get(x), bits);
  return Exp(exponent);
}

int CompareMidpoints(const Ball& a, const Ball& b) {
  return arf_cmp(arb_midref(Get(a)), arb_midref(Get(b)));
}

}  // namespace attest
