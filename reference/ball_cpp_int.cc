// SPDX-License-Identifier: Apache-2.0
// Balls on integers alone: midpoints are mantissa * 2^exponent over Boost.Multiprecision's cpp_int.
//
// Only integer +, -, *, / with remainder, square root with remainder and shifts are trusted;
// whether a result is exact is seen from what they leave over. Elementary functions are series in
// the balls themselves, with explicit remainders.
#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <boost/version.hpp>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "reference/ball.h"

namespace attest {
namespace {

using Integer = boost::multiprecision::number<boost::multiprecision::cpp_int_backend<>,
                                              boost::multiprecision::et_off>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
thread_local long working_precision = 128;

// A bound m * 2^e, m 0 or infinite or in [1/2, 1]: every operation rounds up.
struct Bound {
  double m = 0.0;
  std::int64_t e = 0;

  // At least m * 2^e, also where `m` is the rounded result of one operation.
  static Bound Above(double m, std::int64_t e) {
    if (m == 0.0) return {};
    if (!(m < kInfinity)) return {kInfinity, 0};
    int shift = 0;
    m = std::frexp(m, &shift) * (1.0 + 0x1p-50);
    return {m, e + shift};
  }
  static Bound PowerOfTwo(std::int64_t exponent) { return {0.5, exponent + 1}; }

  bool IsZero() const { return m == 0.0; }
  bool IsFinite() const { return m < kInfinity; }
};

Bound operator+(const Bound& a, const Bound& b) {
  if (a.IsZero()) return b;
  if (b.IsZero()) return a;
  if (!a.IsFinite() || !b.IsFinite()) return {kInfinity, 0};
  if (a.e < b.e) return b + a;
  // What is shifted out of the double is less than what Above adds.
  const auto shift = static_cast<int>(std::min<std::int64_t>(a.e - b.e, 200));
  return Bound::Above(a.m + std::ldexp(b.m, -shift), a.e);
}

Bound operator*(const Bound& a, const Bound& b) {
  if (a.IsZero() || b.IsZero()) return {};
  return Bound::Above(a.m * b.m, a.e + b.e);
}

// The number mantissa * 2^exponent.
struct Number {
  Integer mantissa = 0;
  std::int64_t exponent = 0;

  int sign() const { return mantissa.sign(); }
  std::int64_t length() const {  // bits of the mantissa; 0 for 0
    return sign() == 0 ? 0 : static_cast<std::int64_t>(msb(abs(mantissa))) + 1;
  }
  std::int64_t top() const { return exponent + length() - 1; }  // floor(log2 |x|)
};

Integer ShiftLeft(const Integer& x, std::int64_t bits) {
  return x << static_cast<std::size_t>(bits);
}
Integer ShiftRight(const Integer& x, std::int64_t bits) {
  return x >> static_cast<std::size_t>(bits);
}

void DropTrailingZeros(Number* x) {
  if (x->sign() == 0) {
    x->exponent = 0;
    return;
  }
  const auto zeros = static_cast<std::int64_t>(lsb(abs(x->mantissa)));
  if (zeros == 0) return;
  // Of magnitudes: a shift of negative numbers rounds down.
  const Integer shifted = ShiftRight(abs(x->mantissa), zeros);
  x->mantissa = x->sign() < 0 ? Integer(-shifted) : shifted;
  x->exponent += zeros;
}

// Cuts `x` off after `bits` bits and adds the error to `error`.
void Cut(Number* x, std::int64_t bits, Bound* error) {
  DropTrailingZeros(x);
  const std::int64_t surplus = x->length() - bits;
  if (surplus <= 0) return;
  const Integer shifted = ShiftRight(abs(x->mantissa), surplus);
  x->mantissa = x->sign() < 0 ? Integer(-shifted) : shifted;
  x->exponent += surplus;
  *error = *error + Bound::PowerOfTwo(x->exponent);  // odd before, so something was lost
  DropTrailingZeros(x);
}

// To `bits` bits, ties to even.
Number Nearest(const Number& x, std::int64_t bits) {
  const std::int64_t surplus = x.length() - bits;
  if (surplus <= 0) return x;
  const Integer magnitude = abs(x.mantissa);
  Integer quotient = ShiftRight(magnitude, surplus);
  const Integer rest = magnitude - ShiftLeft(quotient, surplus);
  const Integer half = ShiftLeft(Integer(1), surplus - 1);
  if (rest > half || (rest == half && bit_test(quotient, 0))) ++quotient;
  Number result{x.sign() < 0 ? Integer(-quotient) : quotient, x.exponent + surplus};
  DropTrailingZeros(&result);
  return result;
}

// a + b without rounding; the caller knows that the exponents are not far apart.
Number ExactSum(const Number& a, const Number& b) {
  if (a.sign() == 0) return b;
  if (b.sign() == 0) return a;
  if (a.exponent < b.exponent) return ExactSum(b, a);
  return {ShiftLeft(a.mantissa, a.exponent - b.exponent) + b.mantissa, b.exponent};
}

Number Sum(const Number& a, const Number& b, std::int64_t bits, Bound* error) {
  Number sum;
  if (a.sign() != 0 && b.sign() != 0 && std::abs(a.top() - b.top()) > bits + 64) {
    // The smaller one is less than the last bit of the larger, and no sum of so few bits is exact.
    sum = a.top() > b.top() ? a : b;
    *error = *error + Bound::PowerOfTwo(sum.top() - bits);
  } else {
    sum = ExactSum(a, b);
  }
  Cut(&sum, bits, error);
  return sum;
}

Number Negated(const Number& x) { return {-x.mantissa, x.exponent}; }

// At least and at most |x|.
Bound Magnitude(const Number& x, bool above) {
  if (x.sign() == 0) return {};
  const std::int64_t surplus = std::max<std::int64_t>(0, x.length() - 52);
  const double leading = ShiftRight(abs(x.mantissa), surplus).convert_to<double>();  // exact
  if (above) return Bound::Above(leading + (surplus > 0 ? 1.0 : 0.0), x.exponent + surplus);
  int shift = 0;
  return {std::frexp(leading, &shift), x.exponent + surplus + shift};
}

Number FromDouble(double value) {
  assert(std::isfinite(value));
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);
  Number x{Integer(static_cast<std::int64_t>(std::ldexp(fraction, 53))), exponent - 53};
  DropTrailingZeros(&x);
  return x;
}

Number FromBound(const Bound& bound) {
  Number x = FromDouble(bound.m);
  if (x.sign() != 0) x.exponent += bound.e;
  return x;
}

int Compare(const Number& a, const Number& b) {
  if (a.sign() != b.sign()) return a.sign() < b.sign() ? -1 : 1;
  if (a.sign() == 0) return 0;
  if (a.top() != b.top()) return (a.top() < b.top()) == (a.sign() > 0) ? -1 : 1;
  return ExactSum(a, Negated(b)).sign();
}

struct Value {
  Number mid;
  Bound radius;  // infinite where nothing is known
};

}  // namespace

// The storage holds a pointer to a Value; null after a move.
struct BallAccess {
  static Value*& Pointer(Ball& ball) { return *reinterpret_cast<Value**>(ball.storage_); }
  static const Value& Get(const Ball& ball) {
    return **reinterpret_cast<Value* const*>(ball.storage_);
  }
};

namespace {

const Value& Get(const Ball& ball) { return BallAccess::Get(ball); }
Value& Get(Ball& ball) { return *BallAccess::Pointer(ball); }

Ball Make(Number mid, const Bound& radius) {
  Ball ball;
  Get(ball) = {std::move(mid), radius};
  return ball;
}
Ball Unknown() { return Make({}, {kInfinity, 0}); }

// The ball with its midpoint cut to the working precision.
Ball Rounded(Number mid, Bound radius) {
  Cut(&mid, working_precision, &radius);
  return Make(std::move(mid), radius);
}
Ball Rounded(const Ball& ball) { return Rounded(Get(ball).mid, Get(ball).radius); }

Ball Widened(Ball ball, const Bound& by) {
  Get(ball).radius = Get(ball).radius + by;
  return ball;
}

Bound MagnitudeAbove(const Ball& ball) { return Magnitude(Get(ball).mid, true) + Get(ball).radius; }

// The lower (sign -1) or upper (+1) end, rounded outwards.
Number End(const Ball& ball, int sign) {
  const Value& value = Get(ball);
  if (value.radius.IsZero()) return value.mid;
  Bound error;
  const Number radius = FromBound(value.radius);
  const Number end =
      Sum(value.mid, sign < 0 ? Negated(radius) : radius, working_precision + 32, &error);
  // An error is a bit of the end's last place, so that the exact sum is short.
  const Number outward = FromBound(error);
  return ExactSum(end, sign < 0 ? Negated(outward) : outward);
}

}  // namespace

void Ball::SetPrecision(long bits) {
  working_precision = std::clamp<long>(bits, 64, LargestPrecision());
}
long Ball::precision() { return working_precision; }
long Ball::LargestPrecision() { return 1L << 20; }
std::map<std::string, std::string> Ball::Libraries() {
  return {{"Boost.Multiprecision", BOOST_LIB_VERSION}};
}

Ball::Ball() { BallAccess::Pointer(*this) = new Value; }
Ball::Ball(double value) : Ball() { Get(*this).mid = FromDouble(value); }
Ball::Ball(long value) : Ball() {
  Get(*this).mid.mantissa = value;
  DropTrailingZeros(&Get(*this).mid);
}
Ball Ball::PowerOfTwo(std::int64_t exponent) { return Make({1, exponent}, {}); }

Ball::Ball(const Ball& other) : Ball() { Get(*this) = Get(other); }
Ball::Ball(Ball&& other) noexcept {
  BallAccess::Pointer(*this) = std::exchange(BallAccess::Pointer(other), nullptr);
}
Ball& Ball::operator=(const Ball& other) {
  if (this != &other) *this = Ball(other);
  return *this;
}
Ball& Ball::operator=(Ball&& other) noexcept {
  std::swap(BallAccess::Pointer(*this), BallAccess::Pointer(other));
  return *this;
}
Ball::~Ball() { delete BallAccess::Pointer(*this); }

bool Ball::IsFinite() const { return Get(*this).radius.IsFinite(); }
bool Ball::IsExact() const { return Get(*this).radius.IsZero(); }
bool Ball::IsZero() const { return IsExact() && Get(*this).mid.sign() == 0; }
bool Ball::ContainsZero() const { return IsZero() || Sign() == 0; }

int Ball::Sign() const {
  if (!IsFinite()) return 0;
  if (End(*this, -1).sign() > 0) return 1;
  return End(*this, 1).sign() < 0 ? -1 : 0;
}

double Ball::Midpoint() const {
  if (!IsFinite()) return std::numeric_limits<double>::quiet_NaN();
  const Number& mid = Get(*this).mid;
  if (mid.sign() == 0) return 0.0;
  const std::int64_t top = mid.top();
  if (top > 1023) return mid.sign() * kInfinity;
  const std::int64_t bits = 53 - std::max<std::int64_t>(0, -1022 - top);
  if (bits < 0) return mid.sign() * 0.0;
  if (bits == 0) {  // in [1/2, 1) of the smallest subnormal
    const bool tie = Compare(mid, {mid.sign(), top}) == 0;
    return mid.sign() * (tie ? 0.0 : std::numeric_limits<double>::denorm_min());
  }
  const Number rounded = Nearest(mid, bits);
  return std::ldexp(rounded.mantissa.convert_to<double>(), static_cast<int>(rounded.exponent));
}

double Ball::MagnitudeBound() const {
  const Bound bound = MagnitudeAbove(*this);
  if (!bound.IsFinite() || bound.e > 1024) return kInfinity;
  if (bound.IsZero()) return 0.0;
  const double value =
      std::ldexp(bound.m, static_cast<int>(std::max<std::int64_t>(bound.e, -5000)));
  return bound.e < -1000 ? std::nextafter(value, kInfinity) : value;
}

Ball Ball::Lower() const { return Make(End(*this, -1), {}); }
Ball Ball::Upper() const { return Make(End(*this, 1), {}); }

std::int64_t Ball::Exponent() const {
  assert(IsExact() && !IsZero());
  constexpr std::int64_t kLimit = std::int64_t{1} << 62;
  return std::clamp(Get(*this).mid.top(), -kLimit, kLimit);
}

Ball Ball::RoundedToBits(std::int64_t bits) const {
  assert(IsExact() && bits >= 1);
  return Make(Nearest(Get(*this).mid, bits), {});
}

std::string Ball::IntegerDigits() const {
  const Number& x = Get(*this).mid;
  assert(IsExact() && x.exponent >= 0);
  return ShiftLeft(x.mantissa, x.exponent).str();
}

Ball Ball::Dot(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  Number sum;
  Bound error;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Number x = FromDouble(a[i]);
    const Number y = FromDouble(b[i]);
    sum = Sum(sum, {x.mantissa * y.mantissa, x.exponent + y.exponent}, working_precision, &error);
  }
  return Make(std::move(sum), error);
}

Ball Ball::Dot(std::span<const Ball> a, std::span<const double> b) {
  assert(a.size() == b.size());
  Ball sum;
  for (std::size_t i = 0; i < a.size(); ++i) sum.AddProduct(a[i], b[i]);
  return sum;
}

void Ball::AddProduct(const Ball& factor, double value) {
  const Number x = FromDouble(value);
  const Value& f = Get(factor);
  const Number product{f.mid.mantissa * x.mantissa, f.mid.exponent + x.exponent};
  Bound radius = Get(*this).radius + f.radius * Magnitude(x, true);
  Number sum = Sum(Get(*this).mid, product, working_precision, &radius);
  Get(*this) = {std::move(sum), radius};
}

Ball operator+(const Ball& a, const Ball& b) {
  Bound radius = Get(a).radius + Get(b).radius;
  Number sum = Sum(Get(a).mid, Get(b).mid, working_precision, &radius);
  return Make(std::move(sum), radius);
}
Ball& Ball::operator+=(const Ball& b) { return *this = *this + b; }
Ball operator-(const Ball& a) { return Make(Negated(Get(a).mid), Get(a).radius); }
Ball operator-(const Ball& a, const Ball& b) { return a + -b; }

Ball operator*(const Ball& a, const Ball& b) {
  const Value& x = Get(a);
  const Value& y = Get(b);
  if (!a.IsFinite() || !b.IsFinite()) return Unknown();
  const Bound radius =
      Magnitude(x.mid, true) * y.radius + Magnitude(y.mid, true) * x.radius + x.radius * y.radius;
  return Rounded({x.mid.mantissa * y.mid.mantissa, x.mid.exponent + y.mid.exponent}, radius);
}

Ball operator/(const Ball& a, const Ball& b) {
  const int sign = b.Sign();
  if (!a.IsFinite() || sign == 0) return Unknown();
  const Value& x = Get(a);
  const Value& y = Get(b);
  const std::int64_t shift =
      std::max<std::int64_t>(0, working_precision + 2 + y.mid.length() - x.mid.length());
  Integer quotient;
  Integer rest;
  divide_qr(ShiftLeft(abs(x.mid.mantissa), shift), Integer(abs(y.mid.mantissa)), quotient, rest);
  Number mid{x.mid.sign() * y.mid.sign() < 0 ? Integer(-quotient) : quotient,
             x.mid.exponent - y.mid.exponent - shift};
  Bound radius;
  if (rest != 0) radius = Bound::PowerOfTwo(mid.exponent);
  // |X/Y - x/y| <= (|X - x| + |x/y| |Y - y|) / |Y|.
  const Bound quotient_bound = Magnitude(mid, true) + radius;
  const Bound least = Magnitude(End(b, -sign), false);
  const Bound moved = x.radius + quotient_bound * y.radius;
  if (!moved.IsZero()) radius = radius + Bound::Above(moved.m / least.m, moved.e - least.e);
  return Rounded(std::move(mid), radius);
}

Ball TimesPowerOfTwo(const Ball& a, std::int64_t exponent) {
  Value value = Get(a);
  if (value.mid.sign() != 0) value.mid.exponent += exponent;
  value.radius.e += exponent;
  return Make(std::move(value.mid), value.radius);
}

Ball Sqrt(const Ball& x) {
  if (!x.IsFinite()) return Unknown();
  if (x.IsZero()) return x;
  const Value& value = Get(x);
  if (End(x, -1).sign() < 0 || value.mid.sign() == 0) return Unknown();
  std::int64_t shift = std::max<std::int64_t>(0, 2 * working_precision + 4 - value.mid.length());
  if ((value.mid.exponent - shift) % 2 != 0) ++shift;
  Integer rest;
  const Integer root = sqrt(ShiftLeft(value.mid.mantissa, shift), rest);
  Number mid{root, (value.mid.exponent - shift) / 2};
  Bound radius;
  if (rest != 0) radius = Bound::PowerOfTwo(mid.exponent);
  // |sqrt X - sqrt x| = |X - x| / (sqrt X + sqrt x) <= |X - x| / sqrt x.
  const Bound least = Magnitude(mid, false);
  if (!value.radius.IsZero()) {
    radius = radius + Bound::Above(value.radius.m / least.m, value.radius.e - least.e);
  }
  return Rounded(std::move(mid), radius);
}

int CompareMidpoints(const Ball& a, const Ball& b) { return Compare(Get(a).mid, Get(b).mid); }

namespace {

bool BelowPowerOfTwo(const Bound& bound, std::int64_t exponent) {
  return bound.IsZero() || (bound.IsFinite() && bound.e < exponent);
}

// atanh(z) = z + z^3/3 + ... for |z| <= 1/4: every term is below 1/16 of the one before, so that
// the rest is less than the last term taken.
Ball Atanh(const Ball& z) {
  const Ball square = z * z;
  Ball power = z;
  Ball sum = z;
  const std::int64_t wanted = Get(z).mid.top() - working_precision;
  for (long n = 3;; n += 2) {
    power = power * square;
    const Ball term = power / Ball(n);
    sum += term;
    const Bound size = MagnitudeAbove(term);
    if (BelowPowerOfTwo(size, wanted) || n > 2 * working_precision) return Widened(sum, size);
  }
}

// ln 2 = 18 atanh(1/26) - 2 atanh(1/4801) + 8 atanh(1/8749).
struct CachedLog2 {
  long precision = 0;
  Ball value;
};
CachedLog2& Log2Cache() {
  thread_local CachedLog2 cache;
  return cache;
}
const Ball& Log2() {
  CachedLog2& cache = Log2Cache();
  if (cache.precision < working_precision) {
    cache.precision = working_precision + 64;
    const PrecisionScope scope(cache.precision);
    const auto part = [](long n) { return Atanh(Ball(1.0) / Ball(n)); };
    cache.value = Ball(18.0) * part(26) - Ball(2.0) * part(4801) + Ball(8.0) * part(8749);
  }
  return cache.value;
}

// Beyond 2^(2^40), exponentials are not computed.
constexpr int kHugeBits = 40;

// e^x of an exact x, to the working precision and more.
Ball ExpOfNumber(const Ball& x) {
  const std::int64_t top = x.Exponent();
  if (top >= kHugeBits) {
    return Get(x).mid.sign() > 0 ? Unknown()
                                 : Make({}, Bound::PowerOfTwo(-(std::int64_t{1} << kHugeBits)));
  }
  // t = (x - k ln 2) / 2^s, e^x = (e^t)^(2^s) 2^k.
  const auto halvings =
      static_cast<std::int64_t>(std::sqrt(static_cast<double>(working_precision)) / 2) + 2;
  const PrecisionScope scope(working_precision + kHugeBits + 32 + 2 * halvings);
  const auto k = std::llround(x.Midpoint() / 0.6931471805599453);
  const Ball reduced = x - Ball(static_cast<long>(k)) * Log2();
  if (!BelowPowerOfTwo(MagnitudeAbove(reduced), 1)) return Unknown();
  const Ball t = TimesPowerOfTwo(reduced, -halvings);
  // |t| <= 1/4: the rest is less than the last term taken.
  Ball sum = Ball(1.0) + t;
  Ball term = t;
  for (long n = 2;; ++n) {
    term = term * t / Ball(n);
    sum += term;
    const Bound size = MagnitudeAbove(term);
    if (!BelowPowerOfTwo(size, -working_precision) && n <= working_precision) continue;
    sum = Widened(sum, size);
    break;
  }
  for (std::int64_t i = 0; i < halvings; ++i) sum = sum * sum;
  return TimesPowerOfTwo(sum, k);
}

}  // namespace

void Ball::FreeThreadCaches() { Log2Cache() = {}; }

Ball Exp(const Ball& x) {
  if (!x.IsFinite()) return x;
  if (x.IsZero()) return Ball(1.0);
  const Bound radius = Get(x).radius;
  if (!BelowPowerOfTwo(radius, 0)) {  // so wide that only the upper end matters
    const Ball upper = x.Upper().IsZero() ? Ball(1.0) : ExpOfNumber(x.Upper());
    return Make({}, MagnitudeAbove(upper));
  }
  const Ball middle(Make(Get(x).mid, {}));
  const Ball power = middle.IsZero() ? Ball(1.0) : ExpOfNumber(middle);
  if (radius.IsZero()) return Rounded(power);
  // |e^r - 1| <= 2 |r| for |r| <= 1.
  return power * Make({1, 0}, radius * Bound::PowerOfTwo(1));
}

Ball Exp2(const Ball& x) {
  if (x.IsZero()) return Ball(1.0);
  if (!x.IsFinite()) return x;
  const Number& mid = Get(x).mid;
  if (x.IsExact() && mid.exponent >= 0 && mid.top() < 61) {
    return Ball::PowerOfTwo(ShiftLeft(mid.mantissa, mid.exponent).convert_to<std::int64_t>());
  }
  Ball power;
  {
    const PrecisionScope scope(working_precision + 64);
    power = Exp(x * Log2());
  }
  return Rounded(power);
}

Ball Log(const Ball& x) {
  if (!x.IsFinite() || x.Sign() <= 0) return Unknown();
  const Number& mid = Get(x).mid;
  Bound radius = Get(x).radius;
  if (!radius.IsZero()) {  // |log X - log x| <= |X - x| / min(X, x)
    const Bound least = Magnitude(End(x, -1), false);
    radius = Bound::Above(radius.m / least.m, radius.e - least.e);
  }
  if (Compare(mid, {1, 0}) == 0) return Make({}, radius);
  Ball logarithm;
  {
    // x = m 2^k with m near 1, and log m = y + log(m e^-y) for a double y near it: whatever y is,
    // the sum is right.
    const PrecisionScope scope(working_precision + 160);
    std::int64_t k = mid.top();
    Ball m = Make({mid.mantissa, mid.exponent - k}, {});
    if (m.Midpoint() > 1.4142) {
      ++k;
      m = TimesPowerOfTwo(m, -1);
    }
    const Ball y(std::log(m.Midpoint()));
    const Ball d = m * Exp(-y) - Ball(1.0);
    const Ball z = d / (d + Ball(2.0));
    if (!BelowPowerOfTwo(MagnitudeAbove(z), -2)) return Unknown();
    const Ball correction = z.IsZero() ? z : Atanh(z);
    logarithm = y + TimesPowerOfTwo(correction, 1) + Ball(static_cast<long>(k)) * Log2();
  }
  return Widened(Rounded(logarithm), radius);
}

Ball Tanh(const Ball& x) {
  if (!x.IsFinite()) return Make({}, Bound::PowerOfTwo(0));
  const Bound radius = Get(x).radius;
  const Ball middle = Make(Get(x).mid, {});
  if (middle.IsZero()) return x;
  const std::int64_t top = middle.Exponent();
  Ball tanh;
  if (top < -working_precision) {  // |tanh x - x| <= |x|^3 / 3
    tanh = Widened(middle, Bound::PowerOfTwo(3 * (top + 1)));
  } else if (top > kHugeBits - 3) {  // 1 - |tanh x| <= 2 e^(-2 |x|)
    tanh = Make({middle.Sign(), 0}, Bound::PowerOfTwo(-(std::int64_t{1} << (kHugeBits - 3))));
  } else {
    // 1 - e^2x cancels as many bits as x has zeros behind the point.
    const PrecisionScope scope(working_precision + 16 + std::max<std::int64_t>(0, -top));
    const Ball power = Exp(TimesPowerOfTwo(middle, 1));
    tanh = (power - Ball(1.0)) / (power + Ball(1.0));
  }
  return Widened(Rounded(tanh), radius);  // |tanh'| <= 1
}

}  // namespace attest
