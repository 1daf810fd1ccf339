// SPDX-License-Identifier: Apache-2.0
// exp, 2^x, ln and tanh of floats: certified values, and fast ones with a proven error.
//
// ULP = |got - exact| / ulp(exact), so that correct rounding is at most 0.5; subnormal results
// count in 2^-149. An infinite result stands for 2^128, and so does an exact value above that.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace attest {

enum class ExactFunction { kExp, kExp2, kLog, kTanh };

std::string_view NameOf(ExactFunction function);

// Values of f at some floats, one entry each.
struct CloseValues {
  // |value - f(x)| <= 2^-52 |f(x)| + 2^-200, or both beyond 2^129; then 2^129 at most. NaN for NaN
  // and for ln of negative numbers; infinities and signed zeros as IEEE 754 has them.
  std::vector<double> value;
  std::vector<double> inverse_ulp;  // of the smaller ulp where the bound leaves two
  std::vector<float> wanted;        // f(x), correctly rounded: certified where the bound leaves two
};

// Fast where x is sorted by its bits: neighbours share one Taylor polynomial, whose value in the
// middle is certified. Proof of the bound in exact_function.cc.
void EvaluateClosely(ExactFunction function, std::span<const float> x, CloseValues* values);

struct CertifiedError {
  double ulp = 0.0;    // of `got`; infinite where one of got and f(x) is NaN and the other is not
  float wanted = 0.0;  // f(x), correctly rounded
};
CertifiedError ErrorOf(ExactFunction function, float x, float got);

// Frees what certification has cached, to be called before a thread ends.
void FreeExactCaches();

}  // namespace attest
