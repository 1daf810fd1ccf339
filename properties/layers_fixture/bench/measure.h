// SPDX-License-Identifier: Apache-2.0
// Fixture of check_layers.cmake: breaks the rule that bench never includes cli.
#pragma once

#include "cli/command.h"
