// SPDX-License-Identifier: Apache-2.0
// The arithmetic policies of the kernels: what a result may depend on, and what it costs.
#pragma once

#include <string_view>

namespace attest {

// Policy types; every kernel is a template over one of them.
//
// Fast: the fewest instructions. Multiply-add is fused where the SIMD target has it, so that bits
//   differ between targets with it (AVX2, AVX3) and without (SSE4, SSSE3, EMU128, SCALAR).
// Reproducible: a row's bits depend on its own inputs alone, on every SIMD target. Every
// multiply-add
//   rounds once: on targets with a fused one it costs what Fast costs, on others it is emulated and
//   some ten times slower.
// Accurate: scores, x - max and sums in double, weights of float precision: about twice the time.
//   f64: as Fast, with the more accurate exponential.
struct Fast {};
struct Reproducible {};
struct Accurate {};

// The same by value, where the choice is made while running.
enum class Mode { kFast, kReproducible, kAccurate };

// "fast", "reproducible", "accurate".
constexpr std::string_view NameOf(Mode mode) {
  return mode == Mode::kFast ? "fast" : mode == Mode::kReproducible ? "reproducible" : "accurate";
}

template <class ModePolicy>
inline constexpr Mode kModeOf = Mode::kFast;
template <>
inline constexpr Mode kModeOf<Reproducible> = Mode::kReproducible;
template <>
inline constexpr Mode kModeOf<Accurate> = Mode::kAccurate;

}  // namespace attest
