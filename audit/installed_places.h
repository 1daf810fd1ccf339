// SPDX-License-Identifier: Apache-2.0
// Where the parts that come with the command are: cases, plug-ins, adapters, the plug-in host.
#pragma once

#include <filesystem>
#include <vector>

namespace attest {

// Where a file or folder may be, in the order to look: alone what the environment variable names,
// where it is set; else `installed`, below the folder above the command's, then `built`.
std::vector<std::filesystem::path> PlacesOf(const char* variable, const char* installed,
                                            const char* built);

}  // namespace attest
