// SPDX-License-Identifier: Apache-2.0
// Families of cases that aim at what attention kernels do: blocks, tails, masks, rescaling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/status.h"
#include "properties/case_families/families.h"

namespace attest {

// By sizes and by what takes part; by values; with gradients.
const std::vector<Family>& ShapeFamilies();
const std::vector<Family>& ValueFamilies();
const std::vector<Family>& KernelGradientFamilies();

// Those three and the families of the reference's validation.
const std::vector<const Family*>& AllKernelFamilies();

// Case `index` of a family, as kernels are judged by it: they accumulate in f32 (f64 for f64) and
// keep weights unrounded, so 16-bit tensors have the profile f32.
StatusOr<Case> DrawKernelCase(const Family& family, std::uint64_t seed, Index index);

}  // namespace attest
