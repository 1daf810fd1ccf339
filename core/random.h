// SPDX-License-Identifier: Apache-2.0
// Deterministic random numbers: a pure function of (seed, case, tensor, index).
#pragma once

#include <cstdint>
#include <string_view>

namespace attest {

// The numbers of one tensor of one case. Every draw depends on its index alone, never on earlier
// draws, so any order, thread count or SIMD width gives the same bits; only +, -, *, / and sqrt are
// used besides integers, so any compiler does too (with -ffp-contract=off).
// Generator: Philox4x64-10 (Salmon et al. 2011), key (seed, hash of case), counter (index, hash of
// tensor, 0, 0).
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view case_name, std::string_view tensor_name);

  // 64 uniform bits.
  std::uint64_t Bits(std::uint64_t index) const;
  // Uniform in the open interval (0, 1): odd multiples of 2^-54.
  double Uniform(std::uint64_t index) const;
  // Standard normal, by inversion of the distribution function.
  double Normal(std::uint64_t index) const;
  // Uniform in [0, bound); bound >= 1. The bias is below bound / 2^64.
  std::uint64_t Below(std::uint64_t index, std::uint64_t bound) const;

 private:
  std::uint64_t seed_;
  std::uint64_t case_hash_;
  std::uint64_t tensor_hash_;
};

// The x with P(Z <= x) = p for a standard normal Z, 0 < p < 1; relative error about 1e-15.
// (Wichura 1988, algorithm AS 241, PPND16.)
double NormalQuantile(double p);

}  // namespace attest
