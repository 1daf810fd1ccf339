// SPDX-License-Identifier: Apache-2.0
// Rows of logits, what every softmax method does on them, and summaries over parts of them.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "experiments/softmax_methods.h"

namespace attest {

struct RowSpec {
  DType dtype = DType::kF32;
  Index n = 0;
  double spread = 0.0;
  double max = 0.0;
  int draw = 0;
};

// One method on one row.
struct SoftmaxMeasure {
  SoftmaxBound::Domain domain = SoftmaxBound::Domain::kInside;
  bool useless = false;      // a weight that is not finite, or all of them 0
  double error_ratio = 0.0;  // largest |error| / bound over the weights
  double sum_ratio = 0.0;    // |sum - 1| / bound
  double sum_error = std::numeric_limits<double>::quiet_NaN();   // |sum - 1|
  double norm_error = std::numeric_limits<double>::quiet_NaN();  // max |error| / max weight, in
                                                                 // units of u of the row's type
  double first_order = 0.0;   // the last over [n + 2 + 2 R]; unshifted: over n + 3
  double over_shifted = 0.0;  // largest |error| / bound of the method "shifted"
};

struct SoftmaxRow {
  RowSpec spec;
  std::string digest;
  std::vector<SoftmaxMeasure> measures;  // of SoftmaxMethods(spec.dtype), in order
  Status status;
};

// Draws row->spec, certifies its weights and runs every method on it; fills in the rest.
void MeasureRow(std::uint64_t seed, SoftmaxRow* row);

// What a set of rows says about one method.
struct SoftmaxCell {
  int rows = 0;
  int inside = 0;
  int overflows = 0;          // predicted
  int wrong_predictions = 0;  // useless inside, or not useless where the sum must overflow
  int untold = 0;             // kNear and kUnderflows
  double error_ratio = 0.0;   // largest, as the next five; of rows inside
  double sum_ratio = 0.0;
  double sum_error = 0.0;
  double norm_error = 0.0;
  double first_order = 0.0;
  double over_shifted = 0.0;

  void Add(const SoftmaxMeasure& m);
};

// The rows of an experiment and cells over any part of them.
class SoftmaxRows {
 public:
  explicit SoftmaxRows(std::vector<SoftmaxRow> rows) : rows_(std::move(rows)) {}

  SoftmaxCell CellOf(DType dtype, const std::string& method,
                     const std::function<bool(const RowSpec&)>& wanted) const;

  // One series per method: `value` of the cell of the rows at each x.
  nlohmann::ordered_json Series(DType dtype, const std::vector<std::string>& methods,
                                const std::vector<double>& xs,
                                const std::function<bool(const RowSpec&, double)>& at,
                                double SoftmaxCell::* value) const;

 private:
  std::vector<SoftmaxRow> rows_;
};

}  // namespace attest
