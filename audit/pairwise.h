// SPDX-License-Identifier: Apache-2.0
// Covering arrays of strength two: few rows in which every two values meet.
#pragma once

#include <functional>
#include <vector>

namespace attest {

// Whether value `a_value` of parameter `a` and `b_value` of parameter `b` can be in one row; asked
// with a < b.
using CanCombine =
    std::function<bool(std::size_t a, std::size_t a_value, std::size_t b, std::size_t b_value)>;

// Rows that hold one value (0 ... levels[p] - 1) for each parameter p, such that every two values
// of two parameters that can be combined are together in some row, and none that cannot are. A
// greedy choice that always gives the same rows, near the fewest possible (AETG: Cohen et al.
// 1997). A pair that cannot be completed to a row is left out: value 0 of every parameter should
// combine with everything.
std::vector<std::vector<std::size_t>> CoverPairs(const std::vector<std::size_t>& levels,
                                                 const CanCombine& can_combine);

}  // namespace attest
