// SPDX-License-Identifier: Apache-2.0
// Built and run with the library: fails the build when the compiler fuses a multiplication with a
// later addition, which the error-free transformations and every bound count on it not to do.
#include <cstddef>
#include <cstdio>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/contraction_check.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "reference/double_double-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// sum[i] + error[i] = h[i] + fl(a[i] * b[i]) by TwoSum, as rung 1 does.
void AccumulateProducts(const double* h, const double* a, const double* b, std::size_t size,
                        double* sum, double* error) {
  const hn::CappedTag<double, 8> d;
  for (std::size_t i = 0; i < size; i += hn::Lanes(d)) {
    const auto product = hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
    const auto s = TwoSum(hn::LoadU(d, h + i), product);
    hn::StoreU(s.hi, d, sum + i);
    hn::StoreU(s.lo, d, error + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(AccumulateProducts);

// Pseudo-random numbers in [1, 2).
double Next(unsigned long long* state) {
  *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
  return 1.0 + static_cast<double>(*state >> 12) * 0x1p-52;
}

std::size_t Differences() {
  constexpr std::size_t kSize = 8192;
  std::vector<double> h(kSize), a(kSize), b(kSize), sum(kSize), error(kSize);
  unsigned long long state = 1;
  for (std::size_t i = 0; i < kSize; ++i) {
    h[i] = Next(&state);
    a[i] = Next(&state);
    b[i] = Next(&state);
  }
  HWY_DYNAMIC_DISPATCH(AccumulateProducts)
  (h.data(), a.data(), b.data(), kSize, sum.data(), error.data());
  std::size_t differences = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    // Through memory, so that this file's own compilation cannot fuse them either.
    const volatile double product = a[i] * b[i];
    const volatile double rounded = h[i] + product;
    const volatile double part = rounded - h[i];
    const volatile double rest = rounded - part;
    const volatile double low = (h[i] - rest) + (product - part);
    if (!(sum[i] == rounded && error[i] == low)) ++differences;
  }
  return differences;
}

}  // namespace
}  // namespace attest

int main() {
  for (const auto target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    const std::size_t differences = attest::Differences();
    if (differences > 0) {
      std::fprintf(stderr,
                   "contraction_check: the compiler fuses multiplication and addition on %s (%zu "
                   "sums differ); compile with -ffp-contract=off\n",
                   hwy::TargetName(target), differences);
      return 1;
    }
  }
  return 0;
}
#endif
