// SPDX-License-Identifier: Apache-2.0
// The validation itself: it sees every kind of fault, and decides what 100 digits cannot.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "core/random.h"
#include "properties/reference_validation/midpoint_side.h"
#include "properties/reference_validation/tracked.h"
#include "properties/reference_validation/validation.h"
#include "properties/reference_validation/witness_number.h"
#include "reference/textbook_gradient-inl.h"

namespace attest {
namespace {

ValidationOptions OptionsFor(const std::string& family, Index elements) {
  ValidationOptions options;
  options.families = {FindFamily(family)};
  options.elements = elements;
  options.threads = 1;
  return options;
}

Index CountOf(const Validation& validation, Fault fault) {
  const Verdict verdict = validation.Total().verdict;
  const auto found = verdict.faults.find(fault);
  return found == verdict.faults.end() ? 0 : found->second;
}

// A run in which `change` spoils the certified value of the first element of out.
Validation WithFault(const std::string& family,
                     const std::function<void(CertifiedValue*, DType)>& change) {
  ValidationOptions options = OptionsFor(family, 500);
  options.tamper = [&](const Case&, Certified* certified) {
    CertifiedTensor& out = certified->outputs.at("out");
    change(&out.values[0], out.dtype);
  };
  return Validate(options);
}

// The next number of the type away from zero (not of the largest).
double NextAway(double value, DType dtype) {
  return value + std::copysign(Ulp(value, FormatOf(dtype)), value);
}

TEST(ReferenceValidation, AcceptsTheReference) {
  for (const char* family : {"gaussian", "midpoint_groups", "sinks", "score_gaps"}) {
    const Validation validation = Validate(OptionsFor(family, 500));
    EXPECT_TRUE(validation.ok()) << family;
    EXPECT_GE(validation.Total().verdict.total(), 500) << family;
  }
}

TEST(ReferenceValidation, SeesANearestValueOneUlpOff) {
  for (const char* family : {"gaussian", "midpoint_groups", "subnormal_values", "scale_zero"}) {
    const Validation validation = WithFault(family, [](CertifiedValue* value, DType dtype) {
      value->nearest = NextAway(value->nearest, dtype);
    });
    EXPECT_EQ(CountOf(validation, Fault::kWrongNearest), validation.Total().cases) << family;
    EXPECT_EQ(CountOf(validation, Fault::kMissed), 0) << family;
    EXPECT_FALSE(validation.ok());
    EXPECT_EQ(validation.families[0].first_faulty_index, 0);
  }
}

// In this family the first column's mean is the midpoint of 1 and 1 + ulp, or of numbers around it:
// the neighbour that is not even must be refused.
TEST(ReferenceValidation, SeesATieThatGoesTheWrongWay) {
  const Validation right = Validate(OptionsFor("midpoint_groups", 700));
  EXPECT_GT(right.Total().verdict.ties, 100);
  ValidationOptions options = OptionsFor("midpoint_groups", 700);
  Index flipped = 0;
  options.tamper = [&](const Case&, Certified* certified) {
    CertifiedTensor& out = certified->outputs.at("out");
    const double ulp = Ulp(1.0, FormatOf(out.dtype));
    for (CertifiedValue& value : out.values) {
      const double above = value.hi + value.lo - value.nearest;  // half an ulp at a tie
      if (std::fabs(above) != 0.5 * ulp) continue;
      value.nearest += 2.0 * above;
      ++flipped;
    }
  };
  const Validation wrong = Validate(options);
  EXPECT_GT(flipped, 100);
  EXPECT_EQ(CountOf(wrong, Fault::kWrongNearest), flipped);
}

TEST(ReferenceValidation, SeesAnEnclosureThatIsTooSmallOrElsewhere) {
  const Validation shrunk = WithFault("gaussian", [](CertifiedValue* value, DType) {
    value->lo = 0.0;  // the exact value is no double
    value->radius = 0.0;
  });
  EXPECT_GT(CountOf(shrunk, Fault::kMissed), 0);
  EXPECT_EQ(CountOf(shrunk, Fault::kWrongNearest), 0);
  const Validation moved = WithFault("gaussian", [](CertifiedValue* value, DType) {
    value->lo += 3.0 * value->radius + 1e-30 * std::fabs(value->hi);
  });
  EXPECT_GT(CountOf(moved, Fault::kMissed), 0);
  const Validation nan = WithFault("gaussian", [](CertifiedValue* value, DType) {
    value->radius = std::numeric_limits<double>::quiet_NaN();
  });
  EXPECT_EQ(CountOf(nan, Fault::kMissed), nan.Total().cases);
}

TEST(ReferenceValidation, CountsUndecidedElements) {
  const Validation validation =
      WithFault("gaussian", [](CertifiedValue* value, DType) { value->decided = false; });
  EXPECT_EQ(CountOf(validation, Fault::kUndecided), validation.Total().cases);
  EXPECT_FALSE(validation.ok());
}

TEST(ReferenceValidation, SeesASpecialValueThatIsMissing) {
  ValidationOptions options = OptionsFor("lengths_and_documents", 2000);
  Index changed = 0;
  options.tamper = [&](const Case&, Certified* certified) {
    for (CertifiedValue& value : certified->outputs.at("lse").values) {
      if (std::isfinite(value.nearest)) continue;
      value.nearest = 0.0;
      ++changed;
    }
  };
  const Validation validation = Validate(options);
  EXPECT_GT(changed, 0);
  EXPECT_EQ(CountOf(validation, Fault::kWrongNearest), changed);
}

TEST(ReferenceValidation, CountsTheSameCasesOnEveryNumberOfThreads) {
  ValidationOptions options = OptionsFor("gaussian", 1500);
  options.families.push_back(FindFamily("sinks"));
  const Validation one = Validate(options);
  options.threads = 3;
  const Validation three = Validate(options);
  for (std::size_t f = 0; f < 2; ++f) {
    EXPECT_EQ(one.families[f].cases, three.families[f].cases);
    EXPECT_EQ(one.families[f].verdict.elements, three.families[f].verdict.elements);
    EXPECT_EQ(one.families[f].verdict.ties, three.families[f].verdict.ties);
  }
}

TEST(ReferenceValidation, EveryFamilyDrawsCasesOfItsOwn) {
  EXPECT_GE(Families().size(), 20u);
  for (const Family& family : Families()) {
    EXPECT_EQ(FindFamily(family.name), &family);
    for (Index index = 0; index < 5; ++index) {
      const StatusOr<Case> drawn = DrawCase(family, 1, index);
      ASSERT_TRUE(drawn.ok()) << drawn.status().message();
      const StatusOr<Case> again = DrawCase(family, 1, index);
      EXPECT_EQ(ContractToJson(drawn->contract), ContractToJson(again->contract));
      const Tensor& q = *drawn->Find("q");
      EXPECT_TRUE(std::equal(q.bytes(), q.bytes() + q.byte_size(), again->Find("q")->bytes()));
    }
  }
}

// Against the same formula in 200 digits: the error of the witness is below its bound in every
// element, and the bound is not absurd.
TEST(Tracked, BoundsTheErrorOfTheWitness) {
  using Wide = boost::multiprecision::number<
      boost::multiprecision::mpfr_float_backend<200, boost::multiprecision::allocate_stack>,
      boost::multiprecision::et_off>;
  for (const Family& family : Families()) {
    const StatusOr<Case> problem = DrawCase(family, 2, 0);
    ASSERT_TRUE(problem.ok());
    const auto exact = EvaluateTextbook(Textbook<Wide>(*problem));
    const auto witness = EvaluateTextbook(Textbook<WitnessNumber>(*problem));
    const auto tracked = EvaluateTextbook(Textbook<Tracked>(*problem));
    double largest = 0.0;
    for (const auto& [output, values] : witness) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!isfinite(values[i])) continue;
        const Tracked& bound = tracked.at(output)[i];
        const Wide error(abs(Wide(Wide(values[i]) - exact.at(output)[i])));
        const Wide allowed(kWitnessRoundoff * bound.error);
        ASSERT_LE(error, allowed) << family.name << " " << output << " " << i;
        if (allowed > 0) largest = std::max(largest, static_cast<double>(Wide(error / allowed)));
        // The value itself is one of 64 bits.
        const Wide off(abs(Wide(Wide(bound.value) - exact.at(output)[i])));
        ASSERT_LE(off, Wide(0x1p-62L * bound.error)) << family.name << " " << output << " " << i;
      }
    }
    // Not by more than what the number of operations explains; a case may have no rounding at all.
    if (largest > 0.0) {
      EXPECT_GT(largest, 1e-6) << family.name;
    }
  }
}

Side SignOf(std::initializer_list<std::pair<double, double>> exponents_and_coefficients) {
  std::vector<ExponentialTerm> terms;
  for (const auto& [exponent, coefficient] : exponents_and_coefficients) {
    terms.push_back({WitnessNumber(exponent), WitnessNumber(coefficient)});
  }
  return SignOfExponentialSum(terms);
}

TEST(SignOfExponentialSum, SeesWhatCancelsAndWhatIsLeft) {
  EXPECT_EQ(SignOf({}), Side::kExactly);
  EXPECT_EQ(SignOf({{0.0, 1.0}, {0.0, -1.0}}), Side::kExactly);
  EXPECT_EQ(SignOf({{0.0, 1.0}, {-1.0, -1.0}}), Side::kAbove);
  EXPECT_EQ(SignOf({{0.0, -1.0}, {-1.0, 2.0}}), Side::kBelow);  // 2/e < 1
  EXPECT_EQ(SignOf({{0.0, -1.0}, {-1.0, 3.0}}), Side::kAbove);  // 3/e > 1
  // Far below the rest, further than any exponent range; and closer than any precision.
  EXPECT_EQ(SignOf({{0.0, 1.0}, {0.0, -1.0}, {-1e300, -0x1p-100}}), Side::kBelow);
  EXPECT_EQ(SignOf({{0x1p-1070, 1.0}, {0.0, -1.0}}), Side::kAbove);
  EXPECT_EQ(SignOf({{0x1p-1070, -1.0}, {0.0, 1.0}}), Side::kBelow);
}

}  // namespace
}  // namespace attest
