// SPDX-License-Identifier: Apache-2.0
// The summary in Markdown, short enough for the summary of a continuous-integration job.
#pragma once

#include <string>

#include "reports/model.h"

namespace attest::reports {

std::string MarkdownOf(const Report& report);

}  // namespace attest::reports
