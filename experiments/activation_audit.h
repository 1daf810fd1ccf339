// SPDX-License-Identifier: Apache-2.0
// Everything that an audit measures on one head, against certified values.
#pragma once

#include <array>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/case.h"
#include "core/status.h"
#include "experiments/quantised_attention.h"
#include "experiments/row_theorems.h"
#include "experiments/tensor_metrics.h"

namespace attest {

inline constexpr std::array<DType, 3> kAuditedTypes{DType::kF32, DType::kBF16, DType::kF16};

// q and k by format, k less its mean too; each with every format of P and v.
inline constexpr std::array<Quantisation, 16> kQuantisations = [] {
  std::array<Quantisation, 16> all{};
  constexpr std::array<Quantisation, 4> kOfQk{{{CodeFormat::kInt8, false, {}},
                                               {CodeFormat::kInt8, true, {}},
                                               {CodeFormat::kE4M3, false, {}},
                                               {CodeFormat::kE5M2, false, {}}}};
  constexpr std::array<CodeFormat, 4> kOfPv{CodeFormat::kE4M3, CodeFormat::kE5M2, CodeFormat::kInt8,
                                            CodeFormat::kF16};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = kOfQk[i / 4];
    all[i].pv = kOfPv[i % 4];
  }
  return all;
}();

// Of the exact weights and the inputs.
struct HeadShape {
  double least_logit = 0.0, largest_logit = 0.0, largest_spread = 0.0;  // the last of one row
  double mean_entropy = 0.0, least_entropy = 0.0;                       // of rows, over ln n
  double mean_largest = 0.0;                                            // weight of a row
  double sink = 0.0;      // largest mean weight of a key, times n
  Index sink_key = 0;     // that key
  double outliers[3]{};   // q, k, v: largest magnitude over the root mean square
  double key_mean = 0.0;  // norm of the mean key over the root mean square norm of a key
};

struct KernelError {
  double bound_ratio = 0.0;  // largest |got - exact| / bound
  double relative = 0.0;     // largest |got - exact| / max |exact|
};

struct HeadAudit {
  HeadShape shape;
  TheoremSummary theorems;
  // By type: largest |exact of the rounded inputs - exact| / max |exact|; 0 for f32.
  std::array<double, kAuditedTypes.size()> input_loss{};
  // By type, then by subject.
  std::array<std::vector<KernelError>, kAuditedTypes.size()> kernels;
  KernelError recorded;                  // of a result computed elsewhere, in f32
  std::vector<TensorMetrics> quantised;  // kQuantisations, where they were asked for
};

using Subjects = std::vector<std::unique_ptr<Subject>>;

// `problem` has one head, q, k and v in f32, the factor 1/sqrt(D_k), no mask, and `out` alone.
// `recorded` may be null.
StatusOr<HeadAudit> AuditHead(const Case& problem, const Tensor* recorded, const Subjects& subjects,
                              bool quantised);

}  // namespace attest
