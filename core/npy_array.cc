// SPDX-License-Identifier: Apache-2.0
// The .npy format: a preamble, a Python dict literal, then the elements.
#include "core/npy_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file_io.h"

namespace attest {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::uint64_t kShortPreamble = 10;  // magic, version, and a length of 2 bytes (version 1)
constexpr std::uint64_t kLongPreamble = 12;   // ... of 4 bytes (versions 2 and 3)
constexpr std::uint64_t kLargestHeader = 1 << 20;

std::string_view DescrOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "<f8";
    case DType::kF32:
      return "<f4";
    case DType::kBF16:
      return "<V2";
    case DType::kF16:
      return "<f2";
    case DType::kI32:
      return "<i4";
    case DType::kBool:
      return "|b1";
  }
  return "";
}

StatusOr<DType> DTypeOfDescr(std::string_view descr) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI32}) {
    if (descr == DescrOf(dtype)) return dtype;
  }
  if (descr == "|b1") return DType::kBool;
  if (descr == "|V2") return DType::kBF16;
  if (descr.starts_with('>')) {
    return Unsupported(
        fmt::format("descr {} is big endian, little endian was expected", Quoted(descr)));
  }
  return Unsupported(fmt::format(
      "descr {} is not supported, one of <f8, <f4, <f2, <i4, |b1, <V2 (bfloat16) was expected",
      Quoted(descr)));
}

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

// Parses the header's dict literal: the three keys in any order, each once, and nothing else that
// Python would accept (no escapes, no expressions).
class DictParser {
 public:
  explicit DictParser(std::string_view text) : text_(text) {}

  StatusOr<NpyHeader> Parse() {
    NpyHeader header;
    if (!Take('{')) return Problem("'{' was expected");
    std::vector<std::string> seen;
    while (!Take('}')) {
      std::string key;
      if (!seen.empty() && !Take(',')) return Problem("',' or '}' was expected");
      if (!seen.empty() && Take('}')) break;
      if (!TakeString(&key)) return Problem("a key in quotes was expected");
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) {
        return InvalidArgument(fmt::format("header key {} occurs twice", Quoted(key)));
      }
      seen.push_back(key);
      if (!Take(':')) return Problem("':' was expected");
      Status status = ParseValue(key, &header);
      if (!status.ok()) return status;
    }
    for (const std::string_view key : {"descr", "fortran_order", "shape"}) {
      if (std::find(seen.begin(), seen.end(), key) == seen.end()) {
        return InvalidArgument(fmt::format("header key {} is missing", Quoted(key)));
      }
    }
    SkipSpaces();
    if (text_.substr(position_) != "\n") {
      return Problem("nothing but spaces and one newline was expected after the dict");
    }
    return header;
  }

 private:
  Status Problem(std::string_view expected) const {
    return InvalidArgument(fmt::format("header character {}: {}", position_, expected));
  }

  Status ParseValue(const std::string& key, NpyHeader* header) {
    if (key == "descr") {
      return TakeString(&header->descr)
                 ? Status()
                 : Problem("a descr in quotes was expected (structured types are not supported)");
    }
    if (key == "fortran_order") {
      header->fortran_order = TakeWord("True");
      return header->fortran_order || TakeWord("False") ? Status()
                                                        : Problem("True or False was expected");
    }
    if (key == "shape") return ParseShape(&header->shape);
    return InvalidArgument(fmt::format(
        "unknown header key {}, descr, fortran_order and shape were expected", Quoted(key)));
  }

  // A tuple: "()", "(3,)", "(2, 3)" or "(2, 3,)".
  Status ParseShape(Shape* shape) {
    if (!Take('(')) return Problem("a tuple of extents was expected");
    bool comma = true;
    while (!Take(')')) {
      SkipSpaces();
      if (!comma) return Problem("',' or ')' was expected");
      Index extent = 0;
      const char* const begin = text_.data() + position_;
      const char* const end = text_.data() + text_.size();
      const auto [after, error] = std::from_chars(begin, end, extent);
      if (error == std::errc::result_out_of_range) return Problem("the extent is beyond 2^63 - 1");
      const bool leading_zero = after - begin > 1 && *begin == '0';
      if (error != std::errc() || *begin == '-' || leading_zero) {
        return Problem("a non-negative extent was expected");
      }
      if (shape->size() == kMaxFileRank) {
        return Problem(fmt::format("at most {} axes were expected", kMaxFileRank));
      }
      position_ += static_cast<std::size_t>(after - begin);
      shape->push_back(extent);
      comma = Take(',');
    }
    if (shape->size() == 1 && !comma) return Problem("a tuple was expected, not a number");
    return {};
  }

  void SkipSpaces() {
    while (position_ < text_.size() && text_[position_] == ' ') ++position_;
  }

  bool Take(char c) {
    SkipSpaces();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  bool TakeWord(std::string_view word) {
    SkipSpaces();
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  bool TakeString(std::string* value) {
    SkipSpaces();
    if (position_ >= text_.size()) return false;
    const char quote = text_[position_];
    if (quote != '\'' && quote != '"') return false;
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) return false;
    *value = text_.substr(position_ + 1, end - position_ - 1);
    if (value->find_first_of("\\\n") != std::string::npos) return false;
    position_ = end + 1;
    return true;
  }

  std::string_view text_;
  std::size_t position_ = 0;
};

// Reads the preamble and the header; `*header_end` is where the elements start.
StatusOr<NpyHeader> ReadHeader(const NpySource& source, std::uint64_t* header_end) {
  if (source.size < kShortPreamble) {
    return InvalidArgument(fmt::format("{}: has {} bytes, at least {} were expected", source.where,
                                       source.size, kShortPreamble));
  }
  std::array<std::byte, kLongPreamble> preamble{};
  Status status = source.read(std::span(preamble).first(kShortPreamble));
  if (!status.ok()) return status;
  if (std::memcmp(preamble.data(), kMagic.data(), kMagic.size()) != 0) {
    return InvalidArgument(
        fmt::format("{}: does not begin with the magic bytes of .npy", source.where));
  }
  const int major = std::to_integer<int>(preamble[6]);
  const int minor = std::to_integer<int>(preamble[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return Unsupported(fmt::format("{}: has format version {}.{}, 1.0, 2.0 or 3.0 was expected",
                                   source.where, major, minor));
  }
  std::uint64_t begin = kShortPreamble;
  std::uint64_t length = LoadLittleEndian<std::uint16_t>(preamble.data() + 8);
  if (major > 1) {
    begin = kLongPreamble;
    if (source.size < begin) {
      return InvalidArgument(fmt::format("{}: has {} bytes, at least {} were expected",
                                         source.where, source.size, begin));
    }
    status = source.read(std::span(preamble).subspan(kShortPreamble));
    if (!status.ok()) return status;
    length = LoadLittleEndian<std::uint32_t>(preamble.data() + 8);
  }
  if (length > source.size - begin || length > kLargestHeader) {
    return InvalidArgument(fmt::format("{}: the header length is {}, at most {} was expected",
                                       source.where, length,
                                       std::min(source.size - begin, kLargestHeader)));
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  status = source.read(std::as_writable_bytes(std::span(text)));
  if (!status.ok()) return status;
  *header_end = begin + length;
  StatusOr<NpyHeader> header = DictParser(text).Parse();
  if (header.ok()) return header;
  return InvalidArgument(fmt::format("{}: {}", source.where, header.status().message()));
}

}  // namespace

StatusOr<Tensor> ReadNpyArray(const NpySource& source) {
  std::uint64_t header_end = 0;
  StatusOr<NpyHeader> header = ReadHeader(source, &header_end);
  if (!header.ok()) return header.status();
  const StatusOr<DType> dtype = DTypeOfDescr(header->descr);
  if (!dtype.ok()) {
    return Unsupported(fmt::format("{}: {}", source.where, dtype.status().message()));
  }
  if (header->fortran_order) {
    return Unsupported(
        fmt::format("{}: fortran_order is True, C order was expected", source.where));
  }
  const std::optional<std::uint64_t> size = ByteSizeOf(dtype.value(), header->shape);
  if (!size) {
    return InvalidArgument(fmt::format("{}: shape {} overflows 2^63 - 1 bytes", source.where,
                                       ToString(header->shape)));
  }
  if (*size != source.size - header_end) {
    return InvalidArgument(fmt::format("{}: {} bytes follow the header, but {} {} needs {}",
                                       source.where, source.size - header_end,
                                       NameOf(dtype.value()), ToString(header->shape), *size));
  }
  Tensor tensor(dtype.value(), std::move(header->shape));
  Status status = source.read({tensor.bytes(), tensor.byte_size()});
  if (status.ok()) status = CheckBooleans(source.where, tensor);
  if (!status.ok()) return status;
  return tensor;
}

std::string NpyPrefix(const Tensor& tensor) {
  constexpr std::size_t kAlignment = 64;
  constexpr std::size_t kGrowthDigits = 21;  // room for the first extent to be rewritten in place
  std::string shape = "(";
  for (std::size_t axis = 0; axis < tensor.rank(); ++axis) {
    if (axis > 0) shape += ", ";
    shape += std::to_string(tensor.shape()[axis]);
  }
  shape += tensor.rank() == 1 ? ",)" : ")";
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                 DescrOf(tensor.dtype()), shape);
  if (tensor.rank() > 0) {
    dict.append(kGrowthDigits - std::to_string(tensor.shape()[0]).size(), ' ');
  }
  const std::size_t used = kShortPreamble + dict.size() + 1;
  dict.append(kAlignment - used % kAlignment, ' ');
  dict += '\n';
  return fmt::format("{}\x01{}", kMagic, std::string(1, '\0')) +
         LittleEndian(static_cast<std::uint16_t>(dict.size())) + dict;
}

}  // namespace attest
