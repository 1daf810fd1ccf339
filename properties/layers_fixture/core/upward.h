// SPDX-License-Identifier: Apache-2.0
// Fixture of check_layers.cmake: breaks the rule that core includes core only.
#pragma once

#include "audit/verdict.h"
