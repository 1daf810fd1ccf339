// SPDX-License-Identifier: Apache-2.0
// Fixture of check_layers.cmake: names a header without its room, and one that does not exist.
#pragma once

#include "core/nowhere.h"
#include "upward.h"
