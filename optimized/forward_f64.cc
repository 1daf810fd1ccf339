// SPDX-License-Identifier: Apache-2.0
// The tiled forward kernels with double scores: f64 in every mode, and f32 accurately.
#include <type_traits>

#include "optimized/forward_task.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/forward_f64.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/forward_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

template <class Policy, class W>
const ForwardKernels<double>* Kernels() {
  using Forward = TiledForward<Policy, double, W>;
  static constexpr ForwardKernels<double> kKernels{
      Forward::QueryRows, Forward::Scratch, Forward::Rows, PackPanels<double>, Forward::Project};
  return &kKernels;
}

// Where multiply-adds are fused anyway, Fast is Reproducible: one kernel serves both.
using FastOrSame = std::conditional_t<HWY_NATIVE_FMA, Reproducible, Fast>;

const ForwardKernels<double>* FastF64() { return Kernels<FastOrSame, double>(); }
const ForwardKernels<double>* ReproducibleF64() { return Kernels<Reproducible, double>(); }
const ForwardKernels<double>* AccurateF64() { return Kernels<Accurate, double>(); }
const ForwardKernels<double>* AccurateF32() { return Kernels<Accurate, float>(); }

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(FastF64);
HWY_EXPORT(ReproducibleF64);
HWY_EXPORT(AccurateF64);
HWY_EXPORT(AccurateF32);

template <>
const ForwardKernels<double>& KernelsOf<Fast, double, double>() {
  return *HWY_DYNAMIC_DISPATCH(FastF64)();
}
template <>
const ForwardKernels<double>& KernelsOf<Reproducible, double, double>() {
  return *HWY_DYNAMIC_DISPATCH(ReproducibleF64)();
}
template <>
const ForwardKernels<double>& KernelsOf<Accurate, double, double>() {
  return *HWY_DYNAMIC_DISPATCH(AccurateF64)();
}
template <>
const ForwardKernels<double>& KernelsOf<Accurate, double, float>() {
  return *HWY_DYNAMIC_DISPATCH(AccurateF32)();
}

}  // namespace attest
#endif  // HWY_ONCE
