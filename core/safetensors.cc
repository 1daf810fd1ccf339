// SPDX-License-Identifier: Apache-2.0
// The .safetensors format: the header's length, the header, one data section without gaps.
#include "core/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "core/safetensors_header.h"

namespace attest {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kLargestHeader = 100'000'000;  // the limit of the safetensors library

// Reads the header; `*data_begin` is where the data section starts in the file.
StatusOr<SafetensorsHeader> ReadHeader(const InputFile& input, std::uint64_t* data_begin) {
  std::array<std::byte, kLengthBytes> prefix{};
  if (input.size() < kLengthBytes) {
    return InvalidArgument(
        fmt::format("{}: has {} bytes, at least the 8 of the header length were expected",
                    input.name(), input.size()));
  }
  Status status = input.Read(0, prefix);
  if (!status.ok()) return status;
  const auto length = LoadLittleEndian<std::uint64_t>(prefix.data());
  if (length > kLargestHeader) {
    return InvalidArgument(fmt::format("{}: the header length is {}, at most {} was expected",
                                       input.name(), length, kLargestHeader));
  }
  if (length > input.size() - kLengthBytes) {
    return InvalidArgument(
        fmt::format("{}: the header length is {}, but only {} bytes follow: the file is truncated",
                    input.name(), length, input.size() - kLengthBytes));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  status = input.Read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (!status.ok()) return status;
  StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(text);
  if (!header.ok()) {
    return Status(header.status().code(),
                  fmt::format("{}: {}", input.name(), header.status().message()));
  }
  *data_begin = kLengthBytes + length;
  return header;
}

// Every tensor has the bytes its shape needs, and together they fill the data section exactly.
Status CheckLayout(const std::string& file, const SafetensorsHeader& header,
                   std::uint64_t data_size) {
  using Named = std::pair<const std::string, SafetensorsEntry>;
  std::vector<const Named*> order;
  for (const Named& named : header.entries) {
    const SafetensorsEntry& entry = named.second;
    const std::string where = fmt::format("{}: tensor {}", file, Quoted(named.first));
    const std::optional<std::uint64_t> size = ByteSizeOf(entry.dtype, entry.shape);
    if (!size) {
      return InvalidArgument(
          fmt::format("{}: shape {} overflows 2^63 - 1 bytes", where, ToString(entry.shape)));
    }
    if (entry.begin > entry.end || entry.end - entry.begin != *size) {
      return InvalidArgument(
          fmt::format("{}: data_offsets [{}, {}] do not span the {} bytes that {} {} needs", where,
                      entry.begin, entry.end, *size, NameOf(entry.dtype), ToString(entry.shape)));
    }
    if (entry.end > data_size) {
      return InvalidArgument(
          fmt::format("{}: ends at byte {} of the data, which has {}: the file is truncated", where,
                      entry.end, data_size));
    }
    order.push_back(&named);
  }
  std::sort(order.begin(), order.end(), [](const Named* a, const Named* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t position = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const SafetensorsEntry& entry = order[i]->second;
    if (entry.begin != position) {
      const std::string where = fmt::format("{}: tensor {}", file, Quoted(order[i]->first));
      if (entry.begin < position) {
        return InvalidArgument(fmt::format(
            "{}: begins at byte {} of the data and overlaps tensor {}, which ends at {}", where,
            entry.begin, Quoted(order[i - 1]->first), position));
      }
      return InvalidArgument(
          fmt::format("{}: begins at byte {} of the data, {} was expected: a gap", where,
                      entry.begin, position));
    }
    position = entry.end;
  }
  if (position != data_size) {
    return InvalidArgument(fmt::format("{}: {} bytes are left over after the last tensor", file,
                                       data_size - position));
  }
  return {};
}

StatusOr<TensorFile> ReadOpened(const InputFile& input) {
  std::uint64_t data_begin = 0;
  StatusOr<SafetensorsHeader> header = ReadHeader(input, &data_begin);
  if (!header.ok()) return header.status();
  Status status = CheckLayout(input.name(), *header, input.size() - data_begin);
  if (!status.ok()) return status;
  TensorFile content;
  for (auto& [name, entry] : header->entries) {
    Tensor tensor(entry.dtype, std::move(entry.shape));
    status = input.Read(data_begin + entry.begin, {tensor.bytes(), tensor.byte_size()});
    if (status.ok() && tensor.dtype() == DType::kBool) {
      status = CheckBooleans(fmt::format("{}: tensor {}", input.name(), Quoted(name)), tensor);
    }
    if (!status.ok()) return status;
    content.tensors.emplace(name, std::move(tensor));
  }
  content.metadata = std::move(header->metadata);
  return content;
}

Status CheckNames(const std::string& file, const TensorFile& content) {
  for (const auto& [name, tensor] : content.tensors) {
    const std::string where = fmt::format("{}: tensor {}", file, Quoted(name));
    if (name == kSafetensorsMetadata) return InvalidArgument(where + ": the name is reserved");
    if (!IsUtf8(name)) return InvalidArgument(where + ": the name is not UTF-8");
    Status status = CheckWritable(where, tensor);
    if (!status.ok()) return status;
  }
  for (const auto& [key, value] : content.metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      return InvalidArgument(fmt::format("{}: {}: key {} or its text is not UTF-8", file,
                                         kSafetensorsMetadata, Quoted(key)));
    }
  }
  return {};
}

// The header padded with spaces, so that the data section starts at a multiple of 8.
std::string HeaderText(const TensorFile& content) {
  std::string text = "{";
  if (!content.metadata.empty()) {
    text += fmt::format("\"{}\":{}", kSafetensorsMetadata, json(content.metadata).dump());
  }
  std::uint64_t position = 0;
  for (const auto& [name, tensor] : content.tensors) {
    const std::uint64_t end = position + tensor.byte_size();
    if (text.size() > 1) text += ',';
    text += fmt::format(R"({}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                        json(name).dump(), SafetensorsTypeName(tensor.dtype()),
                        json(tensor.shape()).dump(), position, end);
    position = end;
  }
  text += '}';
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

}  // namespace

StatusOr<TensorFile> ReadSafetensors(const std::filesystem::path& file) {
  return WithoutExceptions(file, [&]() -> StatusOr<TensorFile> {
    StatusOr<InputFile> input = InputFile::Open(file);
    if (!input.ok()) return input.status();
    return ReadOpened(*input);
  });
}

Status WriteSafetensors(const std::filesystem::path& file, const TensorFile& content,
                        Durability durability) {
  return WithoutExceptions(file, [&]() -> Status {
    const std::string name = Printable(file.native());
    Status status = CheckNames(name, content);
    if (!status.ok()) return status;
    const std::string header = HeaderText(content);
    if (header.size() > kLargestHeader) {
      return InvalidArgument(
          fmt::format("{}: the header would have {} bytes, at most {} can be read", name,
                      header.size(), kLargestHeader));
    }
    StatusOr<OutputFile> output = OutputFile::Create(file);
    if (!output.ok()) return output.status();
    status = output->Append(LittleEndian<std::uint64_t>(header.size()) + header);
    for (const auto& [tensor_name, tensor] : content.tensors) {
      if (status.ok()) status = output->Append({tensor.bytes(), tensor.byte_size()});
    }
    return status.ok() ? output->Commit(durability) : status;
  });
}

}  // namespace attest
