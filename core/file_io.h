// SPDX-License-Identifier: Apache-2.0
// Files read by position and never trusted, files written all or nothing, and the checks that every
// tensor format shares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// More axes than this are refused in files (NumPy's own limit up to version 1).
inline constexpr std::size_t kMaxFileRank = 32;

// `text` as one line of valid UTF-8: control characters and invalid bytes become \xNN.
std::string Printable(std::string_view text);
// Printable text in double quotes, cut after about 100 bytes; for names that come from files.
std::string Quoted(std::string_view text);
// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool IsUtf8(std::string_view text);

// A regular file that is open for reading. Its length is the one it had when it was opened.
class InputFile {
 public:
  // Refuses what does not exist, cannot be read, or is no regular file (a pipe would block).
  static StatusOr<InputFile> Open(const std::filesystem::path& file);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  // The file's name as messages begin with it.
  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }
  int descriptor() const { return descriptor_; }

  // Fills `bytes` from position `offset`; an error if the file ends before.
  Status Read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  InputFile() = default;

  std::string name_;
  std::uint64_t size_ = 0;
  int descriptor_ = -1;
};

// The whole file, which must not be longer than `limit` bytes (checked before anything is read).
StatusOr<std::string> ReadWholeFile(const std::filesystem::path& file, std::uint64_t limit);

// Whether a file that was written survives a loss of power.
enum class Durability {
  kFlushed,    // flushed to the disk
  kTemporary,  // not flushed: for files that are read back and removed
};

// A file that appears under its name only when it is complete: bytes go to a temporary file beside
// it, which Commit() flushes to the disk and renames. Without Commit() nothing remains. A name that
// is already something other than a regular file (a directory, a device) is refused.
class OutputFile {
 public:
  static StatusOr<OutputFile> Create(const std::filesystem::path& file);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  const std::string& name() const { return name_; }
  // Where the bytes are until Commit(); a library may replace the file of this name.
  const std::filesystem::path& temporary() const { return temporary_; }

  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  Status Commit(Durability durability = Durability::kFlushed);

 private:
  OutputFile() = default;

  std::string name_;
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  int descriptor_ = -1;
};

// Replaces `file` by `text`, or leaves it as it was.
Status WriteWholeFile(const std::filesystem::path& file, std::string_view text);

// The little-endian unsigned integer in the first sizeof(T) bytes at `bytes`.
template <class T>
T LoadLittleEndian(const std::byte* bytes) {
  T value = 0;
  for (std::size_t i = sizeof(T); i-- > 0;) {
    value = static_cast<T>((value << 8) | std::to_integer<T>(bytes[i]));
  }
  return value;
}

// `value` as sizeof(T) little-endian bytes.
template <class T>
std::string LittleEndian(T value) {
  std::string bytes;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xff));
  }
  return bytes;
}

// Bytes of a tensor of this type and shape. Nothing when an extent is negative or when the product
// of its extents other than 0 is beyond 2^63 - 1 bytes, so that no product of extents overflows.
std::optional<std::uint64_t> ByteSizeOf(DType dtype, const Shape& shape);

// Refuses a BOOL tensor with a byte other than 0 and 1; `where` begins the message.
Status CheckBooleans(const std::string& where, const Tensor& tensor);

// Refuses what a reader would refuse: a default-constructed tensor, too many axes, bad booleans.
Status CheckWritable(const std::string& where, const Tensor& tensor);

// body(), with an exception (memory that the machine does not have) turned into a Status.
template <class Body>
auto WithoutExceptions(const std::filesystem::path& file, Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    return Internal(Printable(file.native()) + ": not enough memory (" + error.what() + ")");
  }
}

}  // namespace attest
