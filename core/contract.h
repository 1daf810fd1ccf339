// SPDX-License-Identifier: Apache-2.0
// The contract: which function an implementation claims to compute, and in which arithmetic.
//
// Per batch b, query head h, query i, key j, with key/value head g = floor(h / (Hq/Hkv)):
//   score      s_ij = scale * <q_i, k_j>            (dot; general and additive: see
//   docs/contract.md) soft cap   s <- c * tanh(s / c)                 (c > 0) bias       s <- s +
//   bias - slope_h * |i + Tk - Tq - j| exclusion  of every key that is not allowed     (masks,
//   windows, lengths, documents) weights    p_ij = exp(s_ij) / (sum over allowed l of exp(s_il) +
//   exp(sink_h)) output     o_i = sum over allowed j of p_ij v_j,   LSE_i = ln of that denominator
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

enum class ScoreKind { kDot, kGeneral, kAdditive };
enum class Causal { kNone, kTopLeft, kBottomRight };
// kUnset: ALiBi is on exactly when a tensor `alibi_slopes` is present.
enum class Alibi { kUnset, kNone, kDefault, kTensor };
// What a row without any allowed key gives: 0, NaN, or the mean of v over all keys.
enum class EmptyRow { kZero, kNan, kUniform };

// B, Hq, Hkv, Tq, Tk, D_q, D_k, D_v of the definition. k_dim differs from qk_dim only for the
// scores `general` and `additive`.
struct Dimensions {
  Index batch = 1;
  Index q_heads = 1;
  Index kv_heads = 1;
  Index q_len = 0;
  Index kv_len = 0;
  Index qk_dim = 1;
  Index k_dim = 1;
  Index v_dim = 1;

  bool operator==(const Dimensions&) const = default;
};

// The factor of a score: the real number 1/sqrt(D_k), not its rounding, or an exact double.
struct Scale {
  bool rsqrt_dk = true;
  double value = 1.0;  // used when rsqrt_dk is false

  bool operator==(const Scale&) const = default;
};

// -left <= j - (i + o) <= right; -1 is unbounded on that side.
struct Window {
  Index left = -1;
  Index right = -1;

  bool operator==(const Window&) const = default;
};

// Luong's local attention: |j - center| <= half_width, weights times a Gaussian when asked for.
struct LocalWindow {
  double half_width = 0.0;
  bool gaussian = false;

  bool operator==(const LocalWindow&) const = default;
};

// The arithmetic that an implementation declares; see docs/bounds.md for the profiles.
struct Arithmetic {
  std::string profile = "f32";         // "f32", "f64", "bf16-flash", "f16-flash", "bf16-math", ...
  std::optional<DType> accumulate;     // stated by some contracts; must agree with the profile
  std::optional<DType> probabilities;  // likewise
  double exp_ulp = 2.0;                // |got - exact| / ulp(exact) of its exponential
  bool deterministic = false;
  bool batch_invariant = false;

  bool operator==(const Arithmetic&) const = default;
};

struct Contract {
  Dimensions shape;
  DType dtype = DType::kF32;
  DType out_dtype = DType::kF32;

  ScoreKind score = ScoreKind::kDot;
  Scale scale;           // default: 1/sqrt(D_k) for `dot`, 1 for the others
  double softcap = 0.0;  // 0: none

  Causal causal = Causal::kNone;
  Window window;
  Alibi alibi = Alibi::kUnset;
  EmptyRow empty_row = EmptyRow::kZero;
  double dropout_rate = 0.0;
  std::optional<LocalWindow> local;

  // Names of what is asked for; empty until FinishCase (core/case.h) fills in the default.
  std::vector<std::string> outputs;
  Arithmetic arithmetic;

  bool operator==(const Contract&) const = default;
  bool Wants(std::string_view output) const;
  // lse, bias-like tensors and gradients of theirs: f64 for f64, f32 otherwise.
  DType wide_dtype() const { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }
};

// Every output that a contract can ask for: out, lse, weights, then the gradients.
const std::vector<std::string_view>& OutputNames();

// The profile of a contract that names none: f32, f64, bf16-flash, f16-flash by the tensors' type.
std::string_view DefaultProfile(DType dtype);
// Whether a profile of this name exists and is defined for tensors of this type.
bool HasProfile(DType dtype, std::string_view profile);

// The ALiBi slope of head h of H is 2^exponent with this exponent: -8(h+1)/H for H a power of two,
// else those of the next lower power n of two, followed by every other one of 2n.
double DefaultAlibiExponent(Index head, Index heads);

// Reads an arithmetic as in a contract; without a profile its `profile` is empty. Refused as a
// contract is, for tensors of the type that the profile is for (f32 where that is any).
StatusOr<Arithmetic> ParseArithmetic(std::string_view json_text);

// Reads a contract. An unknown, repeated, wrongly typed or contradictory field is refused with one
// line that begins with the field's path ("mask.causal: ...").
StatusOr<Contract> ParseContract(std::string_view json_text);

// The contract as JSON text with every field spelled out; ParseContract reads it back unchanged.
std::string ContractToJson(const Contract& contract);

}  // namespace attest
