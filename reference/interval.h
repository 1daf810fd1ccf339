// SPDX-License-Identifier: Apache-2.0
// Intervals of real numbers with MPFR end points: every operation encloses the exact result.
#pragma once

#include <mpfr.h>

#include <cstddef>
#include <span>

namespace attest {

// An MPFR number that frees itself. Its precision is fixed when it is made; assignment copies value
// and precision.
class Mpfr {
 public:
  explicit Mpfr(mpfr_prec_t bits) { mpfr_init2(value_, bits); }
  Mpfr(const Mpfr& other);
  Mpfr(Mpfr&& other) noexcept;
  Mpfr& operator=(const Mpfr& other);
  Mpfr& operator=(Mpfr&& other) noexcept;
  ~Mpfr();

  mpfr_ptr get() { return value_; }
  mpfr_srcptr get() const { return value_; }

 private:
  mpfr_t value_;  // value_[0]._mpfr_d is null after a move
};

// A closed interval [lower, upper]. New intervals have the thread's working precision (bits of each
// end point); lower ends are rounded down, upper ends up, so an interval contains the exact value
// of the expression that made it whenever its operands contain theirs. An interval with equal ends
// is a point and therefore exact. There are no comparisons: overlapping intervals have no order.
class Interval {
 public:
  // Sets the working precision of the calling thread (at least 64 bits, so that doubles are exact).
  static void SetPrecision(mpfr_prec_t bits);
  static mpfr_prec_t precision();

  Interval();                                // the point 0
  explicit Interval(double value);           // the point `value`; finite
  explicit Interval(long value);             // the point `value`
  static Interval Point(mpfr_srcptr value);  // encloses `value`; a point where it fits

  mpfr_srcptr lower() const { return lower_.get(); }
  mpfr_srcptr upper() const { return upper_.get(); }
  bool IsPoint() const { return mpfr_equal_p(lower(), upper()) != 0; }
  bool IsZeroPoint() const { return mpfr_zero_p(lower()) != 0 && mpfr_zero_p(upper()) != 0; }
  bool ContainsZero() const { return mpfr_sgn(lower()) <= 0 && mpfr_sgn(upper()) >= 0; }
  double Midpoint() const;  // rounded to nearest

  // The sum of products a[i] * b[i] of finite doubles. A point whenever the working precision holds
  // every partial sum exactly.
  static Interval Dot(std::span<const double> a, std::span<const double> b);
  // *this += factor * value, for a finite double.
  void AddProduct(const Interval& factor, double value);

  friend Interval operator+(const Interval& a, const Interval& b);
  friend Interval operator-(const Interval& a, const Interval& b);
  friend Interval operator*(const Interval& a, const Interval& b);
  // `b` must not contain 0.
  friend Interval operator/(const Interval& a, const Interval& b);
  Interval& operator+=(const Interval& b);

  friend Interval Exp(const Interval& x);
  friend Interval Exp2(const Interval& x);
  friend Interval Log(const Interval& x);   // of positive intervals
  friend Interval Sqrt(const Interval& x);  // of non-negative intervals
  friend Interval Tanh(const Interval& x);

 private:
  using Function = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t);
  static Interval Increasing(Function function, const Interval& x);

  Mpfr lower_;
  Mpfr upper_;
};

}  // namespace attest
