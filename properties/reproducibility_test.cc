// SPDX-License-Identifier: Apache-2.0
// The comparison of bits behind the experiment reproducibility: it sees each kind of difference,
// and none where there is none.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "audit/builtin.h"
#include "experiments/bit_comparison.h"
#include "experiments/experiment.h"

namespace attest {
namespace {

// A kernel whose output changes in one bit by the call's shape, threads or number.
class Fickle : public Subject {
 public:
  // What is added to the last place of the first element of every row.
  using Change = int (*)(const Case& problem, const CallOptions& options, int call);

  explicit Fickle(Change change) : change_(change) {
    kernel_ = *MakeBuiltinSubject("tiled-reproducible");
    info_ = kernel_->info();
  }
  const SubjectInfo& info() const override { return info_; }
  Outcome Run(const Case& problem, const CallOptions& options) const override {
    Outcome outcome = kernel_->Run(problem, options);
    Tensor& out = outcome.outputs.at("out");
    const int change = change_(problem, options, calls_++);
    const Index width = out.shape().back();
    if (out.dtype() == DType::kF32 && change != 0) {
      for (Index i = 0; i < out.size(); i += width) {
        auto* bits = reinterpret_cast<std::uint32_t*>(out.bytes()) + i;
        *bits ^= static_cast<std::uint32_t>(change);
      }
    }
    return outcome;
  }

 private:
  std::unique_ptr<Subject> kernel_;
  SubjectInfo info_;
  Change change_;
  mutable int calls_ = 0;
};

// By variation: how many elements differ.
std::map<std::string, Index> DifferencesOf(const Subject& subject) {
  const BitReport report = CompareBits(subject, ComparedCases(false, 1));
  EXPECT_EQ(report.failure, "");
  EXPECT_EQ(report.calls, 3);
  std::map<std::string, Index> differences;
  for (const Variation variation : kVariations) {
    const BitCount& count = report.counts[static_cast<std::size_t>(variation)];
    EXPECT_GT(count.compared, 0) << NameOf(variation);
    if (count.differ > 0) differences[NameOf(variation)] = count.differ;
  }
  return differences;
}

TEST(BitComparison, SeesNothingInAReproducibleKernel) {
  EXPECT_TRUE(
      DifferencesOf(Fickle([](const Case&, const CallOptions&, int) { return 0; })).empty());
}

TEST(BitComparison, SeesWhatChangesFromCallToCall) {
  const auto differences =
      DifferencesOf(Fickle([](const Case&, const CallOptions&, int call) { return call % 2; }));
  EXPECT_TRUE(differences.contains("runs"));
  // One of the two repetitions of each f32 case: 3 x 4 rows of 9 queries and of one.
  EXPECT_EQ(differences.at("runs"), 3 * 4 * 9 + 3 * 4);
}

TEST(BitComparison, SeesThreadsAlone) {
  const auto differences = DifferencesOf(Fickle(
      [](const Case&, const CallOptions& options, int) { return options.threads == 7 ? 1 : 0; }));
  EXPECT_EQ(differences, (std::map<std::string, Index>{{"threads", 3 * 4 * 9 + 3 * 4}}));
}

TEST(BitComparison, SeesBatchesQueriesAndPadding) {
  auto differences = DifferencesOf(Fickle([](const Case& problem, const CallOptions&, int) {
    return problem.contract.shape.batch == 1 ? 1 : 0;
  }));
  EXPECT_TRUE(differences.contains("batch") && differences.contains("padding"));
  EXPECT_EQ(differences.size(), 2u);
  differences = DifferencesOf(Fickle([](const Case& problem, const CallOptions&, int) {
    return problem.contract.shape.q_len == 1 && problem.contract.shape.kv_len < 2000 ? 1 : 0;
  }));
  // Also the query of the decoding case without its padding.
  EXPECT_TRUE(differences.contains("queries"));
  EXPECT_FALSE(differences.contains("batch"));
  differences = DifferencesOf(Fickle([](const Case& problem, const CallOptions&, int) {
    return problem.contract.shape.kv_len == 64 ? 1 : 0;
  }));
  EXPECT_EQ(differences.size(), 1u);
  EXPECT_TRUE(differences.contains("padding"));
}

// Independent of the machine: mode Reproducible promises these bits on every SIMD target.
TEST(BitComparison, DigestsOfReproducibleKernels) {
  const std::vector<Case> cases = ComparedCases(false, 0);
  const std::string tiled = CompareBits(**MakeBuiltinSubject("tiled-reproducible"), cases).digest;
  EXPECT_EQ(CompareBits(**MakeBuiltinSubject("decode-reproducible"), cases).digest, tiled);
  EXPECT_EQ(CompareBits(**MakeBuiltinSubject("tiled-reproducible@EMU128"), cases).digest, tiled);
  EXPECT_NE(CompareBits(**MakeBuiltinSubject("tiled-reproducible"), ComparedCases(false, 1)).digest,
            tiled);
}

}  // namespace
}  // namespace attest
