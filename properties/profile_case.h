// SPDX-License-Identifier: Apache-2.0
// The arithmetic profiles as parameters of tests.
#pragma once

#include <algorithm>
#include <string>

#include "core/dtype.h"

namespace attest {

struct ProfileCase {
  DType dtype;
  const char* profile;
};
inline constexpr ProfileCase kF32{DType::kF32, "f32"};
inline constexpr ProfileCase kF64{DType::kF64, "f64"};
inline constexpr ProfileCase kBF16Flash{DType::kBF16, "bf16-flash"};
inline constexpr ProfileCase kF16Flash{DType::kF16, "f16-flash"};
inline constexpr ProfileCase kBF16Math{DType::kBF16, "bf16-math"};
inline constexpr ProfileCase kF16Math{DType::kF16, "f16-math"};

// "bf16_flash": a name that a test may have.
inline std::string NameOf(const ProfileCase& profile) {
  std::string name = profile.profile;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace attest
