// SPDX-License-Identifier: Apache-2.0
// Shrinking: from a case that fails to a small one that still does.
#pragma once

#include <functional>

#include "core/case.h"

namespace attest {

struct ShrinkLimits {
  Index calls = 2000;     // of the predicate; the result depends on this limit alone ...
  double seconds = 20.0;  // ... unless time runs out first
  // Called after every call of the predicate with the number of calls so far.
  std::function<void(Index)> progress;
};

// The simplest case that was found with `still_fails`; `failing` itself where nothing simpler
// fails. Every candidate is a valid case of the same name, element type and arithmetic: first
// features are dropped one by one (tensors, rules, outputs), then entries of every axis (halves,
// quarters, ... single ones), then numbers become 0, 1, integers and short mantissas, until
// nothing of that helps or a limit is reached. `still_fails(failing)` is taken for true.
Case Shrink(const Case& failing, const std::function<bool(const Case&)>& still_fails,
            const ShrinkLimits& limits = {});

}  // namespace attest
