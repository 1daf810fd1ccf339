// SPDX-License-Identifier: Apache-2.0
// Strict reading of JSON objects: every field is known, typed, and named by its path when refused.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// Parses JSON text. Refuses syntax errors, repeated keys and nesting beyond `max_depth`.
StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, int max_depth = 16);

// Reads the fields of one object. The first error is kept; later reads then return defaults, so
// that a reader can be written without a branch per field:
//   ObjectReader reader(json, "mask");
//   reader.ReadNumber("softcap", &softcap);
//   ...
//   return reader.Finish();   // also refuses fields that nobody read
class ObjectReader {
 public:
  ObjectReader(const nlohmann::json& object, std::string path);

  bool Has(const std::string& field) const;
  // Each leaves *value alone when the field is absent.
  void ReadIndex(const std::string& field, Index* value);  // an integer >= 0
  void ReadNumber(const std::string& field, double* value);
  void ReadBool(const std::string& field, bool* value);
  void ReadText(const std::string& field, std::string* value);
  // A text that must be one of `choices`; stores its position.
  void ReadChoice(const std::string& field, const std::vector<std::string_view>& choices,
                  int* position);
  // The raw value, or null when absent.
  const nlohmann::json* ReadAny(const std::string& field);

  // Reports that `field` is wrong: "path.field: message".
  void Fail(const std::string& field, const std::string& message);
  std::string PathOf(const std::string& field) const;

  // The first error, else an error for the first field that was never read, else ok.
  Status Finish();

 private:
  const nlohmann::json& object_;
  std::string path_;
  std::set<std::string> known_;
  Status status_;
};

}  // namespace attest
