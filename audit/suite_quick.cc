// SPDX-License-Identifier: Apache-2.0
// What is in the suites quick and standard.
#include <iterator>
#include <utility>

#include "audit/suite_family.h"

namespace attest {
namespace {

void Append(FamilySpecs more, FamilySpecs* specs) {
  std::move(more.begin(), more.end(), std::back_inserter(*specs));
}

}  // namespace

FamilySpecs QuickSpecs() {
  FamilySpecs specs;
  AddTails(&specs);
  AddMasks(&specs);
  AddHeads(&specs);
  AddValues(&specs, 4, 19, 16);
  AddGradients(&specs);
  AddScores(&specs, 4, 9, 6, 4);
  AddEveryLength(1, 20, &specs);
  AddEveryEnd(33, &specs);
  AddMaskPatterns(&specs);
  AddBroadcasts(&specs);
  AddWindows(5, 9, &specs);
  AddDocumentsAndLocal(&specs);
  AddJunk(&specs);
  AddScoreLevels(&specs);
  AddScoreOrders(33, &specs);
  AddSinks(&specs);
  AddScales(&specs);
  AddAlibi(&specs);
  AddDropout(&specs);
  AddOutputs(&specs);
  AddElementTypes(&specs);
  AddStagnation(2100, &specs);
  AddGradientBroadcasts(&specs);
  AddSingleGradients(&specs);
  Append(ForwardPairs(), &specs);
  Append(GradientPairs(), &specs);
  return specs;
}

FamilySpecs StandardSpecs() {
  FamilySpecs specs = QuickSpecs();
  AddValues(&specs, 16, 128, 64);
  for (const Index n : {127, 128, 129, 255, 256, 257, 513, 1024}) {
    specs.push_back({"long rows", {.shape = Shaped(1, 2, 1, 8, n, 32, 32)}});
    specs.push_back({"long rows",
                     {.shape = Shaped(1, 1, 1, 40, n, 16, 24),
                      .causal = Causal::kBottomRight,
                      .mask = true,
                      .kv_lengths = true}});
  }
  for (const Index d : {80, 96, 112, 127, 128, 129, 192, 256, 257}) {
    specs.push_back({"head sizes", {.shape = Shaped(1, 1, 1, 4, 40, d, d)}});
  }
  specs.push_back({"long rows", {.shape = Shaped(1, 1, 1, 4, 4096, 64, 64)}});
  AddLargerGradients(&specs);
  AddEveryLength(21, 130, &specs);
  for (Index n = 131; n <= 257; ++n) {
    specs.push_back({"every length", {.shape = Shaped(1, 1, 1, 1, n, 1, 1)}});
  }
  AddEveryEnd(129, &specs);
  AddWindows(6, 6, &specs);
  AddWindows(9, 5, &specs);
  AddScoreOrders(65, &specs);
  AddScoreOrders(129, &specs);
  AddStagnation(4096, &specs);
  Append(AllPairs(), &specs);
  return specs;
}

}  // namespace attest
