// SPDX-License-Identifier: Apache-2.0
// Any bytes as a .safetensors file: refused in one line, or read, and then written and read the
// same.
#include <filesystem>
#include <string>

#include "core/digest.h"
#include "core/safetensors.h"
#include "properties/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  static FuzzFile file("safetensors");
  const StatusOr<TensorFile> content = ReadSafetensors(file.Hold(data, size));
  if (!content.ok()) {
    Require(!content.status().message().empty());
    Require(content.status().message().find('\n') == std::string::npos);
    return 0;
  }
  static const std::filesystem::path copy =
      std::filesystem::temp_directory_path() /
      ("attest_fuzz_" + std::to_string(getpid()) + ".safetensors");
  Require(WriteSafetensors(copy, *content).ok());
  const StatusOr<TensorFile> again = ReadSafetensors(copy);
  std::filesystem::remove(copy);
  Require(again.ok() && again->metadata == content->metadata);
  Require(Sha256(again->tensors) == Sha256(content->tensors));
  return 0;
}
