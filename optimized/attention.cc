// SPDX-License-Identifier: Apache-2.0
// Checks a call and hands it to the kernel of its algorithm.
#include "optimized/attention.h"

#include "optimized/attention_check.h"
#include "optimized/forward_tiled.h"
#include "optimized/row_kernels.h"

namespace attest {
namespace {

bool FewRows(const AttentionArgs& args) {
  return args.k.shape[1] > 0 &&
         args.q.shape[2] * (args.q.shape[1] / args.k.shape[1]) <= kDecodeRows;
}

}  // namespace

template <class ModePolicy>
Status AttentionForward(ModePolicy mode, AttentionAlgorithm algorithm, const AttentionArgs& args,
                        const AttentionOutputs& outputs, Execution& execution) {
  if (StatusOr<Dimensions> n = CheckInputs(args); !n.ok()) return n.status();
  if (Status s = CheckOutputs(args, outputs); !s.ok()) return s;
  switch (algorithm) {
    case AttentionAlgorithm::kTiled:
      ForwardTiled(mode, args, outputs, execution);
      return Status();
    case AttentionAlgorithm::kDecode:
      return ForwardDecode(mode, args, outputs, execution);
    case AttentionAlgorithm::kAutomatic:
      if (FewRows(args)) return ForwardDecode(mode, args, outputs, execution);
      ForwardTiled(mode, args, outputs, execution);
      return Status();
    default:
      return ForwardMaterialised(mode, algorithm, args, outputs, execution);
  }
}

template Status AttentionForward(Fast, AttentionAlgorithm, const AttentionArgs&,
                                 const AttentionOutputs&, Execution&);
template Status AttentionForward(Reproducible, AttentionAlgorithm, const AttentionArgs&,
                                 const AttentionOutputs&, Execution&);
template Status AttentionForward(Accurate, AttentionAlgorithm, const AttentionArgs&,
                                 const AttentionOutputs&, Execution&);

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
