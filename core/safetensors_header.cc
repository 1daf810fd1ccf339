// SPDX-License-Identifier: Apache-2.0
// A SAX handler that accepts nothing but a .safetensors header.
#include "core/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/file_io.h"

namespace attest {
namespace {

using nlohmann::json;

struct NamedType {
  std::string_view name;
  DType dtype;
};
constexpr std::array<NamedType, 6> kTypes{{{"F64", DType::kF64},
                                           {"F32", DType::kF32},
                                           {"BF16", DType::kBF16},
                                           {"F16", DType::kF16},
                                           {"I32", DType::kI32},
                                           {"BOOL", DType::kBool}}};
constexpr std::array<std::string_view, 14> kOtherTypes{
    "I64", "I16",     "I8",      "U64",     "U32",     "U16",     "U8",
    "C64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4"};

// Follows the parser through the header and stops it at the first thing that does not belong: so
// repeated keys are seen, nesting is at most three deep, and nothing but the header is built.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  const Status& status() const { return status_; }
  SafetensorsHeader TakeHeader() { return std::move(header_); }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(std::int64_t value) override {
    return Unexpected(fmt::format("the number {}", value));
  }
  bool number_float(double, const std::string& text) override {
    return Unexpected("the number " + Quoted(text));
  }
  bool binary(json::binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ != Place::kList) return Unexpected(fmt::format("the number {}", value));
    if (field_ == "shape" && value > std::uint64_t{std::numeric_limits<Index>::max()}) {
      return Fail(fmt::format("shape has the extent {}, which is beyond 2^63 - 1", value));
    }
    list_.push_back(value);
    if (field_ == "shape" && list_.size() > kMaxFileRank) {
      return Fail(fmt::format("shape has more than {} axes", kMaxFileRank));
    }
    if (field_ == "data_offsets" && list_.size() > 2) {
      return Fail("data_offsets has more than two numbers, [begin, end] was expected");
    }
    return true;
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata[field_] = std::move(value);
      return true;
    }
    if (place_ != Place::kTensor || field_ != "dtype") return Unexpected("a string");
    const auto* type = std::find_if(kTypes.begin(), kTypes.end(),
                                    [&](const NamedType& known) { return known.name == value; });
    if (type != kTypes.end()) {
      header_.entries[name_].dtype = type->dtype;
      return true;
    }
    const bool is_known =
        std::find(kOtherTypes.begin(), kOtherTypes.end(), value) != kOtherTypes.end();
    return Fail(fmt::format("dtype {} is {}, one of F64, F32, BF16, F16, I32, BOOL was expected",
                            Quoted(value), is_known ? "not supported" : "unknown"),
                is_known ? StatusCode::kUnsupported : StatusCode::kInvalidArgument);
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
      return true;
    }
    if (place_ != Place::kRoot) return Unexpected("an object");
    place_ = name_ == kSafetensorsMetadata ? Place::kMetadata : Place::kTensor;
    return true;
  }

  bool key(std::string& value) override {
    if (place_ == Place::kRoot) {
      name_ = value;
      const bool is_new = value == kSafetensorsMetadata ? !std::exchange(has_metadata_, true)
                                                        : header_.entries.try_emplace(value).second;
      fields_.clear();
      return is_new || Fail("occurs twice in the header");
    }
    field_ = value;
    if (place_ == Place::kMetadata) {
      return header_.metadata.try_emplace(value).second ||
             Fail(fmt::format("key {} occurs twice", Quoted(value)));
    }
    if (value != "dtype" && value != "shape" && value != "data_offsets") {
      return Fail(fmt::format("unknown key {}, dtype, shape and data_offsets were expected",
                              Quoted(value)));
    }
    if (std::find(fields_.begin(), fields_.end(), value) != fields_.end()) {
      return Fail(fmt::format("key {} occurs twice", Quoted(value)));
    }
    fields_.push_back(value);
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (const std::string_view field : {"dtype", "shape", "data_offsets"}) {
        if (std::find(fields_.begin(), fields_.end(), field) == fields_.end()) {
          return Fail(fmt::format("has no {}", field));
        }
      }
    }
    place_ = Place::kRoot;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::kTensor || field_ == "dtype") return Unexpected("an array");
    place_ = Place::kList;
    list_.clear();
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    SafetensorsEntry& entry = header_.entries[name_];
    if (field_ == "shape") {
      entry.shape.assign(list_.begin(), list_.end());
      return true;
    }
    if (list_.size() != 2) {
      return Fail(
          fmt::format("data_offsets has {} numbers, [begin, end] was expected", list_.size()));
    }
    entry.begin = list_[0];
    entry.end = list_[1];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    status_ = InvalidArgument(fmt::format("the header is not valid JSON at its byte {}", position));
    return false;
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kTensor, kList };

  bool Fail(const std::string& problem, StatusCode code = StatusCode::kInvalidArgument) {
    const std::string what = name_ == kSafetensorsMetadata ? name_ : "tensor " + Quoted(name_);
    status_ = Status(code, fmt::format("{}: {}", what, problem));
    return false;
  }

  bool Unexpected(const std::string& got) {
    switch (place_) {
      case Place::kStart:
        break;
      case Place::kRoot:
        return Fail(fmt::format("is {}, an object was expected", got));
      case Place::kMetadata:
        return Fail(fmt::format("key {} is {}, a string was expected", Quoted(field_), got));
      case Place::kTensor:
        return Fail(
            fmt::format("{} is {}, {} was expected", field_, got,
                        field_ == "dtype" ? "a string" : "an array of non-negative integers"));
      case Place::kList:
        return Fail(
            fmt::format("{} contains {}, a non-negative integer was expected", field_, got));
    }
    status_ = InvalidArgument(fmt::format("the header is {}, an object was expected", got));
    return false;
  }

  Place place_ = Place::kStart;
  Status status_;
  SafetensorsHeader header_;
  bool has_metadata_ = false;
  std::string name_;                 // key of the root object
  std::string field_;                // key inside it
  std::vector<std::string> fields_;  // keys seen so far in this tensor
  std::vector<std::uint64_t> list_;  // shape or data_offsets
};

}  // namespace

StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(' ') + 1);  // npos + 1 is 0
  // Looked for here, because the parser would skip a byte-order mark and end at a zero byte.
  if (text.empty() || text.front() != '{' || text.back() != '}') {
    return InvalidArgument("the header is not a JSON object with nothing but spaces after it");
  }
  const std::size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    return InvalidArgument(fmt::format("the header has a zero byte at its byte {}", zero + 1));
  }
  HeaderReader reader;
  if (!json::sax_parse(text, &reader)) return reader.status();
  return reader.TakeHeader();
}

std::string_view SafetensorsTypeName(DType dtype) {
  return std::find_if(kTypes.begin(), kTypes.end(),
                      [&](const NamedType& known) { return known.dtype == dtype; })
      ->name;
}

}  // namespace attest
