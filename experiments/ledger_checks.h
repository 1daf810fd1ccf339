// SPDX-License-Identifier: Apache-2.0
// Claims about attention that need no experiment of their own: each is checked on certified values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/status.h"
#include "experiments/experiment.h"

namespace attest {

// One line of the ledger.
struct LedgerEntry {
  std::string claim;
  std::string verdict;
  std::string number;  // what was found, in one sentence
};

// Exact weights lie in [0, 1] and sum to 1. Rounded to f64, each errs by at most u times itself, so
// their sum is within u = 2^-53 of 1.
StatusOr<LedgerEntry> CheckWeights(const ExperimentOptions& options);

// What "softmax widens gaps" means: the ratio of two weights is e to the difference of their
// scores, at any level; their difference is at most half of the scores' difference, and their ratio
// is below that of the scores where these are small. Rows: difference of the scores, level of the
// lower one, ratio of the scores, ratio of the weights, difference of the weights.
StatusOr<LedgerEntry> CheckGaps(nlohmann::ordered_json* rows);

// One key each: the log-sum-exp is the score. Dot and general ones are integers, the additive one
// is 2 tanh(1/2) = 2 (e - 1) / (e + 1).
StatusOr<LedgerEntry> CheckScores();

// What masked keys and values hold, NaN included, changes no bit of any output, and their weights
// are exactly 0.
StatusOr<LedgerEntry> CheckMasking(const ExperimentOptions& options);

// The usual few lines (scores of -infinity, less their maximum, exponentials over their sum) in f32
// on a row whose keys are all masked.
LedgerEntry CheckEmptyRow();

// Outputs lie between the least and the largest allowed value of their column.
StatusOr<LedgerEntry> CheckConvexity(const ExperimentOptions& options);

}  // namespace attest
