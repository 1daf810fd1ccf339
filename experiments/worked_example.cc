// SPDX-License-Identifier: Apache-2.0
// The chapter's worked example with and without 1/sqrt(D_k), to 30 certified digits.
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "core/digest.h"
#include "experiments/experiment.h"
#include "experiments/record.h"
#include "reference/certify.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr int kDigits = 30;

Tensor Filled(const Shape& shape, std::initializer_list<double> values) {
  Tensor tensor(DType::kF64, shape);
  Index i = 0;
  for (const double value : values) tensor.Set(i++, value);
  return tensor;
}

// K = [1,0],[1,1],[0,1]; q = [1,0]; V = [0.9,0.1],[0.5,0.5],[0.1,0.9]. V is stored times ten,
// because tenths are no binary numbers; the output's decimal point is moved back below.
Case WorkedExample(bool scaled) {
  Case problem;
  problem.name = scaled ? "worked-example-scaled" : "worked-example-unscaled";
  Contract& contract = problem.contract;
  contract.shape = {1, 1, 1, 1, 3, 2, 2, 2};
  contract.dtype = contract.out_dtype = DType::kF64;
  contract.arithmetic.profile = "f64";
  contract.scale = {scaled, 1.0};
  contract.outputs = {"out", "weights"};
  problem.tensors["q"] = Filled({1, 1, 1, 2}, {1, 0});
  problem.tensors["k"] = Filled({1, 1, 3, 2}, {1, 0, 1, 1, 0, 1});
  problem.tensors["v"] = Filled({1, 1, 3, 2}, {9, 1, 5, 5, 1, 9});
  return problem;
}

// "4.0111e-01" as 0.40111, moved by `shift` more decimal places; for values in (0, 1) after that.
std::string Plain(const std::string& scientific, int shift) {
  const std::size_t e = scientific.find('e');
  std::string digits = scientific.substr(0, 1) + scientific.substr(2, e - 2);
  const int exponent = std::atoi(scientific.c_str() + e + 1) - shift;
  return "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
}

}  // namespace

StatusOr<ordered_json> RunWorkedExample(const ExperimentOptions& options) {
  const std::array<const char*, 5> quantities{"weight of key 1", "weight of key 2",
                                              "weight of key 3", "output 1", "output 2"};
  const std::array<const char*, 5> printed{"0.42", "0.42", "0.15", "0.61", "0.39"};
  std::array<std::array<std::string, 5>, 2> digits;  // [scaled, unscaled]
  TensorMap inputs;
  for (const bool scaled : {true, false}) {
    const Case problem = WorkedExample(scaled);
    CertifyOptions certify;
    certify.digits = kDigits;
    StatusOr<Certified> result = Certify(problem, certify);
    if (!result.ok()) return result.status();
    const std::vector<std::string>& weights = result->outputs.at("weights").digits;
    const std::vector<std::string>& out = result->outputs.at("out").digits;
    auto& column = digits[scaled ? 0 : 1];
    for (std::size_t i = 0; i < 3; ++i) column[i] = Plain(weights[i], 0);
    for (std::size_t i = 0; i < 2; ++i) column[3 + i] = Plain(out[i], 1);
    inputs = problem.tensors;
  }

  // The rule: two decimals of a column, truncated or rounded, against what is printed.
  const auto agrees = [&](const std::array<std::string, 5>& column) {
    for (std::size_t i = 0; i < column.size(); ++i) {
      const std::string rounded = fmt::format("{:.2f}", std::atof(column[i].c_str()));
      if (column[i].substr(0, 4) != printed[i] && rounded != printed[i]) return false;
    }
    return true;
  };
  const bool scaled_agrees = agrees(digits[0]);
  const bool unscaled_agrees = agrees(digits[1]);

  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < quantities.size(); ++i) {
    rows.push_back({quantities[i], digits[0][i], digits[1][i], printed[i]});
  }
  ordered_json record = NewRecord(
      {.name = "worked-example",
       .title = "The chapter's worked example",
       .claim =
           "With K = [1,0],[1,1],[0,1], q = [1,0] and V = [0.9,0.1],[0.5,0.5],[0.1,0.9], scaled "
           "dot-product attention has the weights 0.42, 0.42, 0.15 and the output [0.61, 0.39].",
       .source = "The example as usually printed in introductions to attention, whose second step "
                 "divides the scores by sqrt(D_k) = sqrt(2).",
       .rule =
           "Reproduced if all five printed numbers agree with the certified values WITH the "
           "scaling, rounded or cut to two decimals; refuted if they agree only with the values "
           "WITHOUT it."});
  record["verdict"] =
      scaled_agrees ? "reproduced" : (unscaled_agrees ? "refuted" : "not reproduced");
  // fmt cuts text at the given width: seven characters are "0.40111".
  record["summary"] = fmt::format(
      "With 1/sqrt(2) the weights are {:.7}..., {:.7}..., {:.7}...; without it {:.7}..., {:.7}..., "
      "{:.7}.... The printed 0.42, 0.42, 0.15 and [0.61, 0.39] are the values {} the scaling that "
      "the text's own second step asks for (0.15 is 0.155... cut, not rounded).",
      digits[0][0], digits[0][1], digits[0][2], digits[1][0], digits[1][1], digits[1][2],
      scaled_agrees ? "with" : "WITHOUT");
  record["tables"] = {
      {{"title", "Thirty certified digits"},
       {"note",
        "Every digit is proven: both ends of an interval that contains the exact "
        "value round to it."},
       {"columns", {"quantity", "with 1/sqrt(D_k)", "without scaling", "usually printed"}},
       {"rows", rows}}};
  record["notes"] = {
      "V is stored times ten in the certified case, because tenths are no binary "
      "numbers; the decimal point of the output is moved back."};
  AddManifest(options, Sha256(inputs), &record);
  return record;
}

}  // namespace attest
