// SPDX-License-Identifier: Apache-2.0
// Attention on one head with every rounding point stated: the materialised algorithm and the tiled
// one, in emulated formats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"
#include "experiments/rounded_arithmetic.h"

namespace attest {

// q [queries, dim], k [keys, dim], v [keys, v_dim], row-major.
struct AttentionProblem {
  Index queries = 0;
  Index keys = 0;
  Index dim = 0;
  Index v_dim = 0;
  double scale = 1.0;
  std::vector<double> q, k, v;
};

// Where a value is rounded, and to which format. By default everything is f32.
struct RoundingPoints {
  Rounder operations =
      NumberFormat::kF32;                // products and partial sums of q.k, of a row sum, of P V
  Rounder scores = NumberFormat::kF32;   // s as stored
  Rounder shifted = NumberFormat::kF32;  // s - m
  Rounder exponentials = NumberFormat::kF32;  // exp(s - m), before it is normalised or stored
  Rounder weights = NumberFormat::kF32;       // P as it is multiplied with V
  Rounder sum = NumberFormat::kF32;           // the denominator after each tile (or the row)
  Rounder accumulator = NumberFormat::kF32;   // o after each step of a tile, and exp(m_old - m_new)
  Rounder output = NumberFormat::kF32;
  double weight_scale = 1.0;    // P is stored as round(P scale) / scale
  bool sum_of_weights = true;   // the tiled denominator adds P as stored, not before that rounding
  bool largest_weight = false;  // weight_scale is instead what maps the largest P onto 448
};

// s = scores(scale q.k); x = shifted(s - m); e = exponentials(exp(x)); l = sum(sum of e);
// P = weights(e / l); o = output(sum of P v).
std::vector<double> MaterialisedAttention(const AttentionProblem& problem,
                                          const RoundingPoints& points);

enum class TileOrder { kForward, kBackward, kShuffled };

// Dao et al. 2022, algorithm 1, over tiles of `tile` keys: m, l and o are rescaled from tile to
// tile, o is divided by l at the end. The order of the keys within a tile stays.
std::vector<double> TiledAttention(const AttentionProblem& problem, const RoundingPoints& points,
                                   Index tile, TileOrder order = TileOrder::kForward);

// A case of one head with `out` alone; q, k and v are N(0, 1), each a pure function of (seed,
// name), rounded to `dtype`. With `outliers` N(0, 100) Bernoulli(0.001) is added.
Case NormalCase(const std::string& name, Index queries, Index keys, Index dim, DType dtype,
                bool outliers, std::uint64_t seed);

AttentionProblem ProblemOf(const Case& problem);

// The certified outputs `out` as doubles (the enclosures' centres, within 2^-36 of the largest).
StatusOr<std::vector<double>> ExactOutputs(const Case& problem, int threads);

// Of got - exact.
struct Deviation {
  double largest = 0.0;
  double mean = 0.0;
  double deviation = 0.0;  // standard deviation
  double rmse = 0.0;
};
Deviation DeviationOf(const std::vector<double>& got, const std::vector<double>& exact);

}  // namespace attest
