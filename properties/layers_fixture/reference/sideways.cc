// SPDX-License-Identifier: Apache-2.0
// Fixture of check_layers.cmake: breaks the rule that reference never includes optimized.
#include <optimized/kernel.h>
