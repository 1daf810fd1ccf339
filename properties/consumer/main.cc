// SPDX-License-Identifier: Apache-2.0
// Calls the installed libraries; exits 0 when they answer as documented.
#include <cstdio>

#include "core/case.h"
#include "reference/certify.h"

int main() {
  // Two keys of equal score: the mean of 1 and 4, whatever the score is.
  attest::Case problem;
  problem.contract.shape = {1, 1, 1, 1, 2, 1, 1, 1};
  problem.tensors["q"] = attest::Tensor(attest::DType::kF32, {1, 1, 1, 1});
  problem.tensors["k"] = attest::Tensor(attest::DType::kF32, {1, 1, 2, 1});
  problem.tensors["v"] = attest::Tensor(attest::DType::kF32, {1, 1, 2, 1});
  problem.tensors["v"].Set(0, 1.0);
  problem.tensors["v"].Set(1, 4.0);
  if (const attest::Status status = attest::FinishCase(&problem); !status.ok()) {
    std::printf("%s\n", status.message().c_str());
    return 1;
  }
  const attest::StatusOr<attest::Certified> certified = attest::Certify(problem);
  if (!certified.ok()) {
    std::printf("%s\n", certified.status().message().c_str());
    return 1;
  }
  const double out = certified->outputs.at("out").values[0].nearest;
  std::printf("%g\n", out);
  return out == 2.5 ? 0 : 1;
}
