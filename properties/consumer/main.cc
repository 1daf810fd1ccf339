// SPDX-License-Identifier: Apache-2.0
// Calls the installed libraries; exits 0 when they answer as documented.
#include <cstdio>

#include "core/dtype.h"

int main() {
  // 1 + 2^-8 lies halfway between two bfloat16 numbers; ties go to even.
  const double rounded = attest::ToDouble(attest::RoundToBFloat16(1.0 + 0x1p-8));
  std::printf("%a\n", rounded);
  return rounded == 1.0 ? 0 : 1;
}
