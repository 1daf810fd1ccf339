// SPDX-License-Identifier: Apache-2.0
// Any text as a contract: refused in one line, or read, and then written and read the same.
#include <string_view>

#include "core/contract.h"
#include "properties/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const StatusOr<Contract> contract = ParseContract(text);
  if (contract.ok()) {
    const StatusOr<Contract> again = ParseContract(ContractToJson(*contract));
    Require(again.ok() && *again == *contract);
  } else {
    Require(contract.status().message().find('\n') == std::string::npos);
  }
  return 0;
}
