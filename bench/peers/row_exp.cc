// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/row_exp.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peers/row_exp.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/exp2-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// n is a multiple of 16.
float Exp2OfWholeRow(float* HWY_RESTRICT row, Index n) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  auto max = hn::LoadU(d, row);
  for (Index j = lanes; j < n; j += lanes) max = hn::Max(max, hn::LoadU(d, row + j));
  max = hn::MaxOfLanes(d, max);
  auto sum = hn::Zero(d);
  for (Index j = 0; j < n; j += lanes) {
    const auto e = Exp2(Fast(), d, hn::Sub(hn::LoadU(d, row + j), max));
    hn::StoreU(e, d, row + j);
    sum = hn::Add(sum, e);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(Exp2OfWholeRow);

float Exp2OfRow(float* row, Index seen, Index n) {
  const Index whole = (seen + 15) / 16 * 16;
  std::fill(row + seen, row + whole, -1e30f);
  const float sum = HWY_DYNAMIC_DISPATCH(Exp2OfWholeRow)(row, whole);
  if (whole < n) std::fill(row + whole, row + n, 0.0f);
  return sum;
}

void ScaleRow(float* row, Index n, float factor) {
  for (Index j = 0; j < n; ++j) row[j] *= factor;
}

}  // namespace attest
#endif  // HWY_ONCE
