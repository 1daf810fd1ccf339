// SPDX-License-Identifier: Apache-2.0
// The page's style sheet: light and dark, wide and narrow, screen and paper.
#pragma once

#include <string_view>

namespace attest::reports {

// CSS for a <style> element; it refers to nothing outside itself.
std::string_view StyleSheet();

}  // namespace attest::reports
