// SPDX-License-Identifier: Apache-2.0
// Any text as an answer of the line protocol and as what an implementation declares.
#include <string>
#include <string_view>

#include "audit/capabilities.h"
#include "audit/line_answer.h"
#include "properties/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::string info(text);
  for (const bool from_host : {false, true}) {
    const std::optional<LineAnswer> answer = ParseLineAnswer(text, from_host);
    if (!answer) continue;
    Require(answer->message.find('\n') == std::string::npos);
    if (!answer->info.empty()) info = answer->info;
  }
  const StatusOr<Capabilities> capabilities = ParseCapabilities(info);
  if (!capabilities.ok()) {
    Require(capabilities.status().message().find('\n') == std::string::npos);
  }
  return 0;
}
