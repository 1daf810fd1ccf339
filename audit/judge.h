// SPDX-License-Identifier: Apache-2.0
// Judges the outputs of one case: every element against the certified value and its bound.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audit/bound.h"
#include "audit/gradient_bound.h"
#include "core/case.h"
#include "core/status.h"
#include "reference/certify.h"

namespace attest {

// More scores than this are refused: a case keeps about 150 bytes a score (certified weights,
// conditions and bounds).
inline constexpr Index kMostScores = Index{1} << 26;

// One element that stands for many: the one with the largest error over bound.
struct Witness {
  std::vector<Index> index;
  double got = 0.0;
  double expected = 0.0;     // correctly rounded
  double ulp = 0.0;          // |got - exact| / ulp(exact) in the output type
  double bound_ratio = 0.0;  // |got - exact| / bound; > 1 or NaN violates
};

// How one output tensor of one case compares.
struct TensorVerdict {
  std::string tensor;
  Index elements = 0;
  Index violations = 0;
  Index not_judged = 0;  // no bound exists there (see ForwardBounds)
  Index not_correctly_rounded = 0;
  double max_ulp = 0.0;                    // over all elements, raw: large near zero by nature
  std::optional<double> max_scaled_error;  // |got - exact| / (u * sum p|v|); `out` only
  double max_bound_ratio = 0.0;
  Witness worst;
  bool non_finite_mismatch = false;  // the worst violation is about NaN or an infinity
};

// The certified reference of one case with the bounds of its profile; made once, used for every
// subject and law that runs the case.
struct Expectation {
  Certified certified;
  ForwardBounds bounds;
  GradientBounds gradient_bounds;  // of the gradients that the case asks for
  double unit_roundoff = 0.0;
  double logit_spread = 0.0;  // largest ln(p_max / p_min) of a row; weights below 2^-1074 apart
  double min_entropy = 0.0;   // smallest entropy of a row's weights in nats
};
StatusOr<Expectation> Expect(const Case& problem, int threads = 1);

// Whether element `at` of output `tensor` has a bound, or a value that is compared exactly.
// Gradients that are NaN are not judged: how far a NaN of a row spreads depends on how products are
// grouped.
bool IsJudged(const Expectation& expected, const std::string& tensor, std::size_t at);

// The bound of element `at`; infinite where it has none, 0 where it is compared exactly.
double BoundOf(const Expectation& expected, const std::string& tensor, std::size_t at);

// Whether `got` conforms to element `at` of output `tensor`. Written so that NaN fails.
bool Conforms(const Expectation& expected, const std::string& tensor, std::size_t at, double got);

// Compares one output. Elements that are not judged count as such and nothing else. `got` must have
// the contract's shape and type.
TensorVerdict Judge(const Expectation& expected, const std::string& tensor, const Tensor& got);

}  // namespace attest
