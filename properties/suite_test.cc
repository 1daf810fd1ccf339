// SPDX-License-Identifier: Apache-2.0
// Suites: names, determinism, and that every two features meet.
#include "audit/suite.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "audit/pairwise.h"
#include "audit/suite_pairs.h"
#include "core/digest.h"

namespace attest {
namespace {

std::string DigestOf(const std::vector<SuiteCase>& cases) {
  std::string digests;
  for (const SuiteCase& item : cases) {
    digests += Sha256(item.problem.tensors) + ContractToJson(item.problem.contract);
  }
  return Sha256(std::as_bytes(std::span(digests)));
}

class GeneratedSuite : public ::testing::TestWithParam<const char*> {};

TEST_P(GeneratedSuite, HasValidCasesOfDifferentNames) {
  std::vector<SuiteCase> cases = *MakeSuite(GetParam(), 0);
  std::set<std::string> names;
  for (SuiteCase& item : cases) {
    EXPECT_TRUE(names.insert(item.problem.name).second) << item.problem.name;
    const Status status = FinishCase(&item.problem);
    EXPECT_TRUE(status.ok()) << item.problem.name << ": " << status.message();
  }
}

TEST_P(GeneratedSuite, IsAFunctionOfTheSeed) {
  const std::vector<SuiteCase> first = *MakeSuite(GetParam(), 3);
  EXPECT_EQ(DigestOf(first), DigestOf(*MakeSuite(GetParam(), 3)));
  EXPECT_NE(DigestOf(first), DigestOf(*MakeSuite(GetParam(), 4)));
}

INSTANTIATE_TEST_SUITE_P(Every, GeneratedSuite, ::testing::Values("quick", "standard"));

TEST(Suites, StandardBeginsWithQuick) {
  const std::vector<SuiteCase> quick = *MakeSuite("quick", 0);
  const std::vector<SuiteCase> standard = *MakeSuite("standard", 0);
  ASSERT_GT(standard.size(), quick.size());
  for (std::size_t i = 0; i < quick.size(); ++i) {
    ASSERT_EQ(standard[i].problem.name, quick[i].problem.name);
  }
}

// Changes on purpose change this as well: a family that is lost shows.
TEST(Suites, HaveSoManyCases) {
  EXPECT_EQ(MakeSuite("quick", 0)->size(), 1044u);
  EXPECT_EQ(MakeSuite("standard", 0)->size(), 1884u);
}

class PairsOf : public ::testing::TestWithParam<PairFamily (*)()> {};

TEST_P(PairsOf, EveryTwoValuesMeet) {
  const PairFamily family = GetParam()();
  const std::vector<std::vector<std::size_t>> rows = family.Rows();
  std::set<std::array<std::size_t, 4>> met;
  for (const std::vector<std::size_t>& row : rows) {
    ASSERT_EQ(row.size(), family.parameters.size());
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        EXPECT_TRUE(family.CanCombine(a, row[a], b, row[b]));
        met.insert({a, row[a], b, row[b]});
      }
    }
  }
  std::size_t largest_product = 0;
  for (std::size_t a = 0; a < family.parameters.size(); ++a) {
    for (std::size_t b = a + 1; b < family.parameters.size(); ++b) {
      const std::size_t values_a = family.parameters[a].values.size();
      const std::size_t values_b = family.parameters[b].values.size();
      largest_product = std::max(largest_product, values_a * values_b);
      for (std::size_t x = 0; x < values_a; ++x) {
        for (std::size_t y = 0; y < values_b; ++y) {
          EXPECT_EQ(met.contains({a, x, b, y}), family.CanCombine(a, x, b, y))
              << family.parameters[a].name << " " << x << ", " << family.parameters[b].name << " "
              << y;
        }
      }
    }
  }
  EXPECT_LE(rows.size(), 3 * largest_product);  // far from all combinations
}

INSTANTIATE_TEST_SUITE_P(Every, PairsOf,
                         ::testing::Values(ForwardPairFamily, GradientPairFamily, AllPairFamily));

TEST(CoverPairs, TwoParametersNeedEveryCombination) {
  const auto all = [](std::size_t, std::size_t, std::size_t, std::size_t) { return true; };
  EXPECT_EQ(CoverPairs({3, 4}, all).size(), 12u);
  EXPECT_EQ(CoverPairs({2, 2, 2}, all).size(), 4u);
  EXPECT_TRUE(CoverPairs({5}, all).empty());  // no pairs
}

TEST(CoverPairs, LeavesOutWhatCannotBeCombined) {
  // Value 1 of the first parameter goes with value 0 of everything alone.
  const auto can = [](std::size_t a, std::size_t x, std::size_t, std::size_t y) {
    return a != 0 || x != 1 || y == 0;
  };
  std::set<std::vector<std::size_t>> rows;
  for (const auto& row : CoverPairs({2, 2, 2}, can)) {
    EXPECT_TRUE(row[0] == 0 || (row[1] == 0 && row[2] == 0));
    rows.insert(row);
  }
  EXPECT_TRUE(rows.contains({1, 0, 0}));
}

}  // namespace
}  // namespace attest
