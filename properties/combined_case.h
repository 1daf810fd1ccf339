// SPDX-License-Identifier: Apache-2.0
// Cases that combine the features of the whole forward contract.
#pragma once

#include "core/case.h"

namespace attest {

// Every feature is switched on or off by one of the lowest twelve bits of `features`.
Case Combined(unsigned features, DType dtype, const Dimensions& shape = {2, 4, 2, 5, 7, 6, 6, 3});

}  // namespace attest
