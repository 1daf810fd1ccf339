// SPDX-License-Identifier: Apache-2.0
// Laws about calls: what lies in buffers, how tensors lie in memory, how many threads there are and
// what else is asked for decides no element. Bit by bit as far as a subject declares it: the same
// call where it is deterministic, the same row where it is batch invariant as well.
#include <utility>

#include "audit/law_support.h"

namespace attest {
namespace {

// A page of memory is touched for every row of a sparse tensor.
constexpr Index kLargestSparseCase = 256;  // rows of all tensors

// The same case called in other ways against the plain call.
LawResult CalledOtherwise(const Subject& subject, const Case& problem,
                          const std::vector<CallOptions>& calls, bool bits,
                          ExpectationCache& expectations, const std::string& explanation) {
  LawResult result;
  const StatusOr<const Expectation*> expected = expectations.Of(problem);
  if (!expected.ok()) return {};
  const std::optional<TensorMap> plain = bits ? RunOk(subject, problem, &result) : TensorMap();
  if (!plain) return result;
  for (const CallOptions& call : calls) {
    const std::optional<TensorMap> outputs = RunOk(subject, problem, &result, call);
    if (result.violation) {
      result.violation->explanation = std::string("layout ") + NameOf(call.layout) + ", " +
                                      std::to_string(call.threads) +
                                      " thread(s): " + result.violation->explanation;
      return result;
    }
    if (!outputs) continue;  // no address space for this layout here
    result.applied = true;
    result.violation = bits ? FirstDifference(*outputs, *plain, explanation)
                            : FirstAboveBound(**expected, *outputs, explanation);
    if (result.violation) return result;
  }
  return result;
}

LawResult Repeatable(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  return CalledOtherwise(subject, problem,
                         {{.junk = Junk::kHuge}, {.junk = Junk::kNaN}, {.junk = Junk::kHuge}},
                         subject.info().deterministic, expectations,
                         "the result depends on what the output buffer or the memory around the "
                         "tensors held before");
}

LawResult Threads(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  if (!subject.info().threaded) return {};
  // Twice 3, because what is unordered is seen by chance.
  const std::vector<CallOptions> calls{
      {.threads = 2}, {.threads = 3}, {.threads = 3}, {.threads = 5}};
  return CalledOtherwise(subject, problem, calls, HasFixedBits(subject), expectations,
                         "the result depends on the number of threads");
}

Index RowsOf(const Case& problem) {
  Index rows = 0;
  const auto add = [&](const Shape& shape) {
    Index count = 1;
    for (std::size_t axis = 0; axis + 1 < shape.size(); ++axis) count *= shape[axis];
    rows += count;
  };
  for (const auto& [name, tensor] : problem.tensors) add(tensor.shape());
  for (const std::string& name : problem.contract.outputs) add(OutputShape(problem, name));
  return rows;
}

LawResult Layouts(const Subject& subject, const Case& problem, ExpectationCache& expectations) {
  if (!subject.info().strided) return {};
  std::vector<CallOptions> calls;
  for (const Layout layout : kLayouts) {
    if (layout == Layout::kDense) continue;
    if (layout == Layout::kSparse && RowsOf(problem) > kLargestSparseCase) continue;
    calls.push_back({.layout = layout});
  }
  return CalledOtherwise(subject, problem, calls, HasFixedBits(subject), expectations,
                         "the result depends on how the tensors lie in memory");
}

LawResult OptionalOutputs(const Subject& subject, const Case& problem,
                          ExpectationCache& expectations) {
  if (problem.contract.outputs.size() < 2) return {};
  std::vector<Case> variations;
  for (const std::string& output : Forward(problem).contract.outputs) {
    Case fewer = problem;
    fewer.contract.outputs = {output};
    // Subjects may count on a place for `out`.
    if (output != "out" && problem.contract.Wants("out")) fewer.contract.outputs.push_back("out");
    if (fewer.contract.outputs.size() < problem.contract.outputs.size()) {
      variations.push_back(std::move(fewer));
    }
  }
  return EachGivesTheSame(subject, problem, variations, HasFixedBits(subject), expectations,
                          "an output depends on which others are asked for");
}

}  // namespace

std::vector<Law> CallLaws() {
  return {
      {"repeatable",
       "the same call gives the same, whatever lay in the buffers (bit by bit where declared)",
       Repeatable},
      {"threads", "any number of threads gives the same (bit by bit where declared)", Threads},
      {"layouts", "tensors of any layout give the same (bit by bit where declared)", Layouts},
      {"optional-outputs", "what else is asked for does not change an output", OptionalOutputs},
  };
}

}  // namespace attest
