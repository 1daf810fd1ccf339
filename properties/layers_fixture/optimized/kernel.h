// SPDX-License-Identifier: Apache-2.0
// Fixture of check_layers.cmake: includes another room by Highway's macro.
#pragma once

#define HWY_TARGET_INCLUDE "reference/sideways.cc"
