// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of a row softmax and dispatches it.
#include "optimized/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

void SoftmaxRows(SoftmaxAlgorithm algorithm, View<const float, 2> x, View<float, 2> y, float* lse) {
  const hn::CappedTag<float, kMaxLanes> d;
  const auto n = static_cast<std::size_t>(x.shape[1]);
  for (Index i = 0; i < x.shape[0]; ++i) {
    const float* in = x.data + i * x.strides[0];
    float* out = y.data + i * y.strides[0];
    const float row_lse = algorithm == SoftmaxAlgorithm::kOnline ? SoftmaxOnline(d, in, n, out)
                                                                 : SoftmaxShifted(d, in, n, out);
    if (lse != nullptr) lse[i] = row_lse;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(SoftmaxRows);

Status RowSoftmax(SoftmaxAlgorithm algorithm, View<const float, 2> x, View<float, 2> y,
                  float* lse) {
  if (x.shape != y.shape) return InvalidArgument("softmax: x and y differ in shape");
  const auto [rows, n] = x.shape;
  if (rows < 0 || n < 0) return InvalidArgument("softmax: negative extent");
  if (n > 1 && (x.strides[1] != 1 || y.strides[1] != 1)) {
    return InvalidArgument("softmax: the last axis must have stride 1");
  }
  if (rows > 1 && n > 0 && y.strides[0] == 0) {
    return InvalidArgument("softmax: the rows of y coincide (stride 0)");
  }
  if (rows > 0 && n > 0 && (x.data == nullptr || y.data == nullptr)) {
    return InvalidArgument("softmax: x or y has no data");
  }
  HWY_DYNAMIC_DISPATCH(SoftmaxRows)(algorithm, x, y, lse);
  return Status();
}

}  // namespace attest
#endif  // HWY_ONCE
