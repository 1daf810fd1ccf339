// SPDX-License-Identifier: Apache-2.0
// The backward kernels that accumulate in float: Fast and Reproducible but for f64.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/backward_f32.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/backward_steps-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

void RunFloatStep(const BackwardTask<float>& task, BackwardStep step, std::size_t index,
                  std::size_t thread) {
  RunStepOfMode(task, step, index, thread);
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(RunFloatStep);

void RunBackwardStep(const BackwardTask<float>& task, BackwardStep step, std::size_t index,
                     std::size_t thread) {
  HWY_DYNAMIC_DISPATCH(RunFloatStep)(task, step, index, thread);
}

}  // namespace attest
#endif  // HWY_ONCE
