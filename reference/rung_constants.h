// SPDX-License-Identifier: Apache-2.0
// What the operations of the SIMD rungs may lose: every constant of their error bounds.
//
// Derivations: docs/reference.md; properties/rung_arithmetic_test.cc tries to break each.
#pragma once

#include <cstddef>

#ifdef __FAST_MATH__
#error "bounds of rounding errors do not hold under -ffast-math"
#endif

namespace attest {

// Numbers in memory: an array of doubles, or the two arrays of a double-double.
struct Plane {
  double* hi = nullptr;
  double* lo = nullptr;  // null where the low parts are not kept
};

inline constexpr double kRoundoff = 0x1p-53;  // u of double

// n u / (1 - n u) (Higham 2002, Lemma 3.1), rounded up.
constexpr double Gamma(double n) { return 1.0000001 * n * kRoundoff / (1.0 - n * kRoundoff); }

// Sums are accumulated over at most this many products, then added to a total, so that the error
// grows with the number of blocks.
inline constexpr std::size_t kScoreBlock = 32;
inline constexpr std::size_t kKeyBlock = 32;

constexpr double Blocks(double n, std::size_t block) {
  return (n + static_cast<double>(block) - 1.0) / static_cast<double>(block);
}

// Rung 0. Relative errors.
struct DoubleConstants {
  static constexpr double kUnit = kRoundoff;       // +, -, *, /
  static constexpr double kExp = 4.0 * kRoundoff;  // for kExpLowest <= x <= 1
  static constexpr double kExpLowest = -708.0;
  static constexpr double kSmallestExp = 0x1p-1021;  // above e^kExpLowest
  // A sum of n products, relative to the sum of their absolute values: one rounding a product, as
  // many as the block is long, then one a block (Higham 2002, section 3.1).
  static constexpr double SumError(double n, std::size_t block) {
    const double length = n < static_cast<double>(block) ? n : static_cast<double>(block);
    return Gamma(length + 1.0 + Blocks(n, block));
  }
};

// Rung 1, double-double. (Joldes, Muller, Popescu 2017): the largest of their bounds for the
// algorithms used is 15 u^2 + 56 u^3, for division.
struct DoubleDoubleConstants {
  static constexpr double kUnit = 16.0 * kRoundoff * kRoundoff;
  static constexpr double kExp = 0x1p-100;
  static constexpr double kExpLowest = -600.0;
  static constexpr double kSmallestExp = 0x1p-865;  // above e^kExpLowest
  // Compensated sums of a block (Ogita, Rump, Oishi 2005): the errors of products and sums, each
  // at most u times a partial sum, are added up in double. Then one double-double sum a block.
  static constexpr double SumError(double n, std::size_t block) {
    const double length = n < static_cast<double>(block) ? n : static_cast<double>(block);
    return 1.01 * Gamma(3.0 * length + 3.0) * Gamma(length + 3.0) +
           (Blocks(n, block) + 1.0) * kUnit;
  }
};

// A biased sum starts at 1.5 * 2^m with 2^m > 4 S for a bound S of all its partial sums: each
// partial sum lies in the same binade, so that what a step adds is an exact difference and what it
// loses, below 2^(m-53), one more. The losses are summed in double.
double BiasFor(double bound);
// The error of n biased steps, relative to S: 2^m <= 8 S; n losses of at most u 2^m, each rounded
// once where the product is not exact, and summed with n roundings.
constexpr double BiasedSumError(double n) { return 9.2 * n * (n + 1.0) * kRoundoff * kRoundoff; }

// Products of double inputs may underflow; then a product and its error lose at most this.
inline constexpr double kUnderflow = 0x1p-1020;

}  // namespace attest
