// SPDX-License-Identifier: Apache-2.0
// Lists, chooses and identifies SIMD targets through Highway's dynamic dispatch.
#include "optimized/targets.h"

#include <string>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/targets.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

const char* NameOfCompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(NameOfCompiledTarget);

std::int64_t forced_target = 0;  // as given to Highway; 0: not forced

// Highway's own answer, asked for once: each time it asks the processor, which is slow in a virtual
// machine.
std::int64_t SupportedTargets() {
  static const std::int64_t targets = hwy::SupportedTargets();
  return targets;
}

void SetForcedTarget(std::int64_t target) {
  const std::int64_t supported = SupportedTargets();  // before anything is forced
  hwy::SetSupportedTargetsForTest(target);
  hwy::GetChosenTarget().Update(target != 0 ? target : supported);
  forced_target = target;
}

// Lower bits are better targets. The baseline can always run: it is what the compiler may assume
// everywhere, even where Highway's own library was built with another fallback.
std::int64_t RunnableMask() {
  static const std::int64_t mask = (SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  return mask;
}

}  // namespace

std::vector<std::string_view> RunnableTargets() {
  std::vector<std::string_view> names;
  for (std::int64_t rest = RunnableMask(); rest != 0; rest &= rest - 1) {
    names.emplace_back(hwy::TargetName(rest & -rest));
  }
  return names;
}

std::string_view ChosenTarget() {
  const std::int64_t mask = forced_target != 0 ? forced_target : RunnableMask();
  return hwy::TargetName(mask & -mask);
}

std::string_view RunningTarget() { return HWY_DYNAMIC_DISPATCH(NameOfCompiledTarget)(); }

std::map<std::string, std::string> OptimizedLibraries() {
  return {{"Highway", std::to_string(HWY_MAJOR) + "." + std::to_string(HWY_MINOR) + "." +
                          std::to_string(HWY_PATCH)}};
}

StatusOr<ScopedTarget> ScopedTarget::Force(std::string_view name) {
  std::string known;
  for (std::int64_t rest = RunnableMask(); rest != 0; rest &= rest - 1) {
    const std::int64_t target = rest & -rest;
    if (hwy::TargetName(target) == name) return ScopedTarget(target);
    known += std::string(known.empty() ? "" : ", ") + hwy::TargetName(target);
  }
  return NotFound("SIMD target \"" + std::string(name) + "\": this machine runs " + known);
}

ScopedTarget::ScopedTarget(std::int64_t target)
    : previous_(forced_target), active_(target != forced_target) {
  if (active_) SetForcedTarget(target);
}

ScopedTarget::ScopedTarget(ScopedTarget&& other) noexcept
    : previous_(other.previous_), active_(std::exchange(other.active_, false)) {}

ScopedTarget::~ScopedTarget() {
  if (active_) SetForcedTarget(previous_);
}

}  // namespace attest
#endif  // HWY_ONCE
