// SPDX-License-Identifier: Apache-2.0
// Draws one after another from the numbered draws of core/random.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "core/random.h"
#include "core/tensor.h"

namespace attest {

// Everything about one case comes from one sequence, so that (seed, name) decides it.
class Dice {
 public:
  Dice(std::uint64_t seed, std::string_view name) : stream_(seed, name, "dice") {}

  // Uniform among lowest ... highest.
  Index Between(Index lowest, Index highest) {
    const auto count = static_cast<std::uint64_t>(highest - lowest + 1);
    return lowest + static_cast<Index>(stream_.Below(next_++, count));
  }
  bool Chance(double probability) { return stream_.Uniform(next_++) < probability; }
  double Normal() { return stream_.Normal(next_++); }

  template <class T>
  T Pick(std::initializer_list<T> choices) {
    return choices.begin()[Between(0, static_cast<Index>(choices.size()) - 1)];
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

}  // namespace attest
