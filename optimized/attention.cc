// SPDX-License-Identifier: Apache-2.0
// Checks a call and hands it to the kernel of its algorithm.
#include "optimized/attention.h"

#include "optimized/attention_check.h"
#include "optimized/forward_tiled.h"

namespace attest {

template <class ModePolicy>
Status AttentionForward(ModePolicy mode, AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs, Execution& execution) {
  if (StatusOr<Dimensions> n = CheckInputs(args); !n.ok()) return n.status();
  if (Status s = CheckOutputs(args, outputs); !s.ok()) return s;
  switch (algorithm) {
    case AttentionAlgorithm::kTiled:
      ForwardTiled(mode, args, outputs, execution);
      return Status();
    default:
      return Unsupported("");
  }
}

Status AttentionForward(Mode mode, AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs, Execution& execution) {
  switch (mode) {
    case Mode::kFast:
      return AttentionForward(Fast(), algorithm, args, outputs, execution);
    case Mode::kReproducible:
      return AttentionForward(Reproducible(), algorithm, args, outputs, execution);
    case Mode::kAccurate:
      return AttentionForward(Accurate(), algorithm, args, outputs, execution);
  }
  return Internal("attention: no such mode");
}

}  // namespace attest
