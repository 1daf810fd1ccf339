// SPDX-License-Identifier: Apache-2.0
// Dispatches the exponential over arrays.
#include "optimized/exp.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/exp.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

void ExpArray(const float* x, float* y, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(Exp(d, hn::LoadU(d, x + i)), d, y + i);
  if (i == n) return;
  HWY_ALIGN float tail[hn::MaxLanes(d)] = {};
  std::memcpy(tail, x + i, (n - i) * sizeof(float));
  hn::Store(Exp(d, hn::Load(d, tail)), d, tail);
  std::memcpy(y + i, tail, (n - i) * sizeof(float));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(ExpArray);

void ExpEach(const float* x, float* y, std::size_t n) { HWY_DYNAMIC_DISPATCH(ExpArray)(x, y, n); }

}  // namespace attest
#endif  // HWY_ONCE
