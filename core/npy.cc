// SPDX-License-Identifier: Apache-2.0
// .npy files, and .npz archives (zip files of .npy members) by way of libzip.
#include "core/npy.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zip.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "core/npy_array.h"

namespace attest {
namespace {

// An archive member may claim this much: deflate never expands more than 1032 times.
constexpr std::uint64_t kLargestExpansion = 1032;
constexpr std::uint64_t kLargestMember = std::uint64_t{16} << 30;
constexpr std::string_view kMemberSuffix = ".npy";

struct ZipDiscard {
  void operator()(zip_t* archive) const { zip_discard(archive); }
  void operator()(zip_file_t* member) const { zip_fclose(member); }
};
using Archive = std::unique_ptr<zip_t, ZipDiscard>;
using Member = std::unique_ptr<zip_file_t, ZipDiscard>;

std::string ZipErrorText(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  std::string text = Printable(zip_error_strerror(&error));
  zip_error_fini(&error);
  return text;
}

// `flags` 0, or ZIP_CHECKCONS to compare everything that the archive says twice.
StatusOr<Archive> OpenArchive(const InputFile& input, int flags) {
  const int descriptor = ::dup(input.descriptor());
  int error = ZIP_ER_OPEN;
  Archive archive(descriptor < 0 ? nullptr : zip_fdopen(descriptor, flags, &error));
  if (archive != nullptr) return archive;
  if (descriptor >= 0) ::close(descriptor);
  return InvalidArgument(
      fmt::format("{}: is not a readable zip archive: {}", input.name(), ZipErrorText(error)));
}

// Checks what the archive's directory says of a member, before anything of it is read; `available`
// bytes of the file are not yet claimed by other members (which could overlap to expand more).
Status CheckMember(const std::string& where, std::string_view name, const zip_stat_t& stat,
                   std::uint64_t available) {
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if (!name.ends_with(kMemberSuffix) || name.size() == kMemberSuffix.size()) {
    return InvalidArgument(fmt::format("{}: a name ending in .npy was expected", where));
  }
  if ((stat.valid & kNeeded) != kNeeded) {
    return InvalidArgument(fmt::format("{}: the archive does not tell its sizes", where));
  }
  if (stat.encryption_method != ZIP_EM_NONE) {
    return Unsupported(fmt::format("{}: is encrypted", where));
  }
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE) {
    return Unsupported(fmt::format("{}: has compression method {}, stored or deflated was expected",
                                   where, stat.comp_method));
  }
  if (stat.comp_size > available) {
    return InvalidArgument(
        fmt::format("{}: claims {} compressed bytes, the archive has no more than {}", where,
                    stat.comp_size, available));
  }
  const bool is_stored = stat.comp_method == ZIP_CM_STORE;
  const std::uint64_t limit =
      std::min(kLargestMember, stat.comp_size * (is_stored ? 1 : kLargestExpansion));
  if (stat.size > limit || (is_stored && stat.size < stat.comp_size)) {
    return InvalidArgument(fmt::format(
        "{}: claims {} bytes out of {} {}, {} {} were expected", where, stat.size, stat.comp_size,
        is_stored ? "stored" : "deflated", is_stored ? "exactly" : "at most", limit));
  }
  return {};
}

StatusOr<Tensor> ReadMember(zip_t* archive, zip_uint64_t index, const std::string& where,
                            std::uint64_t size) {
  const Member member(zip_fopen_index(archive, index, 0));
  if (member == nullptr) {
    return InvalidArgument(fmt::format("{}: cannot be opened: {}", where, zip_strerror(archive)));
  }
  const auto read = [&](std::span<std::byte> bytes) -> Status {
    while (!bytes.empty()) {
      const zip_int64_t got = zip_fread(member.get(), bytes.data(), bytes.size());
      if (got < 0) {
        return InvalidArgument(
            fmt::format("{}: is damaged: {}", where, zip_file_strerror(member.get())));
      }
      if (got == 0) {
        return InvalidArgument(fmt::format("{}: ends {} bytes early", where, bytes.size()));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    return {};
  };
  StatusOr<Tensor> tensor = ReadNpyArray({where, size, read});
  if (!tensor.ok()) return tensor;
  // The checksum is compared when the end is reached.
  std::byte extra{};
  const zip_int64_t got = zip_fread(member.get(), &extra, 1);
  if (got < 0) {
    return InvalidArgument(
        fmt::format("{}: is damaged: {}", where, zip_file_strerror(member.get())));
  }
  if (got > 0) {
    return InvalidArgument(fmt::format("{}: is longer than the {} bytes it claims", where, size));
  }
  return tensor;
}

StatusOr<TensorMap> ReadMembers(const InputFile& input) {
  StatusOr<Archive> opened = OpenArchive(input, 0);
  if (!opened.ok()) return opened.status();
  zip_t* const archive = opened->get();
  TensorMap tensors;
  std::uint64_t compressed = 0;
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  for (zip_uint64_t index = 0; index < static_cast<zip_uint64_t>(count); ++index) {
    zip_stat_t stat;
    if (zip_stat_index(archive, index, 0, &stat) != 0 || (stat.valid & ZIP_STAT_NAME) == 0) {
      return InvalidArgument(fmt::format("{}: member {} cannot be examined: {}", input.name(),
                                         index, zip_strerror(archive)));
    }
    const std::string name = stat.name;
    const std::string where = fmt::format("{}: member {}", input.name(), Quoted(name));
    Status status = CheckMember(where, name, stat, input.size() - compressed);
    if (!status.ok()) return status;
    compressed += stat.comp_size;
    const std::string tensor_name = name.substr(0, name.size() - kMemberSuffix.size());
    if (tensors.contains(tensor_name)) {
      return InvalidArgument(fmt::format("{}: occurs twice", where));
    }
    StatusOr<Tensor> tensor = ReadMember(archive, index, where, stat.size);
    if (!tensor.ok()) return tensor.status();
    tensors.emplace(tensor_name, std::move(*tensor));
  }
  // Only now, because its messages name no member: an entry count that hides members, say.
  const StatusOr<Archive> consistent = OpenArchive(input, ZIP_CHECKCONS);
  if (!consistent.ok()) return consistent.status();
  return tensors;
}

// Adds a stored member whose bytes are `header` and the tensor's, which must outlive the archive.
bool AddMember(zip_t* archive, const std::string& name, std::string* header, const Tensor& tensor) {
  std::array<zip_buffer_fragment_t, 2> fragments{};
  fragments[0] = {reinterpret_cast<zip_uint8_t*>(header->data()), header->size()};
  // libzip takes mutable bytes but only reads them.
  fragments[1] = {reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(tensor.bytes())),
                  tensor.byte_size()};
  const zip_uint64_t used = tensor.byte_size() > 0 ? 2 : 1;
  zip_source_t* const source = zip_source_buffer_fragment(archive, fragments.data(), used, 0);
  if (source == nullptr) return false;
  const zip_int64_t index = zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);
    return false;
  }
  constexpr zip_uint16_t kMidnight = 0;
  constexpr zip_uint16_t kFirstDay = (1 << 5) | 1;  // 1980-01-01
  const auto member = static_cast<zip_uint64_t>(index);
  return zip_set_file_compression(archive, member, ZIP_CM_STORE, 0) == 0 &&
         zip_file_set_dostime(archive, member, kMidnight, kFirstDay, 0) == 0;
}

Status WriteMembers(const std::filesystem::path& file, const TensorMap& tensors) {
  StatusOr<OutputFile> output = OutputFile::Create(file);
  if (!output.ok()) return output.status();
  if (tensors.empty()) {  // libzip would remove the file
    Status status = output->Append("PK\x05\x06" + std::string(18, '\0'));
    return status.ok() ? output->Commit() : status;
  }
  int error = 0;
  Archive archive(zip_open(output->temporary().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &error));
  if (archive == nullptr) {
    return Internal(fmt::format("{}: cannot be written: {}", output->name(), ZipErrorText(error)));
  }
  std::vector<std::string> headers;
  headers.reserve(tensors.size());  // libzip keeps pointers to their characters
  for (const auto& [name, tensor] : tensors) {
    const std::string member = name + std::string(kMemberSuffix);
    const std::string where = fmt::format("{}: member {}", output->name(), Quoted(member));
    Status status = CheckWritable(where, tensor);
    if (!status.ok()) return status;
    if (name.empty() || name.find('\0') != std::string::npos || !IsUtf8(name)) {
      return InvalidArgument(fmt::format("{}: the name is not possible in an archive", where));
    }
    headers.push_back(NpyPrefix(tensor));
    if (!AddMember(archive.get(), member, &headers.back(), tensor)) {
      return Internal(fmt::format("{}: cannot be written: {}", where, zip_strerror(archive.get())));
    }
  }
  if (zip_close(archive.get()) != 0) {
    return Internal(
        fmt::format("{}: cannot be written: {}", output->name(), zip_strerror(archive.get())));
  }
  archive.release();  // NOLINT: zip_close has freed it
  return output->Commit();
}

}  // namespace

StatusOr<Tensor> ReadNpy(const std::filesystem::path& file) {
  return WithoutExceptions(file, [&]() -> StatusOr<Tensor> {
    const StatusOr<InputFile> input = InputFile::Open(file);
    if (!input.ok()) return input.status();
    const InputFile& opened = input.value();
    std::uint64_t position = 0;
    return ReadNpyArray({opened.name(), opened.size(), [&](std::span<std::byte> bytes) {
                           position += bytes.size();
                           return opened.Read(position - bytes.size(), bytes);
                         }});
  });
}

Status WriteNpy(const std::filesystem::path& file, const Tensor& tensor) {
  return WithoutExceptions(file, [&]() -> Status {
    Status status = CheckWritable(Printable(file.native()), tensor);
    if (!status.ok()) return status;
    StatusOr<OutputFile> output = OutputFile::Create(file);
    if (!output.ok()) return output.status();
    status = output->Append(NpyPrefix(tensor));
    if (status.ok()) status = output->Append({tensor.bytes(), tensor.byte_size()});
    return status.ok() ? output->Commit() : status;
  });
}

StatusOr<TensorMap> ReadNpz(const std::filesystem::path& file) {
  return WithoutExceptions(file, [&]() -> StatusOr<TensorMap> {
    StatusOr<InputFile> input = InputFile::Open(file);
    if (!input.ok()) return input.status();
    return ReadMembers(*input);
  });
}

Status WriteNpz(const std::filesystem::path& file, const TensorMap& tensors) {
  return WithoutExceptions(file, [&]() -> Status { return WriteMembers(file, tensors); });
}

}  // namespace attest
