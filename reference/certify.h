// SPDX-License-Identifier: Apache-2.0
// Certified attention: for every output element the correctly rounded value and an enclosure.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"
#include "reference/certified_value.h"

namespace attest {

struct CertifiedTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<CertifiedValue> values;  // row-major
  std::vector<std::string> digits;     // decimal digits, where they were asked for
};

// What forward error bounds are evaluated from, [B, Hq, Tq, Tk] row-major, in double. `weight` is
// p_ij before dropout, within 2^-30 p_ij + 2^-1074; `log_weight` is ln p_ij without a local-p
// Gaussian, within 2^-30 max(1, |ln p_ij|) (it tells weights apart that underflow).
// `score_condition` is
// |scale| * sum_d |q_id k_jd| rounded up. Only elements with `allowed` mean anything.
struct Conditions {
  std::vector<std::uint8_t> allowed;
  std::vector<double> weight;
  std::vector<double> log_weight;
  std::vector<double> score_condition;
  // Within a relative 2^-28: sum over the allowed keys of |m_ij p_ij v_jc|, with dropout and
  // Gaussian, [B, Hq, Tq, Dv]; and the largest less the smallest ln p_ij of a row, [B, Hq, Tq]. 0
  // for rows without finite weights.
  std::vector<double> magnitude;
  std::vector<double> logit_spread;
};

struct CertifyOptions {
  int threads = 1;  // the result is the same for every number
  int digits = 0;   // significant decimal digits to certify; 0: none
  bool conditions = false;
  // Where the ladder starts; nothing but cost depends on it (and radii, and digits need kBall).
  Rung first_rung = Rung::kDouble;
  // Called with (rows done, rows in all), from any thread but never twice at once; false cancels.
  std::function<bool(Index, Index)> progress;
};

struct Certified {
  std::map<std::string, CertifiedTensor> outputs;  // those that the contract asks for
  Conditions conditions;
  Index undecided = 0;        // elements with decided == false
  int largest_precision = 0;  // bits that the hardest row took on rung 2; 0: none got there

  // How many elements each rung settled.
  std::array<Index, kRungs> RungCounts() const;
};

// Certifies the outputs that a contract asks for. Each element climbs a ladder until its rounding
// is certain: SIMD double with an a priori bound, SIMD double-double, balls of 128 (256 for f64)
// bits and then of twice as many each time; exact ties are decided by algebra (docs/reference.md).
// Memory beyond the outputs grows with the keys of a few rows, not with rows times keys. Refuses to
// run when the calling thread's floating-point state is not the default one.
StatusOr<Certified> Certify(const Case& problem, const CertifyOptions& options = {});

// Names and versions of the libraries whose arithmetic the reference rests on.
std::map<std::string, std::string> ReferenceLibraries();

}  // namespace attest
