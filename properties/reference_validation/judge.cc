// SPDX-License-Identifier: Apache-2.0
#include "properties/reference_validation/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "properties/reference_validation/midpoint_side.h"
#include "properties/reference_validation/tracked.h"
#include "properties/reference_validation/witness_number.h"
#include "reference/textbook_gradient-inl.h"

namespace attest {
namespace {

using Number = WitnessNumber;
// Tracked keeps first-order terms; what it leaves out is far below them.
constexpr long double kSafety = 4.0L;

constexpr std::size_t kExamples = 5;

// A witness is fine enough where its error is below this share of the output type's spacing.
constexpr double kFineEnough = 1e-12;

// |witness| as a number of spacings of the format.
struct Rounded {
  double below = 0.0;  // the two numbers of the format around |witness|
  double above = 0.0;
  bool below_is_even = true;
  bool past_half = false;    // nearer to `above`
  bool at_midpoint = false;  // closer to the midpoint than the witness can tell
  Number midpoint;           // with the witness's sign
  double slack = 0.0;        // of the witness, in units of the spacing
};

// By the definition: the number of spacings below |witness|, and what is left. A witness within
// `slack` of zero is zero.
Rounded RoundToFormat(const Number& witness, const Number& slack, const FloatFormat& format) {
  const Number magnitude(abs(witness));
  if (magnitude <= slack) return {};
  int exponent = 0;  // magnitude = [1/2, 1) * 2^exponent
  frexp(magnitude, &exponent);
  const int spacing = std::max(exponent - 1, format.min_exponent) - format.precision + 1;
  const Number count(ldexp(magnitude, -spacing));
  const Number below(floor(count));
  const Number past_half(count - below - Number(0.5));
  const Number margin(ldexp(slack, -spacing));
  const auto whole = static_cast<std::uint64_t>(below);
  Rounded rounded;
  rounded.below = std::ldexp(static_cast<double>(whole), spacing);
  rounded.above = std::ldexp(static_cast<double>(whole + 1), spacing);
  rounded.below_is_even = whole % 2 == 0;
  rounded.past_half = past_half > 0;
  rounded.at_midpoint = abs(past_half) <= margin;
  rounded.midpoint = ldexp(Number(below + Number(0.5)), spacing);
  if (witness < 0) rounded.midpoint = -rounded.midpoint;
  rounded.slack = static_cast<double>(margin);
  return rounded;
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// The name under which an element's enclosure is tallied.
std::string RungOf(const CertifiedValue& value) { return std::string(NameOf(value.rung)); }

class ElementJudge {
 public:
  ElementJudge(std::string output, const FloatFormat& format, MidpointSide* side, Verdict* verdict)
      : output_(std::move(output)), format_(format), side_(side), verdict_(verdict) {}

  void Check(Index element, const CertifiedValue& got, const Number& witness, long double error) {
    ++verdict_->elements[output_];
    if (!isfinite(witness)) {
      const auto special = static_cast<double>(witness);
      if (!Same(got.nearest, special)) Report(Fault::kWrongNearest, element, got, special, witness);
      if (!Same(got.hi, special)) Report(Fault::kMissed, element, got, special, witness);
      return;
    }
    const Number slack(kSafety * kWitnessRoundoff * error);
    const Rounded around = RoundToFormat(witness, slack, format_);
    verdict_->largest_slack = std::max(verdict_->largest_slack, around.slack);
    bool resolved = around.slack <= kFineEnough;
    const double expected = Nearest(element, witness, around, &resolved);
    if (!resolved) {
      Report(Fault::kUnresolved, element, got, expected, witness);
    } else if (!got.decided) {
      Report(Fault::kUndecided, element, got, expected, witness);
    } else if (!(got.nearest == expected)) {
      Report(Fault::kWrongNearest, element, got, expected, witness);
    }
    CheckEnclosure(element, got, witness, slack, expected);
  }

 private:
  // The witness rounded once, ties to even. What lies at a midpoint as far as the witness can tell
  // is settled by the sign of a sum; a gradient is taken to be a tie there.
  double Nearest(Index element, const Number& witness, const Rounded& around, bool* resolved) {
    bool up = around.past_half;
    if (around.at_midpoint) {
      Side side = Side::kExactly;
      if (!output_.starts_with("grad_")) side = side_->Of(output_, element, around.midpoint);
      // Rows without an allowed key are sums of doubles, which the witness holds.
      if (side == Side::kUnknown && witness == around.midpoint) side = Side::kExactly;
      if (side == Side::kUnknown) *resolved = false;
      if (side == Side::kExactly) ++verdict_->ties;
      const bool outwards = (side == Side::kAbove) == (witness > 0);
      up = side == Side::kExactly ? !around.below_is_even : outwards;
    }
    double magnitude = up ? around.above : around.below;
    if (magnitude > format_.largest_finite()) magnitude = HUGE_VAL;
    return witness < 0 ? -magnitude : magnitude;
  }

  void CheckEnclosure(Index element, const CertifiedValue& got, const Number& witness,
                      const Number& slack, double expected) {
    RungTally& rung = verdict_->rungs[RungOf(got)];
    ++rung.elements;
    const Number distance(abs(Number(witness - Number(got.hi) - Number(got.lo))));
    if (!(distance <= Number(got.radius) + slack)) {
      Report(Fault::kMissed, element, got, expected, witness);
    }
    if (got.radius > 0.0 && distance > slack) {
      rung.largest_ratio =
          std::max(rung.largest_ratio, static_cast<double>(Number(distance / Number(got.radius))));
    }
  }

  void Report(Fault fault, Index element, const CertifiedValue& got, double expected,
              const Number& witness) {
    ++verdict_->faults[fault];
    if (verdict_->examples.size() >= kExamples) return;
    const Number distance(witness - Number(got.hi) - Number(got.lo));
    verdict_->examples.push_back(
        {fault, output_, element, -1, got.nearest, expected,
         fmt::format("witness {}, enclosure {:a} + {:a} +- {:.3g}, distance {:.3g}",
                     witness.str(40), got.hi, got.lo, got.radius, static_cast<double>(distance))});
  }

  std::string output_;
  const FloatFormat& format_;
  MidpointSide* side_;
  Verdict* verdict_;
};

}  // namespace

const char* NameOf(Fault fault) {
  switch (fault) {
    case Fault::kWrongNearest:
      return "wrong nearest";
    case Fault::kMissed:
      return "missed enclosure";
    case Fault::kUndecided:
      return "undecided";
    case Fault::kUnresolved:
      return "witness too coarse";
  }
  return "";
}

void Verdict::Add(const Verdict& other) {
  for (const auto& [output, count] : other.elements) elements[output] += count;
  for (const auto& [fault, count] : other.faults) faults[fault] += count;
  ties += other.ties;
  for (const FaultyElement& example : other.examples) {
    if (examples.size() < kExamples) examples.push_back(example);
  }
  for (const auto& [name, rung] : other.rungs) {
    RungTally& sum = rungs[name];
    sum.elements += rung.elements;
    sum.largest_ratio = std::max(sum.largest_ratio, rung.largest_ratio);
  }
  largest_slack = std::max(largest_slack, other.largest_slack);
}

Index Verdict::total() const {
  Index sum = 0;
  for (const auto& [output, count] : elements) sum += count;
  return sum;
}

Verdict Judge(const Case& problem, const Certified& certified) {
  const TextbookValues<Number> witness = EvaluateTextbook(Textbook<Number>(problem));
  const TextbookValues<Tracked> tracked = EvaluateTextbook(Textbook<Tracked>(problem));
  MidpointSide side(problem);
  Verdict verdict;
  for (const std::string& output : problem.contract.outputs) {
    const CertifiedTensor& tensor = certified.outputs.at(output);
    const std::vector<Number>& values = witness.at(output);
    const std::vector<Tracked>& errors = tracked.at(output);
    ElementJudge judge(output, FormatOf(OutputDType(problem, output)), &side, &verdict);
    for (std::size_t i = 0; i < values.size(); ++i) {
      judge.Check(static_cast<Index>(i), tensor.values.at(i), values[i], errors[i].error);
    }
  }
  return verdict;
}

}  // namespace attest
