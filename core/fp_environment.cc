// SPDX-License-Identifier: Apache-2.0
#include "core/fp_environment.h"

#include <limits>
#include <string_view>

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

FloatingPointState FloatingPointState::Current() {
  FloatingPointState state;
  std::fegetenv(&state.environment_);
  state.rounding_ = std::fegetround();
  return state;
}

void FloatingPointState::Restore() const { std::fesetenv(&environment_); }

std::string FloatingPointState::ChangesSince(const FloatingPointState& before) const {
  std::string changes;
  const auto add = [&](bool changed, std::string_view name) {
    if (!changed) return;
    if (!changes.empty()) changes += ", ";
    changes += name;
  };
#if defined(__x86_64__) || defined(__i386__)
  // Bits of MXCSR and of the x87 control word that differ (Intel SDM vol. 1, 10.2.3 and 8.1.5).
  const unsigned sse = environment_.__mxcsr ^ before.environment_.__mxcsr;
  const unsigned x87 =
      static_cast<unsigned>(environment_.__control_word ^ before.environment_.__control_word);
  add(rounding_ != before.rounding_ || (sse & 0x6000) != 0 || (x87 & 0x0c00) != 0, "rounding mode");
  add((sse & 0x8000) != 0, "FTZ");
  add((sse & 0x0040) != 0, "DAZ");
  add((sse & 0x1f80) != 0 || (x87 & 0x003f) != 0, "exception masks");
  add((x87 & 0x0300) != 0, "x87 precision");
#else
  add(rounding_ != before.rounding_, "rounding mode");
#endif
  return changes;
}

}  // namespace attest
