// SPDX-License-Identifier: Apache-2.0
#include "core/contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json_reader.h"

namespace attest {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Spellings, in the order of the enums.
const std::vector<std::string_view> kScoreNames{"dot", "general", "additive"};
const std::vector<std::string_view> kCausalNames{"none", "top_left", "bottom_right"};
const std::vector<std::string_view> kAlibiNames{"", "none", "default", "tensor"};
const std::vector<std::string_view> kEmptyRowNames{"zero", "nan", "uniform"};
const std::vector<std::string_view> kOutputNames{
    "out",        "lse",    "weights",  "grad_q",   "grad_k",   "grad_v", "grad_bias",
    "grad_sinks", "grad_w", "grad_w_q", "grad_w_k", "grad_v_a", "grad_b"};

// What a profile implies; see docs/bounds.md.
struct ProfileRow {
  std::string_view name;
  std::optional<DType> tensors;  // the only tensor type it is for; none: any
  DType accumulate;
  DType probabilities;
};
constexpr std::array<ProfileRow, 6> kProfiles{{
    {"f32", std::nullopt, DType::kF32, DType::kF32},
    {"f64", std::nullopt, DType::kF64, DType::kF64},
    {"bf16-flash", DType::kBF16, DType::kF32, DType::kBF16},
    {"f16-flash", DType::kF16, DType::kF32, DType::kF16},
    {"bf16-math", DType::kBF16, DType::kF32, DType::kBF16},
    {"f16-math", DType::kF16, DType::kF32, DType::kF16},
}};

template <class Enum>
void ReadEnum(ObjectReader& reader, const std::string& field,
              const std::vector<std::string_view>& names, Enum* value) {
  int position = static_cast<int>(*value);
  reader.ReadChoice(field, names, &position);
  *value = static_cast<Enum>(position);
}

void ReadDType(ObjectReader& reader, const std::string& field, DType* dtype) {
  std::string name;
  reader.ReadText(field, &name);
  if (!reader.Has(field)) return;
  const std::optional<DType> found = DTypeFromName(name);
  if (!found || !IsFloat(*found)) {
    return reader.Fail(field, fmt::format("expected one of f64, f32, bf16, f16, found '{}'", name));
  }
  *dtype = *found;
}

Status ReadShape(const json& object, ScoreKind score, Dimensions* shape) {
  ObjectReader reader(object, "shape");
  for (const char* field : {"q_len", "kv_len", "qk_dim", "v_dim"}) {
    if (!reader.Has(field)) reader.Fail(field, "missing");
  }
  reader.ReadIndex("batch", &shape->batch);
  reader.ReadIndex("q_heads", &shape->q_heads);
  shape->kv_heads = shape->q_heads;
  reader.ReadIndex("kv_heads", &shape->kv_heads);
  reader.ReadIndex("q_len", &shape->q_len);
  reader.ReadIndex("kv_len", &shape->kv_len);
  reader.ReadIndex("qk_dim", &shape->qk_dim);
  shape->k_dim = shape->qk_dim;
  reader.ReadIndex("k_dim", &shape->k_dim);
  reader.ReadIndex("v_dim", &shape->v_dim);
  for (const auto& [field, extent] :
       {std::pair{"batch", shape->batch}, std::pair{"q_heads", shape->q_heads},
        std::pair{"kv_heads", shape->kv_heads}, std::pair{"qk_dim", shape->qk_dim},
        std::pair{"k_dim", shape->k_dim}, std::pair{"v_dim", shape->v_dim}}) {
    if (extent < 1) reader.Fail(field, "expected at least 1");
  }
  if (shape->kv_heads > 0 && shape->q_heads % shape->kv_heads != 0) {
    reader.Fail("kv_heads",
                fmt::format("{} does not divide q_heads = {}", shape->kv_heads, shape->q_heads));
  }
  if (score == ScoreKind::kDot && shape->k_dim != shape->qk_dim) {
    reader.Fail("k_dim", fmt::format("{} contradicts qk_dim = {} (score 'dot' needs equal ones)",
                                     shape->k_dim, shape->qk_dim));
  }
  Index elements = 1;  // no tensor of the contract is larger than the product of all extents
  for (const Index extent :
       {shape->batch, shape->q_heads, std::max<Index>(shape->q_len, 1),
        std::max<Index>(shape->kv_len, 1), std::max({shape->qk_dim, shape->k_dim, shape->v_dim})}) {
    if (__builtin_mul_overflow(elements, extent, &elements)) {
      reader.Fail("batch", "the extents multiply to more than 2^63");
    }
  }
  return reader.Finish();
}

Status ReadScore(const json& object, Contract* contract) {
  ObjectReader reader(object, "score");
  ReadEnum(reader, "kind", kScoreNames, &contract->score);
  contract->scale.rsqrt_dk = contract->score == ScoreKind::kDot;
  if (const json* scale = reader.ReadAny("scale"); scale != nullptr) {
    if (scale->is_string() && *scale == "rsqrt_dk") {
      contract->scale.rsqrt_dk = true;
    } else if (scale->is_number() && std::isfinite(scale->get<double>())) {
      contract->scale = {false, scale->get<double>()};
    } else {
      reader.Fail("scale", "expected \"rsqrt_dk\" or a finite number, found " + scale->dump());
    }
  }
  reader.ReadNumber("softcap", &contract->softcap);
  if (!(contract->softcap >= 0.0) || std::isinf(contract->softcap)) {
    reader.Fail("softcap", "expected a number >= 0 (0: none)");
  }
  return reader.Finish();
}

void ReadWindowSide(ObjectReader& reader, const json& value, Index* side) {
  if (!value.is_number_integer() || value < -1 || value > Index{1} << 40) {
    return reader.Fail("window", "expected two integers >= -1 (-1: unbounded)");
  }
  *side = value.get<Index>();
}

Status ReadMask(const json& object, Contract* contract) {
  ObjectReader reader(object, "mask");
  ReadEnum(reader, "causal", kCausalNames, &contract->causal);
  if (const json* window = reader.ReadAny("window"); window != nullptr) {
    if (window->is_array() && window->size() == 2) {
      ReadWindowSide(reader, window->at(0), &contract->window.left);
      ReadWindowSide(reader, window->at(1), &contract->window.right);
    } else {
      reader.Fail("window", "expected [left, right], found " + window->dump());
    }
  }
  int alibi = -1;
  reader.ReadChoice("alibi", {kAlibiNames.begin() + 1, kAlibiNames.end()}, &alibi);
  contract->alibi = static_cast<Alibi>(alibi + 1);
  return reader.Finish();
}

Status ReadDropout(const json& object, double* rate) {
  ObjectReader reader(object, "dropout");
  reader.ReadNumber("rate", rate);
  if (!(*rate >= 0.0 && *rate < 1.0)) {
    reader.Fail("rate", fmt::format("expected 0 <= rate < 1, found {}", *rate));
  }
  return reader.Finish();
}

Status ReadLocal(const json& object, LocalWindow* local) {
  ObjectReader reader(object, "local");
  reader.ReadNumber("half_width", &local->half_width);
  reader.ReadBool("gaussian", &local->gaussian);
  if (!(local->half_width > 0.0) || std::isinf(local->half_width)) {
    reader.Fail("half_width", "expected a finite number > 0");
  }
  return reader.Finish();
}

const ProfileRow* FindProfile(std::string_view name) {
  const auto* profile = std::find_if(kProfiles.begin(), kProfiles.end(),
                                     [&](const ProfileRow& row) { return row.name == name; });
  return profile == kProfiles.end() ? nullptr : profile;
}

Status ReadArithmetic(const json& object, DType dtype, Arithmetic* arithmetic) {
  ObjectReader reader(object, "arithmetic");
  reader.ReadText("profile", &arithmetic->profile);
  DType accumulate = DType::kF32;
  DType probabilities = DType::kF32;
  ReadDType(reader, "accumulate", &accumulate);
  ReadDType(reader, "probabilities", &probabilities);
  if (reader.Has("accumulate")) arithmetic->accumulate = accumulate;
  if (reader.Has("probabilities")) arithmetic->probabilities = probabilities;
  reader.ReadNumber("exp_ulp", &arithmetic->exp_ulp);
  if (!(arithmetic->exp_ulp >= 0.5 && arithmetic->exp_ulp <= 1e6)) {
    reader.Fail("exp_ulp", "expected 0.5 (correct rounding) to 1e6");
  }
  reader.ReadBool("deterministic", &arithmetic->deterministic);
  reader.ReadBool("batch_invariant", &arithmetic->batch_invariant);

  const ProfileRow* const profile = FindProfile(arithmetic->profile);
  if (profile == nullptr) {
    std::vector<std::string_view> names;
    for (const ProfileRow& row : kProfiles) names.push_back(row.name);
    reader.Fail("profile", fmt::format("unknown profile '{}' (known: {})", arithmetic->profile,
                                       fmt::join(names, ", ")));
    return reader.Finish();
  }
  if (profile->tensors && *profile->tensors != dtype) {
    reader.Fail("profile", fmt::format("'{}' is for {} tensors, the contract's dtype is {}",
                                       profile->name, NameOf(*profile->tensors), NameOf(dtype)));
  }
  // On f64 tensors, profile f32 means f64 throughout.
  const bool wide = dtype == DType::kF64;
  const DType expected_accumulate = wide ? DType::kF64 : profile->accumulate;
  const DType expected_probabilities = wide ? DType::kF64 : profile->probabilities;
  if (arithmetic->accumulate && *arithmetic->accumulate != expected_accumulate) {
    reader.Fail("accumulate", fmt::format("{} contradicts profile '{}', which accumulates in {}",
                                          NameOf(*arithmetic->accumulate), profile->name,
                                          NameOf(expected_accumulate)));
  }
  if (arithmetic->probabilities && *arithmetic->probabilities != expected_probabilities) {
    reader.Fail("probabilities",
                fmt::format("{} contradicts profile '{}', which keeps probabilities in {}",
                            NameOf(*arithmetic->probabilities), profile->name,
                            NameOf(expected_probabilities)));
  }
  return reader.Finish();
}

void ReadOutputs(ObjectReader& reader, std::vector<std::string>* outputs) {
  const json* list = reader.ReadAny("outputs");
  if (list == nullptr) return;
  if (!list->is_array() || list->empty()) {
    return reader.Fail("outputs", "expected a non-empty list of names, found " + list->dump());
  }
  for (const json& item : *list) {
    const std::string name = item.is_string() ? item.get<std::string>() : item.dump();
    if (std::find(kOutputNames.begin(), kOutputNames.end(), name) == kOutputNames.end()) {
      reader.Fail("outputs", fmt::format("unknown output '{}' (known: {})", name,
                                         fmt::join(kOutputNames, ", ")));
    }
    if (std::find(outputs->begin(), outputs->end(), name) != outputs->end()) {
      reader.Fail("outputs", fmt::format("'{}' appears twice", name));
    }
    outputs->push_back(name);
  }
}

}  // namespace

const std::vector<std::string_view>& OutputNames() { return kOutputNames; }

std::string_view DefaultProfile(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16-flash";
    case DType::kF16:
      return "f16-flash";
    default:
      return "f32";
  }
}

bool HasProfile(DType dtype, std::string_view profile) {
  const ProfileRow* const row = FindProfile(profile);
  return row != nullptr && (!row->tensors || *row->tensors == dtype);
}

bool Contract::Wants(std::string_view output) const {
  return std::find(outputs.begin(), outputs.end(), output) != outputs.end();
}

double DefaultAlibiExponent(Index head, Index heads) {
  const Index power = static_cast<Index>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  if (head < power) return -8.0 * static_cast<double>(head + 1) / static_cast<double>(power);
  return -8.0 * static_cast<double>(2 * (head - power) + 1) / static_cast<double>(2 * power);
}

StatusOr<Arithmetic> ParseArithmetic(std::string_view json_text) {
  StatusOr<json> parsed = ParseStrictJson(json_text);
  if (!parsed.ok()) return InvalidArgument("arithmetic: " + parsed.status().message());
  const bool names_profile = parsed->is_object() && parsed->contains("profile");
  Arithmetic arithmetic;
  const ProfileRow* profile = nullptr;
  if (names_profile && (*parsed)["profile"].is_string()) {
    profile = FindProfile((*parsed)["profile"].get<std::string>());
  }
  const DType tensors = profile != nullptr ? profile->tensors.value_or(DType::kF32) : DType::kF32;
  if (Status s = ReadArithmetic(*parsed, tensors, &arithmetic); !s.ok()) return s;
  if (!names_profile) arithmetic.profile.clear();
  return arithmetic;
}

StatusOr<Contract> ParseContract(std::string_view json_text) {
  StatusOr<json> parsed = ParseStrictJson(json_text);
  if (!parsed.ok()) return InvalidArgument("contract: " + parsed.status().message());

  Contract contract;
  ObjectReader reader(*parsed, "");
  Index version = 1;
  reader.ReadIndex("attest_contract", &version);
  if (version != 1) reader.Fail("attest_contract", fmt::format("unknown version {}", version));
  if (!reader.Has("dtype")) reader.Fail("dtype", "missing");
  if (!reader.Has("shape")) reader.Fail("shape", "missing");
  ReadDType(reader, "dtype", &contract.dtype);
  contract.out_dtype = contract.dtype;
  ReadDType(reader, "out_dtype", &contract.out_dtype);
  ReadEnum(reader, "empty_row", kEmptyRowNames, &contract.empty_row);
  ReadOutputs(reader, &contract.outputs);
  contract.arithmetic.profile = DefaultProfile(contract.dtype);

  // The nested objects; "shape" last because it depends on the kind of score.
  Status status;
  const auto read_section = [&](const std::string& field, const auto& read) {
    const json* section = reader.ReadAny(field);
    if (section != nullptr && status.ok()) status = read(*section);
  };
  read_section("score", [&](const json& section) { return ReadScore(section, &contract); });
  read_section("mask", [&](const json& section) { return ReadMask(section, &contract); });
  read_section("dropout",
               [&](const json& section) { return ReadDropout(section, &contract.dropout_rate); });
  read_section("local", [&](const json& section) {
    contract.local.emplace();
    return ReadLocal(section, &*contract.local);
  });
  read_section("arithmetic", [&](const json& section) {
    return ReadArithmetic(section, contract.dtype, &contract.arithmetic);
  });
  read_section("shape", [&](const json& section) {
    return ReadShape(section, contract.score, &contract.shape);
  });
  if (Status finished = reader.Finish(); !finished.ok()) return finished;
  if (!status.ok()) return status;
  return contract;
}

std::string ContractToJson(const Contract& contract) {
  const Dimensions& shape = contract.shape;
  ordered_json text;
  text["attest_contract"] = 1;
  text["shape"] = {{"batch", shape.batch}, {"q_heads", shape.q_heads}, {"kv_heads", shape.kv_heads},
                   {"q_len", shape.q_len}, {"kv_len", shape.kv_len},   {"qk_dim", shape.qk_dim},
                   {"k_dim", shape.k_dim}, {"v_dim", shape.v_dim}};
  text["dtype"] = NameOf(contract.dtype);
  text["out_dtype"] = NameOf(contract.out_dtype);
  ordered_json scale = contract.scale.value;
  if (contract.scale.rsqrt_dk) scale = "rsqrt_dk";
  text["score"] = {{"kind", kScoreNames[static_cast<std::size_t>(contract.score)]},
                   {"scale", scale},
                   {"softcap", contract.softcap}};
  text["mask"] = {{"causal", kCausalNames[static_cast<std::size_t>(contract.causal)]},
                  {"window", {contract.window.left, contract.window.right}}};
  if (contract.alibi != Alibi::kUnset) {
    text["mask"]["alibi"] = kAlibiNames[static_cast<std::size_t>(contract.alibi)];
  }
  text["empty_row"] = kEmptyRowNames[static_cast<std::size_t>(contract.empty_row)];
  if (contract.dropout_rate != 0.0) text["dropout"] = {{"rate", contract.dropout_rate}};
  if (contract.local) {
    text["local"] = {{"half_width", contract.local->half_width},
                     {"gaussian", contract.local->gaussian}};
  }
  if (!contract.outputs.empty()) text["outputs"] = contract.outputs;
  const Arithmetic& arithmetic = contract.arithmetic;
  text["arithmetic"] = {{"profile", arithmetic.profile}};
  if (arithmetic.accumulate) text["arithmetic"]["accumulate"] = NameOf(*arithmetic.accumulate);
  if (arithmetic.probabilities) {
    text["arithmetic"]["probabilities"] = NameOf(*arithmetic.probabilities);
  }
  text["arithmetic"]["exp_ulp"] = arithmetic.exp_ulp;
  text["arithmetic"]["deterministic"] = arithmetic.deterministic;
  text["arithmetic"]["batch_invariant"] = arithmetic.batch_invariant;
  return text.dump();
}

}  // namespace attest
