// SPDX-License-Identifier: Apache-2.0
#include "properties/kernel_validation/kernel_families.h"

namespace attest {

const std::vector<const Family*>& AllKernelFamilies() {
  static const std::vector<const Family*> all = [] {
    std::vector<const Family*> list;
    for (const std::vector<Family>* part :
         {&ShapeFamilies(), &ValueFamilies(), &KernelGradientFamilies(), &Families()}) {
      for (const Family& family : *part) list.push_back(&family);
    }
    return list;
  }();
  return all;
}

StatusOr<Case> DrawKernelCase(const Family& family, std::uint64_t seed, Index index) {
  StatusOr<Case> problem = DrawCase(family, seed, index);
  if (problem.ok()) {
    problem->contract.arithmetic.profile = problem->contract.dtype == DType::kF64 ? "f64" : "f32";
  }
  return problem;
}

}  // namespace attest
