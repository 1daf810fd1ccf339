// SPDX-License-Identifier: Apache-2.0
#include "reference/gradient_certifier.h"

#include <limits>

#include "reference/gradient_enclosure.h"

namespace attest {

BallEffort CertifyGradient(const CaseData& data, int digits, const std::string& tensor,
                           std::vector<Index> elements, CertifiedTensor* gradient) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const FloatFormat& format = FormatOf(gradient->dtype);
  const long first = FirstPrecision(data.contract(), digits);
  // No theorem says which gradients are midpoints, but where ExactGradient knows.
  const long largest = std::max(first, kLargestTranscendental);
  for (long bits = first;; bits *= 2) {
    Ball::SetPrecision(bits);
    const std::vector<GradientElement> enclosures = EncloseGradient(data, tensor, elements);
    std::vector<Index> undecided;
    for (std::size_t e = 0; e < elements.size(); ++e) {
      const Index element = elements[e];
      if (enclosures[e].not_a_number) {
        gradient->values[static_cast<std::size_t>(element)] = {kNaN, kNaN,        0.0,
                                                               0.0,  Rung::kRule, true};
        continue;
      }
      const auto decide = [&](Ball* value) -> std::optional<double> {
        const std::optional<ExactQuotient> exact = ExactGradient(data, tensor, element);
        if (!exact) return std::nullopt;
        *value = exact->numerator / exact->denominator;
        return RoundedQuotient(exact->numerator, exact->denominator, format);
      };
      if (!SettleBall(enclosures[e].value, bits, digits, decide, element, gradient)) {
        undecided.push_back(element);
      }
    }
    elements = std::move(undecided);
    if (elements.empty() || 2 * bits > largest) {
      return {static_cast<Index>(elements.size()), bits};
    }
  }
}

}  // namespace attest
