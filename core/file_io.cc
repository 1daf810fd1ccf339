// SPDX-License-Identifier: Apache-2.0
// Reading and writing of files over POSIX descriptors, and the shared checks on tensors.
#include "core/file_io.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace attest {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors hold little-endian bytes");

// One call of read or write; the kernel takes no more than 2 GiB at a time anyway.
constexpr std::size_t kLargestTransfer = std::size_t{1} << 30;

std::string ErrorText(int error) { return std::generic_category().message(error); }

// Length of the well-formed UTF-8 sequence that `text` begins with, 0 if there is none.
std::size_t Utf8Length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const unsigned second = byte(1);
  if (lead == 0xe0 && second < 0xa0) return 0;  // overlong
  if (lead == 0xed && second > 0x9f) return 0;  // surrogate
  if (lead == 0xf0 && second < 0x90) return 0;  // overlong
  if (lead == 0xf4 && second > 0x8f) return 0;  // beyond U+10FFFF
  return length;
}

// Characters that would break a line or act on a terminal: C0, DEL, C1, and U+2028, U+2029.
bool IsControl(std::string_view character) {
  const auto lead = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return lead < 0x20 || lead == 0x7f;
  if (character.size() == 2) return lead == 0xc2 && static_cast<unsigned char>(character[1]) < 0xa0;
  return character == "\u2028" || character == "\u2029";
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    if (length > 0 && !IsControl(character)) {
      line += character;
    } else {
      for (const char c : character)
        line += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    text.remove_prefix(character.size());
  }
  return line;
}

std::string Quoted(std::string_view text) {
  constexpr std::size_t kLongest = 100;
  std::size_t cut = std::min(text.size(), kLongest);
  while (cut < text.size() && cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) {
    --cut;
  }
  return fmt::format("\"{}{}\"", Printable(text.substr(0, cut)), cut < text.size() ? "..." : "");
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = Utf8Length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

StatusOr<InputFile> InputFile::Open(const std::filesystem::path& file) {
  InputFile input;
  input.name_ = Printable(file.native());
  input.descriptor_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (input.descriptor_ < 0) {
    if (errno == ENOENT) return NotFound(fmt::format("{}: no such file", input.name_));
    return InvalidArgument(fmt::format("{}: cannot be opened: {}", input.name_, ErrorText(errno)));
  }
  struct stat info{};
  if (::fstat(input.descriptor_, &info) != 0) {
    return Internal(fmt::format("{}: cannot be examined: {}", input.name_, ErrorText(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument(fmt::format("{}: is not a regular file", input.name_));
  }
  input.size_ = static_cast<std::uint64_t>(info.st_size);
  return input;
}

InputFile::InputFile(InputFile&& other) noexcept
    : name_(std::move(other.name_)),
      size_(other.size_),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Status InputFile::Read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kLargestTransfer);
    const ssize_t got = ::pread(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Internal(fmt::format("{}: cannot be read: {}", name_, ErrorText(errno)));
    if (got == 0) {
      return InvalidArgument(
          fmt::format("{}: ends at byte {}, {} more were expected", name_, offset, bytes.size()));
    }
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

StatusOr<std::string> ReadWholeFile(const std::filesystem::path& file, std::uint64_t limit) {
  return WithoutExceptions(file, [&]() -> StatusOr<std::string> {
    StatusOr<InputFile> input = InputFile::Open(file);
    if (!input.ok()) return input.status();
    if (input->size() > limit) {
      return InvalidArgument(fmt::format("{}: has {} bytes, at most {} are expected", input->name(),
                                         input->size(), limit));
    }
    std::string text(static_cast<std::size_t>(input->size()), '\0');
    Status status = input->Read(0, std::as_writable_bytes(std::span(text)));
    if (!status.ok()) return status;
    return text;
  });
}

StatusOr<OutputFile> OutputFile::Create(const std::filesystem::path& file) {
  static std::atomic<unsigned> next_number{0};
  OutputFile output;
  output.name_ = Printable(file.native());
  output.target_ = file;
  std::error_code error;
  const std::filesystem::file_status link = std::filesystem::symlink_status(file, error);
  if (std::filesystem::is_symlink(link)) {
    output.target_ = std::filesystem::canonical(file, error);
    if (error) return InvalidArgument(fmt::format("{}: is a dangling link", output.name_));
  }
  const std::filesystem::file_status old = std::filesystem::status(output.target_, error);
  if (std::filesystem::exists(old) && !std::filesystem::is_regular_file(old)) {
    return InvalidArgument(
        fmt::format("{}: exists and is not a regular file, so it is not replaced", output.name_));
  }
  do {
    std::filesystem::path temporary = output.target_;
    temporary += fmt::format(".tmp-{}-{}", ::getpid(), next_number++);
    output.descriptor_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (output.descriptor_ >= 0) output.temporary_ = std::move(temporary);
  } while (output.descriptor_ < 0 && errno == EEXIST);
  if (output.descriptor_ < 0) {
    return InvalidArgument(
        fmt::format("{}: cannot be created: {}", output.name_, ErrorText(errno)));
  }
  return output;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : name_(std::move(other.name_)),
      target_(std::move(other.target_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {
  other.temporary_.clear();
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

Status OutputFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put =
        ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargestTransfer));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return Internal(fmt::format("{}: cannot be written: {}", name_, ErrorText(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Status OutputFile::Commit(Durability durability) {
  ::close(std::exchange(descriptor_, -1));
  if (durability == Durability::kFlushed) {
    // Reopened, because a library may have put another file in the temporary one's place.
    descriptor_ = ::open(temporary_.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0 || ::fsync(descriptor_) != 0) {
      return Internal(fmt::format("{}: cannot be written: {}", name_, ErrorText(errno)));
    }
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    return Internal(fmt::format("{}: cannot be created: {}", name_, ErrorText(errno)));
  }
  temporary_.clear();
  if (durability == Durability::kTemporary) return {};
  // The directory's entry too; some file systems cannot flush a directory, which is no error.
  const std::filesystem::path parent = target_.parent_path();
  const int directory =
      ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    ::fsync(directory);
    ::close(directory);
  }
  return {};
}

Status WriteWholeFile(const std::filesystem::path& file, std::string_view text) {
  return WithoutExceptions(file, [&]() -> Status {
    StatusOr<OutputFile> output = OutputFile::Create(file);
    if (!output.ok()) return output.status();
    Status status = output->Append(text);
    return status.ok() ? output->Commit() : status;
  });
}

std::optional<std::uint64_t> ByteSizeOf(DType dtype, const Shape& shape) {
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<Index>::max());
  std::uint64_t size = SizeOf(dtype);
  bool is_empty = false;
  for (const Index extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) {
      is_empty = true;
      continue;
    }
    const auto factor = static_cast<std::uint64_t>(extent);
    if (size > kLargest / factor) return std::nullopt;
    size *= factor;
  }
  return is_empty ? 0 : size;
}

Status CheckBooleans(const std::string& where, const Tensor& tensor) {
  if (tensor.dtype() != DType::kBool) return {};
  const std::byte* const end = tensor.bytes() + tensor.byte_size();
  const std::byte* const bad =
      std::find_if(tensor.bytes(), end, [](std::byte b) { return b > std::byte{1}; });
  if (bad == end) return {};
  return InvalidArgument(fmt::format("{}: boolean element {} is byte {}, 0 or 1 was expected",
                                     where, bad - tensor.bytes(), std::to_integer<int>(*bad)));
}

Status CheckWritable(const std::string& where, const Tensor& tensor) {
  if (tensor.rank() > kMaxFileRank) {
    return InvalidArgument(fmt::format("{}: has {} axes, at most {} are possible", where,
                                       tensor.rank(), kMaxFileRank));
  }
  const std::optional<std::uint64_t> size = ByteSizeOf(tensor.dtype(), tensor.shape());
  if (!size || *size != tensor.byte_size()) {
    return InvalidArgument(fmt::format("{}: holds {} bytes, which is not what {} {} needs", where,
                                       tensor.byte_size(), NameOf(tensor.dtype()),
                                       ToString(tensor.shape())));
  }
  return CheckBooleans(where, tensor);
}

}  // namespace attest
