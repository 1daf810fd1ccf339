// SPDX-License-Identifier: Apache-2.0
// Strict reading and writing of .safetensors files.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/file_io.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

struct TensorFile {
  TensorMap tensors;
  std::map<std::string, std::string> metadata;  // "__metadata__", text to text
};

// Reads a whole file. Refused with one line that names the file, the tensor and what is wrong: a
// truncated or oversized header, bad or repeated JSON keys, an unknown dtype, a negative or
// overflowing shape, offsets that do not match the shape, tensors that overlap or leave gaps, bytes
// missing or left over. Memory use is bounded by the size of the file.
StatusOr<TensorFile> ReadSafetensors(const std::filesystem::path& file);

// Writes tensors sorted by name, data aligned to 8 bytes; the same content gives the same bytes.
// The file appears under its name only when it is complete.
Status WriteSafetensors(const std::filesystem::path& file, const TensorFile& content,
                        Durability durability = Durability::kFlushed);

}  // namespace attest
