// SPDX-License-Identifier: Apache-2.0
// Balls (midpoint and radius) of real numbers: every operation encloses the exact result.
//
// Two back ends implement this one class, chosen when the project is configured: ball_arb.cc on Arb
// (fast, LGPL), and ball_cpp_int.cc on the integers of Boost.Multiprecision (no LGPL, slow).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace attest {

// The set of all numbers at most `radius` away from a midpoint. A result's midpoint is rounded to
// the thread's working precision and its radius covers that rounding and the radii of the operands,
// so that a ball contains the exact value of the expression that made it whenever its operands
// contain theirs. A ball of radius 0 is a number and therefore exact; +, -, *, / and Sqrt give
// exact balls for exact operands whenever the working precision holds the result. Where nothing is
// known (division by a ball around 0, overflow of an exponential) the ball is not finite. There are
// no comparisons: overlapping balls have no order.
class Ball {
 public:
  // Sets the working precision of the calling thread, at least 64 bits (so that doubles are exact)
  // and at most LargestPrecision(); a new thread starts with 128.
  static void SetPrecision(long bits);
  static long precision();
  static long LargestPrecision();
  // Frees what the calling thread has cached; to be called before it ends.
  static void FreeThreadCaches();
  // Names and versions of the libraries that the back end rests on.
  static std::map<std::string, std::string> Libraries();

  Ball();                       // the number 0
  explicit Ball(double value);  // the number `value`; finite
  explicit Ball(long value);    // the number `value`
  static Ball PowerOfTwo(std::int64_t exponent);
  Ball(const Ball& other);
  Ball(Ball&& other) noexcept;
  Ball& operator=(const Ball& other);
  Ball& operator=(Ball&& other) noexcept;
  ~Ball();

  bool IsFinite() const;
  bool IsExact() const;  // radius 0
  bool IsZero() const;   // the number 0
  bool ContainsZero() const;
  // The sign that all its numbers share; 0 when they share none (and for the number 0).
  int Sign() const;
  double Midpoint() const;        // rounded to nearest even; infinite beyond the range of double
  double MagnitudeBound() const;  // not below |x| for any x in it; infinite where it is not finite
  // Numbers not above and not below any in it, rounded outwards. Of finite balls.
  Ball Lower() const;
  Ball Upper() const;

  // Of exact balls that are not 0: floor(log2 |x|), clamped to +-2^62.
  std::int64_t Exponent() const;
  // Of exact balls: the number rounded to `bits` >= 1 significant bits, ties to even.
  Ball RoundedToBits(std::int64_t bits) const;
  // Of exact balls that are integers: decimal digits, with a minus sign if negative.
  std::string IntegerDigits() const;

  // The sum of products a[i] * b[i] of finite doubles. Exact whenever the working precision holds
  // every partial sum, taken in order.
  static Ball Dot(std::span<const double> a, std::span<const double> b);
  // The same with balls; exact on the same condition where all of them are.
  static Ball Dot(std::span<const Ball> a, std::span<const double> b);
  // *this += factor * value, for a finite double.
  void AddProduct(const Ball& factor, double value);

  friend Ball operator+(const Ball& a, const Ball& b);
  friend Ball operator-(const Ball& a, const Ball& b);
  friend Ball operator-(const Ball& a);
  friend Ball operator*(const Ball& a, const Ball& b);
  friend Ball operator/(const Ball& a, const Ball& b);
  Ball& operator+=(const Ball& b);

  friend Ball Exp(const Ball& x);
  friend Ball Exp2(const Ball& x);  // exact for integers
  friend Ball Log(const Ball& x);   // not finite unless x is positive
  friend Ball Sqrt(const Ball& x);  // not finite where x reaches below 0
  friend Ball Tanh(const Ball& x);

  // Negative, 0 or positive as the midpoint of `a` is below, at or above that of `b`.
  friend int CompareMidpoints(const Ball& a, const Ball& b);

 private:
  friend struct BallAccess;  // the back end's view of the storage
  alignas(8) std::byte storage_[48];
};

// a * 2^exponent, exactly.
Ball TimesPowerOfTwo(const Ball& a, std::int64_t exponent);

// Sets the working precision of the thread for a block.
class PrecisionScope {
 public:
  explicit PrecisionScope(long bits) : before_(Ball::precision()) { Ball::SetPrecision(bits); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;
  ~PrecisionScope() { Ball::SetPrecision(before_); }

 private:
  long before_;
};

}  // namespace attest
