// SPDX-License-Identifier: Apache-2.0
// Checks a call and hands it to the kernel of its algorithm.
#include "optimized/attention.h"

#include <algorithm>

#include "optimized/attention_check.h"
#include "optimized/forward_tiled.h"
#include "optimized/row_kernels.h"

namespace attest {

template <class ModePolicy>
Status AttentionForward(ModePolicy mode, AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs, Execution& execution) {
  if (StatusOr<Dimensions> n = CheckInputs(args); !n.ok()) return n.status();
  if (Status s = CheckOutputs(args, outputs); !s.ok()) return s;
  if (algorithm == AttentionAlgorithm::kAutomatic) {
    const Index kv_heads = std::max<Index>(args.k.shape[1], 1);
    const Index rows = args.q.shape[1] / kv_heads * args.q.shape[2];
    algorithm = rows <= kDecodeRows ? AttentionAlgorithm::kDecode : AttentionAlgorithm::kTiled;
  }
  switch (algorithm) {
    case AttentionAlgorithm::kTiled:
    case AttentionAlgorithm::kAutomatic:
      ForwardTiled(mode, args, outputs, execution);
      return Status();
    case AttentionAlgorithm::kDecode:
      return ForwardDecode(mode, args, outputs, execution);
    case AttentionAlgorithm::kMaterialised:
    case AttentionAlgorithm::kMaterialisedOnline:
    case AttentionAlgorithm::kMaterialisedTwoPass:
    case AttentionAlgorithm::kMaterialisedUnshifted:
      return ForwardMaterialised(mode, algorithm, args, outputs, execution);
  }
  return Internal("attention: no such algorithm");
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
