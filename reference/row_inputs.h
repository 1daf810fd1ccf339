// SPDX-License-Identifier: Apache-2.0
// From a case to blocks of rows for the SIMD rungs.
#pragma once

#include <hwy/aligned_allocator.h>

#include <span>
#include <vector>

#include "reference/certify.h"
#include "reference/row_block.h"
#include "reference/row_plan.h"

namespace attest {

// The operands of every (batch, key/value head) of a case, made once and shared by all threads.
class RowInputs {
 public:
  // With `conditions`, what RowBlock's conditions need. `data` must outlive it.
  RowInputs(const CaseData& data, bool conditions);

  const HeadOperands& Head(const RowId& row) const { return heads_[HeadOf(row)].operands; }
  std::size_t HeadOf(const RowId& row) const;
  // Whether k or v of `key` is NaN or infinite.
  bool IsSpecial(const RowId& row, Index key) const;
  bool HasSpecial(const RowId& row) const { return heads_[HeadOf(row)].has_special; }

  const CaseData& data() const { return data_; }
  const Enclosed& scale() const { return scale_; }
  // Of the row's head; 0 without ALiBi.
  const Enclosed& Slope(const RowId& row) const {
    return slopes_[static_cast<std::size_t>(row.head)];
  }

 private:
  struct OneHead {
    HeadOperands operands;
    std::vector<double> finite_k, finite_v;  // copies, where something is not finite
    std::vector<double> k_magnitude;
    std::vector<bool> special;
    bool has_special = false;
  };

  const CaseData& data_;
  std::vector<OneHead> heads_;
  Enclosed scale_;
  std::vector<Enclosed> slopes_;
};

// What is added to the score of an allowed key: bias and ALiBi, as a double-double within a
// relative 2^-100 of `magnitude`, the sum of the magnitudes.
struct Additive {
  double hi = 0.0;
  double lo = 0.0;
  double magnitude = 0.0;
};
Additive AdditiveAt(const RowInputs& inputs, const RowId& row, Index key);

// Where the ladder starts for results in `dtype`: no lower than the options say, on rung 2 for what
// only balls do, and not on rung 0 for f64, which double cannot decide.
Rung FirstRung(const CertifyOptions& options, const Contract& contract, DType dtype);

// 1 - rate, exactly.
Enclosed KeptFraction(const CaseData& data);

// Whether the row of `lane` may see `key`, one of all keys of the head.
bool Allows(const RowBlock& block, std::size_t lane, Index key);

// An upper bound of the Euclidean norm of finite values; infinite where it overflows.
double NormBound(std::span<const double> values);
bool AllFinite(std::span<const double> values);
// Whether no SIMD rung takes a row with this sink: NaN, +infinity, or too low for kExcluded.
bool IsBeyondRungs(double sink);

// One thread's buffers for a block.
class BlockBuilder {
 public:
  explicit BlockBuilder(const RowInputs& inputs) : inputs_(inputs) {}

  // The block of `rows` (rows of one head operand, at most `lanes`), where to put results left
  // open. Rows that a rung does not take, because no key is allowed or something that takes part is
  // NaN or infinite, are reported in `refused`, by position, and have meaningless lanes. What the
  // block points to stays until the next call.
  RowBlock Build(std::span<const RowId> rows, std::size_t lanes, std::vector<std::size_t>* refused);

 private:
  bool FillLane(const RowId& row, const KeyInterval& range, std::size_t lane, RowBlock* block);
  double NearMagnitude(const RowId& row, const KeyInterval& range, std::size_t lane, double least,
                       const RowBlock& block) const;
  double* Reserve(hwy::AlignedFreeUniquePtr<double[]>* buffer, std::size_t* capacity,
                  std::size_t size);

  const RowInputs& inputs_;
  hwy::AlignedFreeUniquePtr<double[]> q_, additive_hi_, additive_lo_, keep_;
  std::size_t q_capacity_ = 0, hi_capacity_ = 0, lo_capacity_ = 0, keep_capacity_ = 0;
};

}  // namespace attest
