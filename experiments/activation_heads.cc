// SPDX-License-Identifier: Apache-2.0
#include "experiments/activation_heads.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <tuple>
#include <utility>

#include "audit/case_slice.h"
#include "audit/suite.h"

namespace attest {
namespace {

std::vector<Index> UpTo(Index count) {
  std::vector<Index> entries(static_cast<std::size_t>(count));
  std::iota(entries.begin(), entries.end(), Index{0});
  return entries;
}

// Number of tokens of a sentence before its padding; -1 where padding is not at the end alone.
Index TokensOf(const Tensor& bias, Index batch) {
  const Index length = bias.size() / bias.shape()[0];
  Index tokens = 0;
  while (tokens < length && bias.At(batch * length + tokens) == 0.0) ++tokens;
  for (Index j = tokens; j < length; ++j) {
    if (bias.At(batch * length + j) > -1e8) return -1;
  }
  return tokens;
}

}  // namespace

StatusOr<std::vector<ActivationHead>> ReadActivationHeads() {
  StatusOr<std::filesystem::path> folder = ShippedCases("use_lite");
  if (!folder.ok()) return folder.status();
  StatusOr<std::vector<SuiteCase>> files = ReadCases(*folder);
  if (!files.ok()) return files.status();
  std::vector<ActivationHead> heads;
  for (const SuiteCase& file : *files) {
    const Case& problem = file.problem;
    const std::string& name = problem.name;
    const std::size_t mark = name.rfind("_L");
    const Tensor* bias = problem.Find("bias");
    if (mark == std::string::npos || mark + 3 != name.size() || bias == nullptr) {
      return InvalidArgument(fmt::format("{}: not a layer of use_lite", name));
    }
    StatusOr<TensorMap> result =
        ReadResult(*folder / "tfjs" / fmt::format("{}.safetensors", name), problem);
    if (!result.ok()) return result.status();
    const auto out = result->find("out");
    if (out == result->end()) return InvalidArgument(fmt::format("tfjs/{}: no out", name));
    for (Index b = 0; b < problem.contract.shape.batch; ++b) {
      const Index tokens = TokensOf(*bias, b);
      if (tokens < 1) return InvalidArgument(fmt::format("{}: padding of sentence {}", name, b));
      for (Index h = 0; h < problem.contract.shape.kv_heads; ++h) {
        ActivationHead head{name[mark + 2] - '0', h, tokens, problem, out->second};
        head.problem.tensors.erase("bias");
        head.problem = KeepEntries(head.problem, CaseAxis::kBatch, {b});
        head.problem = KeepEntries(head.problem, CaseAxis::kKvHeads, {h});
        head.problem = KeepEntries(head.problem, CaseAxis::kQueries, UpTo(tokens));
        head.problem = KeepEntries(head.problem, CaseAxis::kKeys, UpTo(tokens));
        head.problem.contract.outputs = {"out"};
        head.problem.name = fmt::format("{} sentence {} head {}", name, b, h);
        head.recorded = TakeEntries(head.recorded, 0, {b});
        head.recorded = TakeEntries(head.recorded, 1, {h});
        head.recorded = TakeEntries(head.recorded, 2, UpTo(tokens));
        heads.push_back(std::move(head));
      }
    }
  }
  std::sort(heads.begin(), heads.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.layer, a.tokens, a.head) < std::tuple(b.layer, b.tokens, b.head);
  });
  return heads;
}

}  // namespace attest
