// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/smallest_inputs.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "audit/case_spec.h"

namespace attest {
namespace {

// Batch entry 0 by itself.
Case FirstEntry(const Case& problem) {
  Case alone = problem;
  alone.contract.shape.batch = 1;
  for (auto& [name, tensor] : alone.tensors) {
    Shape shape = tensor.shape();
    shape[0] = 1;
    Tensor entry(tensor.dtype(), shape);
    std::memcpy(entry.bytes(), tensor.bytes(), entry.byte_size());
    tensor = std::move(entry);
  }
  const Status finished = FinishCase(&alone);
  assert(finished.ok());
  static_cast<void>(finished);
  return alone;
}

}  // namespace

std::vector<SmallestInput> SmallestInputs() {
  std::vector<SmallestInput> all;
  for (const auto& part : {SmallestMaskInputs(), SmallestCausalInputs(), SmallestScoreInputs(),
                           SmallestSoftmaxInputs(), SmallestMemoryInputs(),
                           SmallestBackwardInputs(), SmallestElementaryInputs()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

std::vector<EqualCalls> CallsThatAgree() {
  const Case batch = MakeCase({.shape = {8, 1, 1, 1, 1024, 4, 4, 4}}, 0);
  const Case alone = FirstEntry(batch);
  const Case gradients = MakeCase({.shape = {1, 1, 1, 1, 512, 4, 4, 4}, .gradients = true}, 0);
  return {{"split-count-from-batch", alone, batch, "out", {}, {}, 1},
          {"split-count-from-threads", alone, alone, "out", {}, {.threads = 4}, 1},
          {"atomic-order", gradients, gradients, "grad_q", {}, {}, 20}};
}

}  // namespace attest
