// SPDX-License-Identifier: Apache-2.0
// Certified attention: for every output element the correctly rounded value and an enclosure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"

namespace attest {

// One output element. Where the exact result is a real number:
//   |exact - (hi + lo)| <= radius, and `nearest` is the exact result rounded once to the output
//   type (ties to even; an infinity where it is beyond the type's range).
// Where the contract says NaN or an infinity, nearest = hi is that value, lo = 0 and radius = 0.
struct CertifiedValue {
  double nearest = 0.0;
  double hi = 0.0;
  double lo = 0.0;
  double radius = 0.0;
  bool decided = true;  // false: not separated from a rounding boundary within the precision limit
};

struct CertifiedTensor {
  DType dtype = DType::kF32;
  Shape shape;
  std::vector<CertifiedValue> values;  // row-major
  std::vector<std::string> digits;     // decimal digits, where they were asked for
};

// What forward error bounds are evaluated from, [B, Hq, Tq, Tk] row-major, in double. `weight` is
// p_ij before dropout and `log_weight` ln p_ij without a local-p Gaussian, both within a relative
// 2^-52 (the logarithm tells weights apart that underflow); `score_condition` is
// |scale| * sum_d |q_id k_jd| rounded up (`general`: sum of |q_ia W_ab k_jb|, `additive`: sum of
// |v_a|, where tanh is at most 1). Only elements with `allowed` mean anything.
struct Conditions {
  std::vector<std::uint8_t> allowed;
  std::vector<double> weight;
  std::vector<double> log_weight;
  std::vector<double> score_condition;
};

struct CertifyOptions {
  int threads = 1;  // the result is the same for every number
  int digits = 0;   // significant decimal digits to certify; 0: none
  bool conditions = false;
  // Called with (rows and parts of gradients done, all of them), from any thread but never twice at
  // once; false cancels.
  std::function<bool(Index, Index)> progress;
};

struct Certified {
  std::map<std::string, CertifiedTensor> outputs;  // those that are asked for, by name
  Conditions conditions;
  Index undecided = 0;        // elements with decided == false
  int largest_precision = 0;  // bits that the hardest row took
};

// Certifies out, lse, weights and gradients. Precision is doubled from 128 (256 for
// f64) until both ends of every enclosure round alike; exact ties are decided, not approximated
// (see RowEnclosure::ExactOutput). Refuses to run when the calling thread's floating-point state is
// not the default one.
StatusOr<Certified> Certify(const Case& problem, const CertifyOptions& options = {});

// Names and versions of the libraries whose arithmetic the reference rests on.
std::map<std::string, std::string> ReferenceLibraries();

}  // namespace attest
