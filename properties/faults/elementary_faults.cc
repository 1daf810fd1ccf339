// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_tables.h"

namespace attest {

std::vector<FaultInfo> ElementaryFaults() {
  const auto elementary = [](const char* name, const char* behaviour, Fault fault) {
    return FaultInfo{name, "elementary", behaviour, "elementary", fault};
  };
  return {
      elementary("grad-q-without-scale", "grad_q lacks the scale", Fault::kGradQWithoutScale),
      elementary("accumulator-not-rescaled",
                 "when the maximum rises, the sum is rescaled and the accumulator is not",
                 Fault::kAccumulatorNotRescaled),
      elementary("lse-without-maximum", "the LSE is the logarithm of the shifted sum",
                 Fault::kLseWithoutMaximum),
      elementary("values-in-reverse-order", "v is read from the last key to the first",
                 Fault::kValuesInReverseOrder),
      elementary("last-key-dropped", "the last key takes no part", Fault::kLastKeyDropped),
      elementary("key-counted-twice", "the key in the middle counts twice",
                 Fault::kKeyCountedTwice),
      elementary("head-output-shifted", "the output of head h is written to head h + 1",
                 Fault::kHeadOutputShifted),
      elementary("scale-off-by-one-percent", "the scale is 1% too large",
                 Fault::kScaleOffByOnePercent),
      elementary("weights-off-by-one-thousandth", "every weight is too large by 1e-3, relative",
                 Fault::kWeightsOffByOneThousandth),
      elementary("exponential-of-twelve-bits", "an exponential with a relative error of 2^-12",
                 Fault::kExponentialOfTwelveBits),
      elementary("accumulation-in-bf16", "the output is summed up in bf16",
                 Fault::kAccumulationInBf16),
      elementary("accumulation-in-f16", "the output is summed up in f16",
                 Fault::kAccumulationInF16),
      elementary("denominator-in-bf16", "the sum of exponentials is kept in bf16",
                 Fault::kDenominatorInBf16),
      elementary("stale-output",
                 "the accumulator of the first row starts where the call before ended",
                 Fault::kStaleOutput),
      elementary("split-count-from-threads", "the number of partial sums is that of the threads",
                 Fault::kSplitCountFromThreads),
  };
}

}  // namespace attest
