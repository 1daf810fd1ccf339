// SPDX-License-Identifier: Apache-2.0
// Softmax of one row in several ways, each with its rounding points and derived error bounds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/tensor.h"
#include "optimized/softmax.h"

namespace attest {

// All but the first are plain loops in which every operation is rounded to one type.
enum class SoftmaxWay {
  kKernel,        // optimized/softmax.h, mode Reproducible
  kUnshifted,     // exp(x_j) / sum
  kShifted,       // exp(x_j - max) / sum, terms added in order
  kOnline,        // the same with the sum of one pass over tiles, rescaled where the maximum rises
  kDivisionFree,  // exp(x_j - LSE)
  kLogShifted,    // exp((x_j - max) - ln sum)
  kStoredSame,    // shifted in f32; exponentials stored in the row's type, then added
  kStoredMixed,   // the same, but added before they are stored
};

struct SoftmaxMethod {
  std::string name;
  SoftmaxWay way = SoftmaxWay::kShifted;
  SoftmaxAlgorithm algorithm = SoftmaxAlgorithm::kShifted;  // of kKernel
  Index tile = 1;                                           // of kOnline
};

// Those for rows of `dtype`; the last two ways are for 16-bit types alone.
std::vector<SoftmaxMethod> SoftmaxMethods(DType dtype);

// The weights of row x, whose entries are numbers of `dtype`. Non-finite ones are data.
StatusOr<std::vector<double>> ComputeSoftmax(const SoftmaxMethod& method, DType dtype,
                                             std::span<const double> x);

// What is derived for one row from its certified weights and LSE, before anything is computed.
struct SoftmaxBound {
  // kOverflows: the exponentials' sum is beyond the type, so that the result must be useless.
  // kNear: too near that limit to tell. kUnderflows: the sum is so small that underflow may ruin
  // it.
  enum class Domain { kInside, kOverflows, kNear, kUnderflows };
  Domain domain = Domain::kInside;
  std::vector<double> weight;  // |computed_j - exact_j|; where kInside
  double sum = 0.0;            // |sum of computed weights - 1|, sum in exact arithmetic
};

// `exact` are the weights; relative errors of 2^-50 in it and in `lse` do not matter.
SoftmaxBound BoundSoftmax(const SoftmaxMethod& method, DType dtype, std::span<const double> x,
                          std::span<const double> exact, double lse);

}  // namespace attest
