// SPDX-License-Identifier: Apache-2.0
// Descriptions of generated cases: a few numbers and switches that decide every bit of a case.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"

namespace attest {

// How the elements of q, k and v are drawn.
enum class Values {
  kNormal,          // N(0, 1)
  kOutliers,        // N(0, 1) + N(0, 100) * Bernoulli(0.001), as in FlashAttention-3's Table 3
  kSmallIntegers,   // -3 ... 3: products and sums are exact
  kTies,            // keys repeat with period 3, so that scores tie
  kOneHot,          // rows of the identity: scores are 0 or one value
  kSpread,          // one large coordinate: logits spread over hundreds
  kConstantValues,  // q, k normal; every row of v the same
  kSubnormal,       // v of subnormal magnitude, q and k normal
  kZero,            // q = 0: uniform weights
};

// "normal", "outliers", ... for names of cases and families.
const char* NameOf(Values values);

struct CaseSpec {
  Dimensions shape;
  DType dtype = DType::kF32;
  Values values = Values::kNormal;
  Causal causal = Causal::kNone;
  EmptyRow empty_row = EmptyRow::kZero;
  Scale scale{};
  bool mask = false;        // random boolean mask [B, 1, Tq, Tk], about a quarter false
  bool bias = false;        // normal bias [1, Hq, Tq, Tk] with some -infinity
  bool kv_lengths = false;  // random lengths, the first batch entry one short of full
  bool q_lengths = false;

  ScoreKind score = ScoreKind::kDot;  // others with normal parameters, `additive` of five units
  bool broadcast_bias = false;        // normal bias [1, Hq, 1, Tk] in the place of `bias`
  bool sinks = false;                 // normal
  double softcap = 0.0;
  double dropout_rate = 0.0;  // above 0 with a random keep mask [B, Hq, Tq, Tk]
  bool gradients = false;     // grad_out, and every gradient as an output
  bool grad_lse = false;      // likewise
};

// "2x4/2x9x17x8x8 causal=top_left mask ..." : a name that says everything but the seed.
std::string NameOf(const CaseSpec& spec);

// The case of a specification: a pure function of (spec, seed). Outputs are out, lse and weights,
// and the gradients where there are any.
Case MakeCase(const CaseSpec& spec, std::uint64_t seed);

}  // namespace attest
