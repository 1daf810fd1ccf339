// SPDX-License-Identifier: Apache-2.0
#include "core/fp_environment.h"

#include <cfenv>
#include <limits>

#ifdef __FAST_MATH__
#error "Attest proves rounding error bounds and must not be compiled with -ffast-math"
#endif

namespace attest {
namespace {

template <class Real>
Status CheckSubnormals() {
  // volatile: the state is a property of run time, not of the compiler's arithmetic.
  // Operands first: with DAZ even a comparison reads a subnormal result as zero.
  const volatile Real smallest = std::numeric_limits<Real>::denorm_min();
  const volatile Real scale = Real{1} / std::numeric_limits<Real>::epsilon();
  const volatile Real read = smallest * scale;
  if (read == Real{0}) {
    return Internal("floating-point state: subnormal operands are read as zero (DAZ is set)");
  }
  const volatile Real smallest_normal = std::numeric_limits<Real>::min();
  const volatile Real half = Real{0.5};
  const volatile Real flushed = smallest_normal * half;
  if (flushed == Real{0}) {
    return Internal("floating-point state: subnormal results are flushed to zero (FTZ is set)");
  }
  return Status();
}

}  // namespace

Status CheckFloatingPointEnvironment() {
  if (std::fegetround() != FE_TONEAREST) {
    return Internal("floating-point state: the rounding mode is not round-to-nearest");
  }
  if (Status s = CheckSubnormals<float>(); !s.ok()) return s;
  return CheckSubnormals<double>();
}

}  // namespace attest
