// SPDX-License-Identifier: Apache-2.0
// Every seeded fault on its smallest input: the right implementation gives the right result there,
// and the faulty one does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "audit/judge.h"
#include "properties/faults/fault_catalogue.h"
#include "properties/faults/smallest_inputs.h"

namespace attest {
namespace {

std::unique_ptr<Subject> Plain(const std::string& name) {
  StatusOr<std::unique_ptr<Subject>> subject = MakePlainSubject(name);
  EXPECT_TRUE(subject.ok()) << subject.status().message();
  return *std::move(subject);
}

// Inputs such as ln 3 are rounded to f32, results to f32 or f16, both of which hold those that are
// not irrational: four units in the last place of the next power of 4, in f32.
bool IsClose(double got, double right) {
  return got == right || std::fabs(got - right) <= 0x1p-19 * std::max(1.0, std::fabs(right) / 4.0);
}

// Nothing where there is no address space for the layout.
std::optional<bool> GivesTheRightResult(const Subject& subject, const SmallestInput& input) {
  for (int call = 0; call < input.calls; ++call) {
    const Outcome outcome = subject.Run(input.problem, input.options);
    if (outcome.kind == Outcome::Kind::kUnsupported && input.options.layout == Layout::kSparse) {
      return std::nullopt;
    }
    EXPECT_EQ(outcome.kind, Outcome::Kind::kOk) << input.fault << ": " << outcome.message;
    if (outcome.kind != Outcome::Kind::kOk) return false;
    const std::vector<double> got = ToDoubles(outcome.outputs.at(input.tensor));
    if (!std::equal(got.begin(), got.end(), input.right.begin(), input.right.end(), IsClose)) {
      return false;
    }
  }
  return true;
}

bool Agree(const Subject& subject, const EqualCalls& calls) {
  for (int repetition = 0; repetition < calls.repetitions; ++repetition) {
    const Outcome first = subject.Run(calls.first, calls.first_options);
    const Outcome second = subject.Run(calls.second, calls.second_options);
    EXPECT_EQ(first.kind, Outcome::Kind::kOk) << first.message;
    EXPECT_EQ(second.kind, Outcome::Kind::kOk) << second.message;
    const std::vector<double> a = ToDoubles(first.outputs.at(calls.tensor));
    const std::vector<double> b = ToDoubles(second.outputs.at(calls.tensor));
    const auto common = static_cast<std::ptrdiff_t>(std::min(a.size(), b.size()));
    if (!std::equal(a.begin(), a.begin() + common, b.begin())) return false;
  }
  return true;
}

TEST(SmallestInput, TheRightImplementationIsRight) {
  const std::unique_ptr<Subject> right = Plain("none");
  for (const SmallestInput& input : SmallestInputs()) {
    Case finished = input.problem;
    EXPECT_TRUE(FinishCase(&finished).ok()) << input.fault;
    EXPECT_TRUE(GivesTheRightResult(*right, input).value_or(true)) << input.fault;
  }
  for (const EqualCalls& calls : CallsThatAgree()) EXPECT_TRUE(Agree(*right, calls)) << calls.fault;
}

// The results written down by hand are those of the reference.
TEST(SmallestInput, TheReferenceAgrees) {
  for (const SmallestInput& input : SmallestInputs()) {
    const StatusOr<Expectation> expected = Expect(input.problem);
    ASSERT_TRUE(expected.ok()) << input.fault << ": " << expected.status().message();
    const Certified& certified = expected->certified;
    for (std::size_t i = 0; i < input.right.size(); ++i) {
      const double value = certified.outputs.at(input.tensor).values[i].nearest;
      EXPECT_TRUE(IsClose(value, input.right[i])) << input.fault << " " << i;
    }
  }
}

TEST(SmallestInput, ExposesItsFault) {
  std::set<std::string> missed;
  for (const FaultInfo& fault : Faults()) missed.insert(fault.name);
  for (const SmallestInput& input : SmallestInputs()) {
    // Where there is no address space for its layout, an input is taken at its word.
    if (!GivesTheRightResult(*Plain(input.fault), input).value_or(false)) missed.erase(input.fault);
  }
  for (const EqualCalls& calls : CallsThatAgree()) {
    if (!Agree(*Plain(calls.fault), calls)) missed.erase(calls.fault);
  }
  EXPECT_TRUE(missed.empty()) << ::testing::PrintToString(missed);
}

// Names that nobody would find again, or two faults of one name, would hide a fault.
TEST(Catalogue, TellsItsEntriesApart) {
  std::set<std::string> names{"none"};
  std::set<int> faults{0};
  std::set<int> controls{0};
  for (const FaultInfo& fault : Faults()) {
    EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
    EXPECT_TRUE(faults.insert(static_cast<int>(fault.fault)).second) << fault.name;
    EXPECT_FALSE(fault.fault_class.empty() || fault.behaviour.empty() || fault.reference.empty());
  }
  for (const ControlInfo& control : Controls()) {
    EXPECT_TRUE(names.insert(control.name).second) << control.name;
    EXPECT_TRUE(controls.insert(static_cast<int>(control.control)).second) << control.name;
  }
  // Every switch of fault.h has its entry.
  EXPECT_EQ(*faults.rbegin() + 1, static_cast<int>(faults.size()));
  EXPECT_EQ(*controls.rbegin() + 1, static_cast<int>(controls.size()));
  EXPECT_EQ(*faults.rbegin(), static_cast<int>(Fault::kSplitCountFromThreads));
  EXPECT_EQ(*controls.rbegin(), static_cast<int>(Control::kRowConstantShift));
  EXPECT_FALSE(MakePlainSubject("no-such-fault").ok());
}

}  // namespace
}  // namespace attest
