// SPDX-License-Identifier: Apache-2.0
// What laws are made of: runs of variations, comparisons, and rearrangements of a case along its
// axes. For the files law*.cc only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "audit/arithmetic_model.h"
#include "audit/judge.h"
#include "audit/law.h"
#include "reference/row_plan.h"

namespace attest {

// The laws of each theme.
std::vector<Law> WeightLaws();      // the weights of a row, read directly and through v
std::vector<Law> SaturationLaws();  // what softmax allows weights to be
std::vector<Law> JunkLaws();        // what takes no part changes nothing
std::vector<Law> MaskLaws();        // two ways to say which keys are allowed
std::vector<Law> SymmetryLaws();    // other orders of batches, heads, queries and keys
std::vector<Law> KeyLaws();         // keys added, doubled, split; scores shifted
std::vector<Law> ScalingLaws();     // exact factors
std::vector<Law> CallLaws();        // what a call may not depend on
std::vector<Law> GradientLaws();

// Runs a variation of a case; nothing where the subject does not take it or does not give every
// output that it asks for, and where it fails: then *result says so, because a law's variation of a
// case is a case like any other.
std::optional<TensorMap> RunOk(const Subject& subject, const Case& problem, LawResult* result,
                               const CallOptions& options = {});

// Declared: a row's bits are a function of its own inputs, whatever else is in the call.
bool HasFixedBits(const Subject& subject);

// The first element that differs; equal values of either sign of zero, and any two NaN, are alike.
// Outputs that only one of the two has are not compared.
std::optional<Violation> FirstDifference(const TensorMap& got, const TensorMap& expected,
                                         const std::string& explanation);

// The first output with an element above its bound, told by the worst of them.
std::optional<Violation> FirstAboveBound(const Expectation& expected, const TensorMap& outputs,
                                         const std::string& explanation);

// The variation should give what the case gives: bit by bit where `bits`, else within the bounds of
// the case.
LawResult GivesTheSame(const Subject& subject, const Case& problem, const Case& variation,
                       bool bits, ExpectationCache& expectations, const std::string& explanation);

// Whether the case itself is within its bounds, for laws about a rule that their variation does
// without. Nothing where it is; a result that is not applied where the subject does not take it.
std::optional<LawResult> Departs(const Subject& subject, const Case& problem,
                                 ExpectationCache& expectations, const std::string& explanation);

// The same of several variations, of which a subject may take some and not others.
LawResult EachGivesTheSame(const Subject& subject, const Case& problem,
                           const std::vector<Case>& variations, bool bits,
                           ExpectationCache& expectations, const std::string& explanation);

// The variation should be within the bounds of its own certified values.
LawResult StaysWithinBounds(const Subject& subject, const Case& variation,
                            ExpectationCache& expectations, const std::string& explanation);

// The case without gradients, and without what they are gradients of; `forward.contract.outputs` is
// empty where the case asks for nothing else.
Case Forward(const Case& problem);

// The axes of tensors that mean the same thing.
enum class Axis { kBatch, kQueryHead, kKeyHead, kQuery, kKey };

// Position i of an axis becomes position from[i] of it: a permutation, a part, or repetitions.
struct Selection {
  Axis axis;
  std::vector<Index> from;
};
using Selections = std::vector<Selection>;

std::vector<Index> Positions(Index first, Index last);  // first, .., last - 1
std::vector<Index> Backwards(Index count);              // count - 1, .., 0

// The case with every tensor that has one of the axes rearranged; broadcast axes stay.
Case Select(const Case& problem, const Selections& selections);

// For every element of an output of Select(problem, ..): where the same element is in that output
// of `problem`. -1 where `from` is -1.
std::vector<Index> Sources(const Case& problem, const std::string& output,
                           const Selections& selections);

// Elements of a rearranged case's outputs against those of the case: within its bounds, or bit by
// bit. Where a source is -1, 0 is expected.
std::optional<Violation> FirstAboveBound(const Expectation& expected, const Case& problem,
                                         const TensorMap& outputs, const Selections& selections,
                                         const std::string& explanation);
std::optional<Violation> FirstDifference(const Case& problem, const TensorMap& outputs,
                                         const TensorMap& expected, const Selections& selections,
                                         const std::string& explanation);

// Whether a rule depends on the positions of keys or of queries: then another order of them, or
// another number, is another question.
bool HasAlibi(const Case& problem);
bool KeyPositionsMatter(const Case& problem);
bool QueryPositionsMatter(const Case& problem);

// Every rule but local attention and the bias: causal, window, lengths, documents and mask.
bool HasRules(const Case& problem);
void RemoveRules(Case* problem);
// The same rules, and the bias's, as one mask [B, Hq, Tq, Tk].
Tensor AllowedMask(const CaseData& data);

// Keys that no query of their group may see, as [B, Hkv, Tk].
std::vector<bool> InvisibleKeys(const CaseData& data);

Tensor Filled(DType dtype, const Shape& shape, double value);
Tensor Times(const Tensor& tensor, double factor);

// The magnitudes of a tensor's elements.
struct Magnitudes {
  double smallest;  // of those that are not 0; infinite where all are
  double largest;
  bool finite;
};
Magnitudes MagnitudesOf(const Tensor& tensor);

// The format that limits what a profile may do to intermediate results without rounding: the
// narrowest in which it keeps scores, weights times values, and sums.
struct Limits {
  double unit_roundoff;
  double smallest_normal;
  double largest;
};
Limits LimitsOf(const Contract& contract);

// The exact scale where it is a number: given, or 1/sqrt(D_k) with D_k a power of 4.
std::optional<double> ExactScale(const Contract& contract);

}  // namespace attest
