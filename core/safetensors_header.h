// SPDX-License-Identifier: Apache-2.0
// The JSON header of a .safetensors file, parsed without trust in it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// The header's key that is no tensor.
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

// What the header says of one tensor; `begin` and `end` are positions in the data section.
struct SafetensorsEntry {
  DType dtype = DType::kF32;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct SafetensorsHeader {
  std::map<std::string, SafetensorsEntry> entries;
  std::map<std::string, std::string> metadata;
};

// Parses a header, trailing spaces allowed. What is not JSON, repeated or unknown keys, values of
// the wrong type and unsupported dtypes are refused; shapes and offsets are not yet compared with
// each other or with a file. Messages name the tensor, not the file.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text);

// "F32" and the like.
std::string_view SafetensorsTypeName(DType dtype);

}  // namespace attest
