// SPDX-License-Identifier: Apache-2.0
// Both back ends of Ball against MPFR, which neither uses for these operations in the same way.
#include <gtest/gtest.h>
#include <mpfr.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "properties/ball_probe.h"

namespace attest_cpp_int {
std::vector<ball_probe::Ends> ProbeOperations(double x, double y, long bits);
}

namespace attest {
namespace {

constexpr mpfr_prec_t kWitnessBits = 3000;

// Numbers of 3000 bits.
class Witness {
 public:
  Witness() {
    for (mpfr_ptr x : {value_, other_, end_}) mpfr_init2(x, kWitnessBits);
  }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;
  ~Witness() {
    for (mpfr_ptr x : {value_, other_, end_}) mpfr_clear(x);
  }

  // The value of operation `k` of ProbeOperations.
  void Evaluate(std::size_t k, double x, double y) {
    mpfr_set_d(value_, k < 4 || k == 6 ? x : std::fabs(x), MPFR_RNDN);
    mpfr_set_d(other_, y, MPFR_RNDN);
    mpfr_div_ui(other_, other_, 3, MPFR_RNDN);
    switch (k) {
      case 0:
        mpfr_add(value_, value_, other_, MPFR_RNDN);
        break;
      case 1:
        mpfr_sub(value_, value_, other_, MPFR_RNDN);
        break;
      case 2:
        mpfr_mul(value_, value_, other_, MPFR_RNDN);
        break;
      case 3:
        mpfr_div(value_, value_, other_, MPFR_RNDN);
        break;
      case 4:
        mpfr_exp(value_, value_, MPFR_RNDN);
        break;
      case 5:
        mpfr_exp2(value_, value_, MPFR_RNDN);
        break;
      case 6:
        mpfr_tanh(value_, value_, MPFR_RNDN);
        break;
      case 7:
        mpfr_log(value_, value_, MPFR_RNDN);
        break;
      default:
        mpfr_sqrt(value_, value_, MPFR_RNDN);
        break;
    }
  }

  // The value minus the sum of `parts`, rounded.
  double MinusEnd(const std::vector<double>& parts) {
    mpfr_set(end_, value_, MPFR_RNDN);
    for (const double part : parts) mpfr_sub_d(end_, end_, part, MPFR_RNDN);
    return mpfr_get_d(end_, MPFR_RNDN);
  }
  double value() const { return mpfr_get_d(value_, MPFR_RNDN); }

 private:
  mpfr_t value_;
  mpfr_t other_;
  mpfr_t end_;
};

// The enclosure holds the witness's value and is at most 2^16 units in the last place wide.
void ExpectTight(const ball_probe::Ends& ends, Witness* witness, long bits,
                 const std::string& what) {
  const double above = witness->MinusEnd(ends.lower);
  const double below = witness->MinusEnd(ends.upper);
  // 2^-900 of the value covers what the expansions leave out, and the witness's own rounding.
  const double slack = std::fabs(witness->value()) * 0x1p-900;
  ASSERT_GE(above, -slack) << what;
  ASSERT_LE(below, slack) << what;
  const double width = std::ldexp(std::fabs(witness->value()), static_cast<int>(16 - bits));
  ASSERT_LE(above, width) << what;
  ASSERT_GE(below, -width) << what;
}

TEST(BallBackEnds, EncloseTheSameNumbersTightly) {
  const RandomStream stream(1, "witness", "operands");
  Witness witness;
  for (const long bits : {64L, 128L, 192L, 700L}) {
    for (std::uint64_t i = 0; i < 300; ++i) {
      const int exponent = static_cast<int>(stream.Below(i + 1000000, 41)) - (i % 3 == 0 ? 70 : 33);
      const double x = std::ldexp(stream.Normal(2 * i), std::min(exponent, 8));
      const double y = stream.Normal(2 * i + 1);
      const std::vector<ball_probe::Ends> arb = ProbeOperations(x, y, bits);
      const std::vector<ball_probe::Ends> integers = attest_cpp_int::ProbeOperations(x, y, bits);
      ASSERT_EQ(arb.size(), integers.size());
      for (std::size_t k = 0; k < arb.size(); ++k) {
        const std::string what = "operation " + std::to_string(k) + " on " + std::to_string(x);
        witness.Evaluate(k, x, y);
        ExpectTight(arb[k], &witness, bits, "Arb " + what);
        ExpectTight(integers[k], &witness, bits, "integers " + what);
      }
    }
  }
}

}  // namespace
}  // namespace attest
