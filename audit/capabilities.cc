// SPDX-License-Identifier: Apache-2.0
#include "audit/capabilities.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/dtype.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;

const std::map<std::string, NameSet, std::less<>>& KnownNames() {
  static const std::map<std::string, NameSet, std::less<>> names{
      {"dtypes", {"f64", "f32", "bf16", "f16"}},
      {"scores", {"dot", "general", "additive"}},
      {"masks",
       {"boolean", "bias", "causal_top_left", "causal_bottom_right", "window", "kv_lengths",
        "q_lengths", "documents", "local"}},
      {"features",
       {"gqa", "alibi", "softcap", "sinks", "dropout", "explicit_scale", "v_dim", "out_dtype",
        "grad_lse"}},
      {"outputs", NameSet(OutputNames().begin(), OutputNames().end())},
      {"layouts", {"dense", "padded", "transposed", "spread", "sparse"}},
  };
  return names;
}

void ReadNames(ObjectReader& reader, const std::string& field, std::optional<NameSet>* names) {
  const json* const list = reader.ReadAny(field);
  if (list == nullptr) return;
  const NameSet& known = CapabilityNames(field);
  names->emplace();
  if (!list->is_array()) {
    return reader.Fail(field, "expected a list of names, found " + list->dump());
  }
  for (const json& item : *list) {
    const std::string name = item.is_string() ? item.get<std::string>() : item.dump();
    if (!known.contains(name)) {
      return reader.Fail(field,
                         fmt::format("unknown '{}' (known: {})", name, fmt::join(known, ", ")));
    }
    (*names)->insert(name);
  }
}

Status ReadSupports(const json& object, Capabilities* capabilities) {
  ObjectReader reader(object, "supports");
  ReadNames(reader, "dtypes", &capabilities->dtypes);
  ReadNames(reader, "scores", &capabilities->scores);
  ReadNames(reader, "masks", &capabilities->masks);
  ReadNames(reader, "features", &capabilities->features);
  ReadNames(reader, "outputs", &capabilities->outputs);
  ReadNames(reader, "layouts", &capabilities->layouts);
  if (const json* dims = reader.ReadAny("head_dims"); dims != nullptr) {
    capabilities->head_dims.emplace();
    if (!dims->is_array()) reader.Fail("head_dims", "expected a list of sizes");
    for (const json& dim : *dims) {
      if (!dim.is_number_integer() || dim < 1) {
        reader.Fail("head_dims", "expected sizes >= 1, found " + dim.dump());
        break;
      }
      capabilities->head_dims->insert(dim.get<Index>());
    }
  }
  if (reader.Has("empty_row")) {
    int policy = 0;
    reader.ReadChoice("empty_row", {"zero", "nan", "uniform"}, &policy);
    capabilities->empty_row = static_cast<EmptyRow>(policy);
  }
  return reader.Finish();
}

Status ReadArithmetic(const json& value, Capabilities* capabilities) {
  const json list = value.is_array() ? value : json::array({value});
  for (const json& item : list) {
    StatusOr<Arithmetic> arithmetic = ParseArithmetic(item.dump());
    if (!arithmetic.ok()) return arithmetic.status();
    capabilities->deterministic |= arithmetic->deterministic;
    capabilities->batch_invariant |= arithmetic->batch_invariant;
    capabilities->arithmetic.push_back(*std::move(arithmetic));
  }
  return Status();
}

std::string_view NameOf(ScoreKind kind) {
  switch (kind) {
    case ScoreKind::kDot:
      return "dot";
    case ScoreKind::kGeneral:
      return "general";
    case ScoreKind::kAdditive:
      return "additive";
  }
  return "";
}

const std::optional<NameSet>& ListOf(const Capabilities& capabilities, std::string_view list) {
  if (list == "dtypes") return capabilities.dtypes;
  if (list == "scores") return capabilities.scores;
  if (list == "masks") return capabilities.masks;
  if (list == "features") return capabilities.features;
  return capabilities.outputs;
}

}  // namespace

const NameSet& CapabilityNames(std::string_view list) { return KnownNames().find(list)->second; }

StatusOr<Capabilities> ParseCapabilities(std::string_view json_text) {
  StatusOr<json> parsed = ParseStrictJson(json_text);
  if (!parsed.ok()) return InvalidArgument("info: " + parsed.status().message());
  Capabilities capabilities;
  ObjectReader reader(*parsed, "info");
  Index abi = 1;
  reader.ReadIndex("abi", &abi);
  reader.ReadText("name", &capabilities.name);
  reader.ReadText("version", &capabilities.version);
  Status status;
  if (const json* supports = reader.ReadAny("supports"); supports != nullptr) {
    status = ReadSupports(*supports, &capabilities);
  }
  if (const json* arithmetic = reader.ReadAny("arithmetic"); arithmetic != nullptr && status.ok()) {
    status = ReadArithmetic(*arithmetic, &capabilities);
  }
  // Whatever else an implementation says of itself is kept for the record.
  if (parsed->is_object()) {
    for (const auto& [field, value] : parsed->items()) reader.ReadAny(field);
  }
  if (Status finished = reader.Finish(); !finished.ok()) return finished;
  if (!status.ok()) return InvalidArgument("info: " + status.message());
  capabilities.declared = nlohmann::ordered_json::parse(json_text);
  return capabilities;
}

void Declare(const Capabilities& capabilities, SubjectInfo* info) {
  if (!capabilities.name.empty()) info->name = Printable(capabilities.name);
  info->version = Printable(capabilities.version);
  if (capabilities.outputs) {
    info->outputs.insert(capabilities.outputs->begin(), capabilities.outputs->end());
  }
  info->empty_row = capabilities.empty_row;
  info->arithmetic = capabilities.arithmetic;
  info->declared = capabilities.declared;
}

std::vector<Need> NeedsOf(const Case& problem) {
  const Contract& c = problem.contract;
  const Dimensions& shape = c.shape;
  std::vector<Need> needs{{"dtypes", std::string(attest::NameOf(c.dtype))},
                          {"scores", std::string(NameOf(c.score))}};
  const auto has = [&](const char* tensor) { return problem.Find(tensor) != nullptr; };
  const auto add = [&](bool needed, std::string_view list, const char* name) {
    if (needed) needs.push_back({list, name});
  };
  add(has("mask"), "masks", "boolean");
  add(has("bias"), "masks", "bias");
  add(c.causal == Causal::kTopLeft, "masks", "causal_top_left");
  add(c.causal == Causal::kBottomRight, "masks", "causal_bottom_right");
  add(c.window != Window{}, "masks", "window");
  add(has("kv_lengths"), "masks", "kv_lengths");
  add(has("q_lengths"), "masks", "q_lengths");
  add(has("q_documents"), "masks", "documents");
  add(c.local.has_value(), "masks", "local");
  add(shape.q_heads != shape.kv_heads, "features", "gqa");
  add(c.alibi == Alibi::kDefault || (c.alibi != Alibi::kNone && has("alibi_slopes")), "features",
      "alibi");
  add(c.softcap > 0.0, "features", "softcap");
  add(has("sinks"), "features", "sinks");
  add(c.dropout_rate > 0.0 || has("keep"), "features", "dropout");
  const Scale usual{.rsqrt_dk = c.score == ScoreKind::kDot};
  add(c.scale != usual, "features", "explicit_scale");
  add(shape.v_dim != shape.qk_dim, "features", "v_dim");
  add(c.out_dtype != c.dtype, "features", "out_dtype");
  add(has("grad_lse"), "features", "grad_lse");
  return needs;
}

std::optional<std::string> MissingFor(const Case& problem, const Capabilities& capabilities) {
  for (const Need& need : NeedsOf(problem)) {
    const std::optional<NameSet>& names = ListOf(capabilities, need.list);
    if (names && !names->contains(need.name)) return fmt::format("{}: no {}", need.list, need.name);
  }
  if (capabilities.head_dims) {
    const Dimensions& shape = problem.contract.shape;
    for (const Index dim : {shape.qk_dim, shape.k_dim, shape.v_dim}) {
      if (!capabilities.head_dims->contains(dim)) return fmt::format("head_dims: no {}", dim);
    }
  }
  return std::nullopt;
}

}  // namespace attest
