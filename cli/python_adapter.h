// SPDX-License-Identifier: Apache-2.0
// The text of audit/adapters/attest_adapter.py, which exports take along.
#pragma once

#include <string_view>

namespace attest {

extern const std::string_view kPythonAdapter;

}  // namespace attest
