// SPDX-License-Identifier: Apache-2.0
// Dispatches the elementary functions over arrays.
#include "optimized/functions.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/functions.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/log-inl.h"
#include "optimized/tanh-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

struct ExpFunction {
  template <class Policy, class D, class V>
  static HWY_INLINE V Of(Policy policy, D d, V x) {
    return Exp(policy, d, x);
  }
};
struct Exp2Function {
  template <class Policy, class D, class V>
  static HWY_INLINE V Of(Policy policy, D d, V x) {
    return Exp2OfAny(policy, d, x);
  }
};
struct LogFunction {
  template <class Policy, class D, class V>
  static HWY_INLINE V Of(Policy policy, D d, V x) {
    return Log(policy, d, x);
  }
};
struct TanhFunction {
  template <class Policy, class D, class V>
  static HWY_INLINE V Of(Policy policy, D d, V x) {
    return Tanh(policy, d, x);
  }
};
struct SoftmaxExp2Function {
  template <class Policy, class D, class V>
  static HWY_INLINE V Of(Policy policy, D d, V x) {
    return Exp2(policy, d, x);
  }
};

template <class Function, class Policy, class T>
void Each(Policy policy, const T* x, T* y, std::size_t n) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(Function::Of(policy, d, hn::LoadU(d, x + i)), d, y + i);
  }
  if (i == n) return;
  HWY_ALIGN T tail[hn::MaxLanes(d)] = {};
  std::memcpy(tail, x + i, (n - i) * sizeof(T));
  hn::Store(Function::Of(policy, d, hn::Load(d, tail)), d, tail);
  std::memcpy(y + i, tail, (n - i) * sizeof(T));
}

template <class Function, class T>
void EachOfMode(Mode mode, const T* x, T* y, std::size_t n) {
  switch (mode) {
    case Mode::kFast:
      return Each<Function>(Fast(), x, y, n);
    case Mode::kReproducible:
      return Each<Function>(Reproducible(), x, y, n);
    case Mode::kAccurate:
      return Each<Function>(Accurate(), x, y, n);
  }
}

void ExpF32(Mode mode, const float* x, float* y, std::size_t n) {
  EachOfMode<ExpFunction>(mode, x, y, n);
}
void ExpF64(Mode mode, const double* x, double* y, std::size_t n) {
  EachOfMode<ExpFunction>(mode, x, y, n);
}
void Exp2F32(Mode mode, const float* x, float* y, std::size_t n) {
  EachOfMode<Exp2Function>(mode, x, y, n);
}
void Exp2F64(Mode mode, const double* x, double* y, std::size_t n) {
  EachOfMode<Exp2Function>(mode, x, y, n);
}
void LogF32(Mode mode, const float* x, float* y, std::size_t n) {
  EachOfMode<LogFunction>(mode, x, y, n);
}
void LogF64(Mode mode, const double* x, double* y, std::size_t n) {
  EachOfMode<LogFunction>(mode, x, y, n);
}
void TanhF32(Mode mode, const float* x, float* y, std::size_t n) {
  EachOfMode<TanhFunction>(mode, x, y, n);
}
void TanhF64(Mode mode, const double* x, double* y, std::size_t n) {
  EachOfMode<TanhFunction>(mode, x, y, n);
}
void SoftmaxExp2F32(Mode mode, const float* x, float* y, std::size_t n) {
  EachOfMode<SoftmaxExp2Function>(mode, x, y, n);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(ExpF32);
HWY_EXPORT(ExpF64);
HWY_EXPORT(Exp2F32);
HWY_EXPORT(Exp2F64);
HWY_EXPORT(LogF32);
HWY_EXPORT(LogF64);
HWY_EXPORT(TanhF32);
HWY_EXPORT(TanhF64);
HWY_EXPORT(SoftmaxExp2F32);

void ExpEach(Mode mode, const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(ExpF32)(mode, x, y, n);
}
void ExpEach(Mode mode, const double* x, double* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(ExpF64)(mode, x, y, n);
}
void Exp2Each(Mode mode, const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(Exp2F32)(mode, x, y, n);
}
void Exp2Each(Mode mode, const double* x, double* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(Exp2F64)(mode, x, y, n);
}
void LogEach(Mode mode, const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(LogF32)(mode, x, y, n);
}
void LogEach(Mode mode, const double* x, double* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(LogF64)(mode, x, y, n);
}
void TanhEach(Mode mode, const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(TanhF32)(mode, x, y, n);
}
void TanhEach(Mode mode, const double* x, double* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(TanhF64)(mode, x, y, n);
}
void SoftmaxExp2Each(Mode mode, const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(SoftmaxExp2F32)(mode, x, y, n);
}

}  // namespace attest
#endif  // HWY_ONCE
