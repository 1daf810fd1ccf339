// SPDX-License-Identifier: Apache-2.0
// Descriptions of generated cases: a few numbers and switches that decide every bit of a case.
#pragma once

#include <cstdint>
#include <optional>
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
  kOnes,            // q, k normal, v = 1: every output is the sum of its weights
  kIdentity,        // q, k normal, rows of v of the identity: outputs are weights
  kExponents,  // signs times powers of two, 2^-6 ... 2^6; of v 2^-60 ... 2^60 (16 bits: 2^-12 ...
               // 2^12)
  kMantissas,  // 1 + ulp, 2 - ulp, alternating and all-ones mantissas: long carries
  kConstantRows,   // every row of q, k and v has one value
  kCancellation,   // coordinates in pairs whose products almost cancel
  kLargeProducts,  // q and k of 40 (60 in every second key): products beyond 65504, scores far
                   // below
  kNearOverflow,   // v as large as a sum of all of it can be, a tenth of the largest finite number
  kTiny,           // q and k of 2^-70 (2^-12 for f16): products vanish, weights are uniform
};

// Scores written into the inputs: q = (1, 0, ...), k_j = (s_j, 0, ...), scale 1. Patterns other
// than kDrawn leave v to `values`.
enum class ScorePattern {
  kDrawn,       // by `values`
  kEqual,       // level
  kIncreasing,  // level + j step: every key is a new maximum
  kDecreasing,  // level - j step
  kNeedle,      // level, but level + step at key `needle`
  kZigzag,      // level for even keys, level + step for odd ones
};
struct DirectScores {
  ScorePattern pattern = ScorePattern::kDrawn;
  double level = 0.0;
  double step = 0.0;
  Index needle = 0;
};

// Axes of [B, Hq, Tq, Tk] that have length 1.
struct Broadcast {
  bool batch = false;
  bool heads = false;
  bool queries = false;
  bool keys = false;
};

// Which keys a boolean mask allows.
enum class MaskPattern {
  kNone,    // no mask
  kRandom,  // about three quarters
  kAllTrue,
  kAllFalse,
  kEmptyRows,  // all, but nothing for odd queries
  kHoles,      // even keys
  kNotFirst,   // all but key 0
  kOnlyFirst,
  kOnlyLast,
  kPrefix,         // entry b the first b keys, modulo Tk + 1
  kSuffix,         // entry b all but the first b keys, modulo Tk + 1
  kCausalTopLeft,  // what the causal rule would allow
  kCausalBottomRight,
  kOneKey,  // one random key a row
  kByHead,  // keys j with j + h even
};

enum class BiasPattern {
  kNone,
  kNormal,
  kExcluding,  // 0 or -infinity
  kLarge,      // N(0, 900)
  kFarBelow,   // 0, or -1e30 (-60000 in f16) for odd keys: they vanish without being excluded
};

enum class Documents {
  kNone,
  kBlocks,       // three of about the same length, first to last
  kInterleaved,  // ids alternate
  kApart,        // no key is of the first query's document
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

  DirectScores scores{};
  MaskPattern mask_pattern = MaskPattern::kNone;  // in the place of `mask`
  Broadcast mask_broadcast{};
  BiasPattern bias_pattern = BiasPattern::kNone;  // in the place of `bias`
  Broadcast bias_broadcast{};
  std::vector<Index> kv_length_list{};  // in the place of `kv_lengths`; repeats over the batch
  std::vector<Index> q_length_list{};
  Window window{};
  Documents documents = Documents::kNone;
  Alibi alibi = Alibi::kUnset;         // kTensor, and kNone with slopes that are to be ignored
  std::optional<double> sink_level{};  // sinks of this, more by 1 from head to head; -infinity for
                                       // even heads only
  Broadcast keep_broadcast{};
  bool no_keep = false;                // a dropout rate without a keep mask: no dropout
  std::optional<LocalWindow> local{};  // with centres over the whole length
  bool junk = false;                   // NaN and infinity in k and v of keys that no query may see
  std::optional<Index>
      poisoned_key{};                  // a key of NaN: rows that may see it are NaN, others are not
  std::vector<std::string> outputs{};  // empty: the default, see MakeCase
};

// "2x4/2x9x17x8x8 causal=top_left mask ..." : a name that says everything but the seed.
std::string NameOf(const CaseSpec& spec);

// The case of a specification: a pure function of (spec, seed). By default outputs are out, lse and
// weights, and the gradients where there are any.
Case MakeCase(const CaseSpec& spec, std::uint64_t seed);

}  // namespace attest
