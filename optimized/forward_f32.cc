// SPDX-License-Identifier: Apache-2.0
// The tiled forward kernels with float scores and float sums: modes Fast and Reproducible.
#include "optimized/forward_task.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/forward_f32.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/forward_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

template <class Policy>
const ForwardKernels<float>* Kernels() {
  using Forward = TiledForward<Policy, float, float>;
  static constexpr ForwardKernels<float> kKernels{
      Forward::QueryRows, Forward::Scratch, Forward::Rows, PackPanels<float>, Forward::Project};
  return &kKernels;
}

const ForwardKernels<float>* FastF32() { return Kernels<Fast>(); }
const ForwardKernels<float>* ReproducibleF32() { return Kernels<Reproducible>(); }

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(FastF32);
HWY_EXPORT(ReproducibleF32);

template <>
const ForwardKernels<float>& KernelsOf<Fast, float, float>() {
  return *HWY_DYNAMIC_DISPATCH(FastF32)();
}
template <>
const ForwardKernels<float>& KernelsOf<Reproducible, float, float>() {
  return *HWY_DYNAMIC_DISPATCH(ReproducibleF32)();
}

}  // namespace attest
#endif  // HWY_ONCE
