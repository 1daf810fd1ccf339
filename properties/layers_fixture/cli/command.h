// SPDX-License-Identifier: Apache-2.0
// Fixture of check_layers.cmake: allowed.
#pragma once

#include "bench/measure.h"
