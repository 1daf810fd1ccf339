// SPDX-License-Identifier: Apache-2.0
// Right implementations of attention and its gradients, for every kind of score, that round in
// different places and orders; and the same with a seeded fault in the gradients.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"

namespace attest {

enum class BackwardVariant {
  kTextbook,           // weights kept from the forward pass, delta = sum p dP
  kFromOutput,         // delta = <dO, o> from the unrounded output, weights recomputed from the LSE
  kFromRoundedOutput,  // the same from an output that was rounded to its type
  kReversed,           // every sum from last to first, W k before q, scale on the query
  kPairwise,           // every sum by halves, dS = p dP - p (delta - dL), scale on dS
  kUnroundedScores,    // dS is not rounded to the 16-bit type of the profile before products
  kFlat,               // projections of an additive score in one sum; dL joined to delta
};
std::vector<BackwardVariant> AllBackwardVariants();
std::string NameOf(BackwardVariant variant);

enum class GradientFault {
  kNone,
  kDeltaOmitted,
  kScaleMissingInGradQ,
  kGroupMissesAHead,  // grad_k and grad_v without the last head of a group
  kCapDerivativeMissing,
  kTransposedScores,  // dS_ji for dS_ij, where both exist
  kBiasNotSummed,     // a broadcast bias gets the last summand alone
  kSinkSign,
  kGradLseIgnored,
  kDropoutMissingInGradV,
  kTanhDerivativeMissing,  // of an additive score
  kParameterTransposed,    // W^T for W in grad_q of a general score
  kScoresRoundedToBf16,    // dS rounded to bf16 where the profile does not
};
std::vector<GradientFault> AllGradientFaults();
std::string NameOf(GradientFault fault);

// Takes every contract with the empty row policy `zero` and finite inputs. The arithmetic follows
// the contract's profile as in right_variant.h: f64 for f64, else f32; the 16-bit profiles round
// weights and dS before products, the -math ones store every step of the scores and of dS.
std::unique_ptr<Subject> MakeRightGradient(BackwardVariant variant,
                                           GradientFault fault = GradientFault::kNone);

}  // namespace attest
