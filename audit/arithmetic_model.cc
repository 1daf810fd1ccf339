// SPDX-License-Identifier: Apache-2.0
#include "audit/arithmetic_model.h"

#include <cmath>

namespace attest {

ArithmeticModel ModelOf(const Contract& contract) {
  const Arithmetic& arithmetic = contract.arithmetic;
  const bool wide = contract.dtype == DType::kF64 || arithmetic.profile == "f64";
  const FloatFormat& format = wide ? kFormatF64 : kFormatF32;
  ArithmeticModel model{format.unit_roundoff(), std::ldexp(1.0, format.min_exponent),
                        format.smallest_subnormal(), format.largest_finite()};
  model.exp_ulp = arithmetic.exp_ulp;
  const bool flash = arithmetic.profile.ends_with("-flash");
  const bool math = arithmetic.profile.ends_with("-math");
  if (flash || math) {
    const FloatFormat& narrow = arithmetic.profile.starts_with("bf16") ? kFormatBF16 : kFormatF16;
    model.weight_roundoff = narrow.unit_roundoff();
    model.weight_subnormal = narrow.smallest_subnormal();
    model.weight_largest = narrow.largest_finite();
    if (math) {
      model.score_roundoff = narrow.unit_roundoff();
      model.score_largest = narrow.largest_finite();
    }
  }
  return model;
}

const std::vector<ProfileInfo>& Profiles() {
  static const std::vector<ProfileInfo> profiles{
      {"f32", "scores, exponentials, sums and accumulation in f32 (f64 for f64 tensors)"},
      {"f64", "the same in f64"},
      {"bf16-flash", "bf16 tensors, f32 inside, weights rounded to bf16 before the product with V"},
      {"f16-flash", "f16 tensors, f32 inside, weights rounded to f16 before the product with V"},
      {"bf16-math", "bf16 tensors; scores and weights stored in bf16 between f32 steps"},
      {"f16-math", "f16 tensors; scores and weights stored in f16 between f32 steps"},
  };
  return profiles;
}

}  // namespace attest
