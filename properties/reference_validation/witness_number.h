// SPDX-License-Identifier: Apache-2.0
// The number type of the witness.
#pragma once

#include <boost/multiprecision/eigen.hpp>
#include <boost/multiprecision/mpfr.hpp>

namespace attest {

// 100 decimal digits: 334 bits, each operation rounded correctly.
using WitnessNumber = boost::multiprecision::number<
    boost::multiprecision::mpfr_float_backend<100, boost::multiprecision::allocate_stack>,
    boost::multiprecision::et_off>;
inline constexpr long double kWitnessRoundoff = 0x1p-334L;

}  // namespace attest
