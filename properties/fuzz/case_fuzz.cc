// SPDX-License-Identifier: Apache-2.0
// Any bytes as a case file, and the same bytes as the result of the case that they may be.
#include <string>

#include "audit/capabilities.h"
#include "core/case.h"
#include "properties/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  static FuzzFile file("case");
  // Readers tell formats by the end of a file's name; what has none of theirs is .safetensors.
  const std::filesystem::path name = file.Hold(data, size);
  const StatusOr<Case> problem = ReadCase(name);
  if (!problem.ok()) {
    Require(problem.status().message().find('\n') == std::string::npos);
    return 0;
  }
  Require(!NeedsOf(*problem).empty());
  for (const std::string& output : AllowedOutputs(*problem)) {
    Require(ElementCount(OutputShape(*problem, output)) >= 0);
  }
  const StatusOr<TensorMap> result = ReadResult(name, *problem);
  if (!result.ok()) Require(result.status().message().find('\n') == std::string::npos);
  return 0;
}
