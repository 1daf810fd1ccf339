// SPDX-License-Identifier: Apache-2.0
#include "audit/suite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "audit/case_spec.h"

namespace attest {
namespace {

Dimensions Shaped(Index batch, Index q_heads, Index kv_heads, Index q_len, Index kv_len,
                  Index qk_dim, Index v_dim) {
  return {batch, q_heads, kv_heads, q_len, kv_len, qk_dim, qk_dim, v_dim};
}

struct FamilySpec {
  std::string family;
  CaseSpec spec;
};

// Every length and head size where a vector loop may end: 0, 1, and both sides of 4, 8, 16, 32, 64.
void AddTails(std::vector<FamilySpec>* specs) {
  for (const Index n : {0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65}) {
    specs->push_back({"lengths", {.shape = Shaped(1, 1, 1, 2, n, 4, 4)}});
    if (n > 0) specs->push_back({"head sizes", {.shape = Shaped(1, 1, 1, 2, 5, n, n + 1)}});
  }
  specs->push_back({"lengths", {.shape = Shaped(1, 1, 1, 0, 3, 4, 4)}});
}

void AddMasks(std::vector<FamilySpec>* specs) {
  for (const auto& [q_len, kv_len] : {std::pair<Index, Index>{9, 9}, {5, 12}, {12, 5}, {1, 17}}) {
    for (const Causal causal : {Causal::kNone, Causal::kTopLeft, Causal::kBottomRight}) {
      CaseSpec spec{.shape = Shaped(2, 2, 2, q_len, kv_len, 8, 8), .causal = causal};
      specs->push_back({causal == Causal::kNone ? "plain" : "causal", spec});
      spec.kv_lengths = true;
      specs->push_back({"key lengths", spec});
      spec.q_lengths = true;
      specs->push_back({"key and query lengths", spec});
      spec.mask = spec.bias = true;
      specs->push_back({"mask, bias and lengths", spec});
    }
  }
  for (const EmptyRow policy : {EmptyRow::kNan, EmptyRow::kUniform}) {
    specs->push_back({"empty rows",
                      {.shape = Shaped(2, 1, 1, 6, 3, 4, 4),
                       .causal = Causal::kBottomRight,
                       .empty_row = policy,
                       .kv_lengths = true}});
    specs->push_back({"empty rows", {.shape = Shaped(1, 1, 1, 2, 0, 4, 4), .empty_row = policy}});
  }
}

void AddHeads(std::vector<FamilySpec>* specs) {
  for (const auto& [q_heads, kv_heads] : {std::pair<Index, Index>{4, 2}, {6, 3}, {4, 1}, {6, 2}}) {
    specs->push_back(
        {"grouped heads", {.shape = Shaped(2, q_heads, kv_heads, 3, 6, 4, 6), .bias = true}});
  }
}

void AddValues(std::vector<FamilySpec>* specs, Index q_len, Index kv_len, Index dim) {
  for (const Values values :
       {Values::kNormal, Values::kOutliers, Values::kSmallIntegers, Values::kTies, Values::kOneHot,
        Values::kSpread, Values::kConstantValues, Values::kSubnormal, Values::kZero}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, q_len, kv_len, dim, dim), .values = values};
    const std::string family = std::string("values: ") + NameOf(values);
    specs->push_back({family, spec});
    spec.scale = {false, 1.0};
    spec.causal = Causal::kBottomRight;
    specs->push_back({family, spec});
  }
}

// Gradients with every feature of the contract that they pass through, small.
void AddGradients(std::vector<FamilySpec>* specs) {
  const auto add = [&](const char* family, CaseSpec spec) {
    spec.gradients = true;
    specs->push_back({std::string("gradients: ") + family, spec});
  };
  const Dimensions small = Shaped(1, 2, 2, 5, 7, 8, 8);
  add("plain", {.shape = small});
  add("plain", {.shape = Shaped(1, 1, 1, 3, 17, 4, 9)});
  add("causal", {.shape = Shaped(1, 2, 2, 9, 9, 8, 8), .causal = Causal::kTopLeft});
  add("causal", {.shape = Shaped(1, 2, 2, 5, 12, 8, 8), .causal = Causal::kBottomRight});
  add("grouped heads", {.shape = Shaped(2, 4, 2, 3, 6, 4, 6)});
  add("bias", {.shape = small, .bias = true});
  add("bias", {.shape = small, .broadcast_bias = true});
  add("sinks", {.shape = small, .sinks = true});
  add("soft cap", {.shape = small, .softcap = 2.0});
  add("dropout", {.shape = small, .dropout_rate = 0.25});
  add("LSE", {.shape = small, .grad_lse = true});
  add("lengths and empty rows", {.shape = Shaped(2, 2, 1, 6, 5, 4, 4),
                                 .causal = Causal::kBottomRight,
                                 .mask = true,
                                 .kv_lengths = true,
                                 .q_lengths = true});
  add("lengths and empty rows", {.shape = Shaped(2, 2, 1, 6, 3, 4, 4),
                                 .causal = Causal::kBottomRight,
                                 .kv_lengths = true,
                                 .sinks = true,
                                 .grad_lse = true});
  for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) {
    add("element types", {.shape = small, .dtype = dtype});
    add("element types", {.shape = Shaped(1, 4, 2, 5, 9, 8, 4),
                          .dtype = dtype,
                          .causal = Causal::kBottomRight,
                          .sinks = true});
  }
}

// The scores general and additive, with and without gradients. D_q = D_k once each: there a
// transposed parameter still has the right shape.
void AddScores(std::vector<FamilySpec>* specs, Index q_len, Index kv_len, Index qk_dim,
               Index k_dim) {
  for (const ScoreKind score : {ScoreKind::kGeneral, ScoreKind::kAdditive}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, q_len, kv_len, qk_dim, qk_dim)};
    spec.score = score;
    const char* const family =
        score == ScoreKind::kGeneral ? "scores: general" : "scores: additive";
    specs->push_back({family, spec});
    spec.gradients = true;
    specs->push_back({family, spec});
    spec.shape.k_dim = k_dim;
    spec.causal = Causal::kBottomRight;
    specs->push_back({family, spec});
  }
}

std::vector<FamilySpec> QuickSpecs() {
  std::vector<FamilySpec> specs;
  AddTails(&specs);
  AddMasks(&specs);
  AddHeads(&specs);
  AddValues(&specs, 4, 19, 16);
  AddGradients(&specs);
  AddScores(&specs, 4, 9, 6, 4);
  return specs;
}

// Gradients and scores of sizes where blocks end, and of structured values.
void AddLargerGradients(std::vector<FamilySpec>* specs) {
  for (const Index n : {1, 16, 31, 33, 64, 65, 128}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, n, n + 3, 16, 24), .causal = Causal::kBottomRight};
    spec.gradients = spec.grad_lse = true;
    specs->push_back({"gradients: lengths", spec});
    spec.dtype = DType::kBF16;
    spec.sinks = true;
    specs->push_back({"gradients: lengths", spec});
  }
  for (const Values values :
       {Values::kOutliers, Values::kSmallIntegers, Values::kTies, Values::kOneHot, Values::kSpread,
        Values::kConstantValues, Values::kSubnormal, Values::kZero}) {
    CaseSpec spec{.shape = Shaped(1, 2, 1, 8, 40, 16, 16), .values = values};
    spec.gradients = true;
    specs->push_back({std::string("gradients: values: ") + NameOf(values), spec});
  }
  specs->push_back({"gradients: lengths",
                    {.shape = Shaped(1, 1, 1, 100, 512, 64, 64),
                     .causal = Causal::kBottomRight,
                     .mask = true,
                     .gradients = true}});
  AddScores(specs, 7, 33, 12, 8);
  AddScores(specs, 16, 17, 8, 12);
}

std::vector<FamilySpec> StandardSpecs() {
  std::vector<FamilySpec> specs = QuickSpecs();
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
  return specs;
}

std::vector<SuiteCase> FromSpecs(const std::string& suite, const std::vector<FamilySpec>& specs,
                                 std::uint64_t seed) {
  std::vector<SuiteCase> cases;
  for (const FamilySpec& s : specs) cases.push_back({suite, s.family, MakeCase(s.spec, seed)});
  return cases;
}

}  // namespace

const std::vector<SuiteInfo>& Suites() {
  static const std::vector<SuiteInfo> suites{
      {"quick",
       "generated: tails of every length, masks, grouped heads, structured values, gradients"},
      {"standard", "quick, and lengths to 4096 and head sizes to 257"},
      {"real", "activations of a trained sentence encoder on English sentences of 5 to 128 tokens"},
  };
  return suites;
}

StatusOr<std::vector<SuiteCase>> MakeSuite(const std::string& name, std::uint64_t seed) {
  if (name == "quick") return FromSpecs(name, QuickSpecs(), seed);
  if (name == "standard") return FromSpecs(name, StandardSpecs(), seed);
  if (name == "real") {
    StatusOr<std::filesystem::path> directory = ShippedCases("use_lite");
    if (!directory.ok()) return directory.status();
    StatusOr<std::vector<SuiteCase>> cases = ReadCases(*directory);
    if (!cases.ok()) return cases.status();
    for (SuiteCase& c : *cases) c.suite = name;
    return cases;
  }
  std::vector<std::string> names;
  for (const SuiteInfo& suite : Suites()) names.push_back(suite.name);
  return NotFound(fmt::format("no suite '{}' (known: {})", name, fmt::join(names, ", ")));
}

StatusOr<std::vector<SuiteCase>> ReadCases(const std::filesystem::path& directory,
                                           const std::optional<std::filesystem::path>& contract) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".safetensors" || extension == ".npz") files.push_back(entry.path());
  }
  if (error) return NotFound(fmt::format("{}: {}", directory.string(), error.message()));
  if (files.empty()) {
    return NotFound(fmt::format("{}: no .safetensors or .npz case in it", directory.string()));
  }
  std::sort(files.begin(), files.end());
  std::vector<SuiteCase> cases;
  for (const std::filesystem::path& file : files) {
    StatusOr<Case> problem = ReadCase(file, contract);
    if (!problem.ok()) return problem.status();
    cases.push_back({"files", problem->name, *std::move(problem)});
  }
  return cases;
}

StatusOr<std::filesystem::path> ShippedCases(const std::string& name) {
  std::vector<std::filesystem::path> roots;
  if (const char* given = std::getenv("ATTEST_CASES"); given != nullptr) {
    roots.emplace_back(given);
  } else {
    std::error_code error;
    const std::filesystem::path command = std::filesystem::read_symlink("/proc/self/exe", error);
    if (!error) roots.push_back(command.parent_path().parent_path() / "share/attest/cases");
    roots.emplace_back(ATTEST_SOURCE_CASES);
  }
  for (const std::filesystem::path& root : roots) {
    if (std::filesystem::is_directory(root / name)) return root / name;
  }
  return NotFound(
      fmt::format("no shipped cases '{}' in {} (set ATTEST_CASES to their folder)", name,
                  fmt::join(std::vector<std::string>(roots.begin(), roots.end()), ", ")));
}

}  // namespace attest
