// SPDX-License-Identifier: Apache-2.0
#include "reference/interval.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <utility>

namespace attest {
namespace {

thread_local mpfr_prec_t working_precision = 128;

// MPFR copies of doubles for the inner loops, made once a thread.
struct DoubleSlots {
  Mpfr a{53};
  Mpfr b{53};
};
DoubleSlots& Slots() {
  thread_local DoubleSlots slots;
  return slots;
}

}  // namespace

Mpfr::Mpfr(const Mpfr& other) {
  mpfr_init2(value_, mpfr_get_prec(other.value_));
  mpfr_set(value_, other.value_, MPFR_RNDN);
}

Mpfr::Mpfr(Mpfr&& other) noexcept {
  value_[0] = other.value_[0];
  other.value_[0]._mpfr_d = nullptr;
}

Mpfr& Mpfr::operator=(const Mpfr& other) {
  if (this != &other) *this = Mpfr(other);
  return *this;
}

Mpfr& Mpfr::operator=(Mpfr&& other) noexcept {
  std::swap(value_[0], other.value_[0]);
  return *this;
}

Mpfr::~Mpfr() {
  if (value_[0]._mpfr_d != nullptr) mpfr_clear(value_);
}

void Interval::SetPrecision(mpfr_prec_t bits) {
  assert(bits >= 64);
  working_precision = bits;
}

mpfr_prec_t Interval::precision() { return working_precision; }

Interval::Interval() : Interval(0.0) {}

Interval::Interval(double value) : lower_(working_precision), upper_(working_precision) {
  mpfr_set_d(lower_.get(), value, MPFR_RNDD);
  mpfr_set_d(upper_.get(), value, MPFR_RNDU);
}

Interval::Interval(long value) : lower_(working_precision), upper_(working_precision) {
  mpfr_set_si(lower_.get(), value, MPFR_RNDD);
  mpfr_set_si(upper_.get(), value, MPFR_RNDU);
}

Interval Interval::Point(mpfr_srcptr value) {
  Interval point;
  mpfr_set(point.lower_.get(), value, MPFR_RNDD);
  mpfr_set(point.upper_.get(), value, MPFR_RNDU);
  return point;
}

double Interval::Midpoint() const {
  Mpfr sum(working_precision + 1);
  mpfr_add(sum.get(), lower(), upper(), MPFR_RNDN);
  mpfr_div_2ui(sum.get(), sum.get(), 1, MPFR_RNDN);
  return mpfr_get_d(sum.get(), MPFR_RNDN);
}

Interval Interval::Dot(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  DoubleSlots& slots = Slots();
  Interval sum;
  const auto accumulate = [&](mpfr_ptr end, mpfr_rnd_t rounding) {
    int inexact = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      mpfr_set_d(slots.a.get(), a[i], MPFR_RNDN);
      mpfr_set_d(slots.b.get(), b[i], MPFR_RNDN);
      inexact |= mpfr_fma(end, slots.a.get(), slots.b.get(), end, rounding);
    }
    return inexact != 0;
  };
  if (accumulate(sum.lower_.get(), MPFR_RNDD)) {
    accumulate(sum.upper_.get(), MPFR_RNDU);
  } else {
    sum.upper_ = sum.lower_;  // every step was exact
  }
  return sum;
}

void Interval::AddProduct(const Interval& factor, double value) {
  mpfr_ptr slot = Slots().a.get();
  mpfr_set_d(slot, value, MPFR_RNDN);
  const bool negative = mpfr_sgn(slot) < 0;
  mpfr_fma(lower_.get(), negative ? factor.upper() : factor.lower(), slot, lower(), MPFR_RNDD);
  mpfr_fma(upper_.get(), negative ? factor.lower() : factor.upper(), slot, upper(), MPFR_RNDU);
}

Interval operator+(const Interval& a, const Interval& b) {
  Interval sum;
  mpfr_add(sum.lower_.get(), a.lower(), b.lower(), MPFR_RNDD);
  mpfr_add(sum.upper_.get(), a.upper(), b.upper(), MPFR_RNDU);
  return sum;
}

Interval& Interval::operator+=(const Interval& b) { return *this = *this + b; }

Interval operator-(const Interval& a, const Interval& b) {
  Interval difference;
  mpfr_sub(difference.lower_.get(), a.lower(), b.upper(), MPFR_RNDD);
  mpfr_sub(difference.upper_.get(), a.upper(), b.lower(), MPFR_RNDU);
  return difference;
}

namespace {

using BinaryFunction = int (*)(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t);

// The extreme values of a function that is monotone in each operand lie at the four corners.
void Corners(BinaryFunction function, const Interval& a, const Interval& b, mpfr_ptr lower,
             mpfr_ptr upper) {
  Mpfr corner(Interval::precision());
  bool first = true;
  for (mpfr_srcptr x : {a.lower(), a.upper()}) {
    for (mpfr_srcptr y : {b.lower(), b.upper()}) {
      function(corner.get(), x, y, MPFR_RNDD);
      if (first || mpfr_less_p(corner.get(), lower) != 0) mpfr_set(lower, corner.get(), MPFR_RNDD);
      function(corner.get(), x, y, MPFR_RNDU);
      if (first || mpfr_greater_p(corner.get(), upper) != 0) {
        mpfr_set(upper, corner.get(), MPFR_RNDU);
      }
      first = false;
    }
  }
}

}  // namespace

Interval operator*(const Interval& a, const Interval& b) {
  Interval product;
  Corners(mpfr_mul, a, b, product.lower_.get(), product.upper_.get());
  return product;
}

Interval operator/(const Interval& a, const Interval& b) {
  assert(!b.ContainsZero());
  Interval quotient;
  Corners(mpfr_div, a, b, quotient.lower_.get(), quotient.upper_.get());
  return quotient;
}

Interval Interval::Increasing(Function function, const Interval& x) {
  Interval result;
  function(result.lower_.get(), x.lower(), MPFR_RNDD);
  function(result.upper_.get(), x.upper(), MPFR_RNDU);
  return result;
}

Interval Exp(const Interval& x) { return Interval::Increasing(mpfr_exp, x); }
Interval Exp2(const Interval& x) { return Interval::Increasing(mpfr_exp2, x); }
Interval Log(const Interval& x) { return Interval::Increasing(mpfr_log, x); }
Interval Sqrt(const Interval& x) { return Interval::Increasing(mpfr_sqrt, x); }
Interval Tanh(const Interval& x) { return Interval::Increasing(mpfr_tanh, x); }

}  // namespace attest
