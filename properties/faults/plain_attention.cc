// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_attention.h"

#include "properties/faults/plain_backward.h"
#include "properties/faults/plain_forward.h"

namespace attest {
namespace {

// The fault that gives every head the mean of all heads' weights.
void AverageWeightsOverHeads(const PlainCall& call) {
  const Dimensions& s = call.shape();
  for (Index b = 0; b < s.batch; ++b) {
    for (Index i = 0; i < s.q_len; ++i) {
      for (Index j = 0; j < s.kv_len; ++j) {
        double sum = 0.0;
        for (Index h = 0; h < s.q_heads; ++h) sum += call.out.weights(b, h, i, j);
        const double mean = sum / static_cast<double>(s.q_heads);
        for (Index h = 0; h < s.q_heads; ++h) call.out.weights.Set(mean, b, h, i, j);
      }
    }
  }
}

template <class T>
void Run(const PlainCall& call) {
  const Dimensions& s = call.shape();
  PlainForward<T> forward(call);
  PlainBackward<T> backward(call);
  const bool gradients = call.out.AnyGradient();
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.q_heads; ++h) {
      for (Index i = 0; i < s.q_len; ++i) {
        const PlainRow<T> row = forward.Compute(b, h, i);
        forward.Write(row);
        if (gradients) backward.Add(row);
        if (call.Has(Fault::kStaleOutput)) {
          call.state->accumulator.assign(row.out.begin(), row.out.end());
        }
      }
    }
  }
  if (gradients) backward.Write();
  if (call.Has(Fault::kWeightsAveragedOverHeads) && call.out.weights.present()) {
    AverageWeightsOverHeads(call);
  }
}

// Controls that sum up other terms than those the bounds count do so in double.
bool IsWide(const PlainCall& call) {
  return call.contract->dtype == DType::kF64 || call.contract->arithmetic.profile == "f64" ||
         call.Has(Control::kAlibiByColumn) || call.Has(Control::kAlibiUniformOffset) ||
         call.Has(Control::kMaskAfterSoftmaxRenormalised) || call.Has(Control::kRowConstantShift);
}

}  // namespace

void PlainAttention(const PlainCall& call) {
  if (IsWide(call)) {
    Run<double>(call);
  } else {
    Run<float>(call);
  }
}

}  // namespace attest
