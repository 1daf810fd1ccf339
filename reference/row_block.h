// SPDX-License-Identifier: Apache-2.0
// The SIMD rungs of the ladder: blocks of rows, one row a lane, in double or in double-double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"
#include "reference/certified_value.h"
#include "reference/rung_constants.h"

namespace attest {

inline constexpr std::size_t kMaxRowLanes = 32;

// How many rows, or keys, share a block: fewer on rung 1, where a number takes two doubles, and
// where rows of many keys make planes large.
inline constexpr Index kLongRow = Index{1} << 16;
constexpr std::size_t WidestBlock(Rung rung, Index keys) {
  if (keys > kLongRow) return 8;
  return rung == Rung::kDouble ? kMaxRowLanes : kMaxRowLanes / 2;
}
// The lanes of a block of `members` rows or keys.
constexpr std::size_t LanesFor(std::size_t members) {
  std::size_t lanes = 8;
  while (lanes < members) lanes *= 2;
  return lanes;
}

// What stands for -infinity in sums of scores: its exponential is 0, and it stays finite.
inline constexpr double kExcluded = -1e300;
// Rows with scores beyond this go to rung 2: the low part of a score, which the pivot leaves in the
// exponent, must stay small.
inline constexpr double kLargestSize = 0x1p50;

// Keys (and a sink) whose additive part lies more than kFaint below the row's largest, in rows of
// scores no larger than kFaintScore before anything is added, are faint: their scores are below the
// pivot by kFaint - 2 kFaintScore > 2000, so that their exponentials are 0 on either rung and below
// kSmallestExp in truth. Their size, such as 1e9 of padding, counts for no error.
inline constexpr double kFaint = 0x1p14;
inline constexpr double kFaintScore = 7000.0;

// A real number as a double-double, |exact - (hi + lo)| <= error.
struct Enclosed {
  double hi = 0.0;
  double lo = 0.0;
  double error = 0.0;
};

// What all rows of one (batch, key/value head) share: finite doubles, rows contiguous. Elements
// that are not finite were replaced by 0; rows in which they take part are no business of a rung.
struct HeadOperands {
  const double* k = nullptr;  // [keys, k_dim]
  const double* v = nullptr;  // [keys, v_dim]
  Index keys = 0;
  Index k_dim = 0;
  Index v_dim = 0;
  const double* k_magnitude = nullptr;  // |k|, where conditions are wanted
  std::vector<double> k_norm;           // [keys], at least the Euclidean norm
  std::vector<double> v_norm;           // [keys], likewise
  std::vector<double> k_max;            // [k_dim], the largest |k| of each column
  std::vector<double> v_max;            // [v_dim], the largest |v| of each column
  bool exact_products = false;  // a product of two inputs has at most 53 bits and a normal exponent
};

// Up to kMaxRowLanes rows that share a HeadOperands. Planes [.., lanes] have the row as last axis.
// Keys are counted from first_key: no key outside [first_key, last_key) is allowed for any row.
struct RowBlock {
  std::size_t lanes = 0;  // 8, 16 or 32
  std::size_t rows = 0;   // lanes in use; the others hold anything finite
  Index first_key = 0;
  Index last_key = 0;
  const double* q = nullptr;         // [k_dim, lanes]
  double q_norm[kMaxRowLanes] = {};  // at least the Euclidean norm

  Enclosed scale;
  double softcap = 0.0;  // 0: none
  // [keys, lanes]: bias and ALiBi, kExcluded where a key is excluded, within a relative 2^-100.
  // Null hi: nothing is excluded or added.
  Plane additive;
  double additive_magnitude[kMaxRowLanes] = {};  // largest |additive| of an allowed key, and |sink|
  double near_magnitude[kMaxRowLanes] = {};      // the same without faint keys
  const double* keep =
      nullptr;  // [keys, lanes]: 0 where dropout drops a weight, else 1; null: all 1
  double gaussian_half_width = 0.0;  // of local-p attention; 0: none
  alignas(64) double gaussian_center[kMaxRowLanes] = {};
  alignas(64) double sink[kMaxRowLanes] = {};  // kExcluded: none
  Enclosed kept{1.0, 0.0, 0.0};                // 1 - rate, exact

  // Where results go, by row; null: not wanted. Elements that are decided are left alone.
  CertifiedValue* out[kMaxRowLanes] = {};      // [v_dim]
  CertifiedValue* lse[kMaxRowLanes] = {};      // [1]
  CertifiedValue* weights[kMaxRowLanes] = {};  // [all keys of the head]
  DType out_dtype = DType::kF32;
  DType lse_dtype = DType::kF32;

  // By row, [all keys of the head], where conditions are wanted; see Conditions in certify.h.
  double* weight_condition[kMaxRowLanes] = {};
  double* log_weight_condition[kMaxRowLanes] = {};
  double* score_condition[kMaxRowLanes] = {};
};

// Conditions are stored where they are as accurate as Conditions (certify.h) says.
inline constexpr double kConditionAccuracy = 0x1p-30;

// Scratch of one thread, reused from block to block.
class RungWorkspace {
 public:
  RungWorkspace();
  ~RungWorkspace();
  // A plane of `size` numbers; `slot` names it, its content is undefined. At most kSlots.
  Plane Get(std::size_t slot, std::size_t size);

  static constexpr std::size_t kSlots = 8;

 private:
  struct Buffer;
  std::unique_ptr<Buffer[]> buffers_;
};

// Certifies what the block asks for, as far as double (rung 0) or double-double (rung 1) goes. The
// rows, as bits, that are left with an undecided element or without their conditions.
std::uint32_t CertifyRowsInDouble(const HeadOperands& head, const RowBlock& block,
                                  RungWorkspace& workspace);
std::uint32_t CertifyRowsInDoubleDouble(const HeadOperands& head, const RowBlock& block,
                                        RungWorkspace& workspace);

}  // namespace attest
