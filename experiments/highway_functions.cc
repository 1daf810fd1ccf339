// SPDX-License-Identifier: Apache-2.0
#include "experiments/highway_functions.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "experiments/highway_functions.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Float = hn::ScalableTag<float>;
using Vector = hn::Vec<Float>;

template <class Function>
void Each(const float* HWY_RESTRICT x, float* HWY_RESTRICT y, std::size_t n,
          const Function& function) {
  const Float d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(function(d, hn::LoadU(d, x + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float last[hn::MaxLanes(d)] = {};
  std::copy(x + i, x + n, last);
  hn::Store(function(d, hn::Load(d, last)), d, last);
  std::copy(last, last + (n - i), y + i);
}

void ExpF32(const float* x, float* y, std::size_t n) {
  Each(x, y, n, [](Float d, Vector v) HWY_ATTR { return hn::Exp(d, v); });
}
void LogF32(const float* x, float* y, std::size_t n) {
  Each(x, y, n, [](Float d, Vector v) HWY_ATTR { return hn::Log(d, v); });
}
void TanhF32(const float* x, float* y, std::size_t n) {
  Each(x, y, n, [](Float d, Vector v) HWY_ATTR { return hn::Tanh(d, v); });
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(ExpF32);
HWY_EXPORT(LogF32);
HWY_EXPORT(TanhF32);

void HighwayExpEach(const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(ExpF32)(x, y, n);
}
void HighwayLogEach(const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(LogF32)(x, y, n);
}
void HighwayTanhEach(const float* x, float* y, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(TanhF32)(x, y, n);
}

}  // namespace attest
#endif  // HWY_ONCE
