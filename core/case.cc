// SPDX-License-Identifier: Apache-2.0
#include "core/case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/file_io.h"
#include "core/npy.h"
#include "core/safetensors.h"

namespace attest {
namespace {

constexpr const char* kContractKey = "attest";
constexpr std::uint64_t kContractSizeLimit = std::uint64_t{1} << 20;

// Which element types a tensor may have.
enum class TypeRule { kContract, kContractOrWide, kI32, kBool };

struct TensorRule {
  const char* name;
  TypeRule type;
  Shape shape;
  bool broadcasts = false;  // axes of length 1 stand for the whole axis
};

// Every tensor that a contract knows. `additive` sizes are checked where w_q gives A.
std::vector<TensorRule> RulesFor(const Contract& contract, Index additive_width) {
  const Dimensions& s = contract.shape;
  const Shape scores{s.batch, s.q_heads, s.q_len, s.kv_len};
  return {
      {"q", TypeRule::kContract, {s.batch, s.q_heads, s.q_len, s.qk_dim}},
      {"k", TypeRule::kContract, {s.batch, s.kv_heads, s.kv_len, s.k_dim}},
      {"v", TypeRule::kContract, {s.batch, s.kv_heads, s.kv_len, s.v_dim}},
      {"mask", TypeRule::kBool, scores, true},
      {"bias", TypeRule::kContractOrWide, scores, true},
      {"keep", TypeRule::kBool, scores, true},
      {"kv_lengths", TypeRule::kI32, {s.batch}},
      {"q_lengths", TypeRule::kI32, {s.batch}},
      {"q_documents", TypeRule::kI32, {s.batch, s.q_len}},
      {"kv_documents", TypeRule::kI32, {s.batch, s.kv_len}},
      {"alibi_slopes", TypeRule::kContractOrWide, {s.q_heads}},
      {"sinks", TypeRule::kContractOrWide, {s.q_heads}},
      {"local_center", TypeRule::kContractOrWide, {s.batch, s.q_heads, s.q_len}},
      {"w", TypeRule::kContract, {s.qk_dim, s.k_dim}},
      {"w_q", TypeRule::kContract, {additive_width, s.qk_dim}},
      {"w_k", TypeRule::kContract, {additive_width, s.k_dim}},
      {"b", TypeRule::kContract, {additive_width}},
      {"v_a", TypeRule::kContract, {additive_width}},
      {"grad_out", TypeRule::kContract, {s.batch, s.q_heads, s.q_len, s.v_dim}},
      {"grad_lse", TypeRule::kContractOrWide, {s.batch, s.q_heads, s.q_len}},
  };
}

bool TypeFits(DType dtype, TypeRule rule, const Contract& contract) {
  switch (rule) {
    case TypeRule::kContract:
      return dtype == contract.dtype;
    case TypeRule::kContractOrWide:
      return dtype == contract.dtype || dtype == contract.wide_dtype();
    case TypeRule::kI32:
      return dtype == DType::kI32;
    case TypeRule::kBool:
      return dtype == DType::kBool;
  }
  return false;
}

std::string Expected(TypeRule rule, const Contract& contract) {
  switch (rule) {
    case TypeRule::kContract:
      return std::string(NameOf(contract.dtype));
    case TypeRule::kContractOrWide:
      return contract.dtype == contract.wide_dtype()
                 ? std::string(NameOf(contract.dtype))
                 : fmt::format("{} or {}", NameOf(contract.dtype), NameOf(contract.wide_dtype()));
    case TypeRule::kI32:
      return "i32";
    case TypeRule::kBool:
      return "bool";
  }
  return "";
}

bool ShapeFits(const Shape& shape, const TensorRule& rule) {
  if (shape.size() != rule.shape.size()) return false;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const bool stretched = rule.broadcasts && shape[axis] == 1;
    if (shape[axis] != rule.shape[axis] && !stretched) return false;
  }
  return true;
}

Status CheckTensor(const std::string& name, const Tensor& tensor, const TensorRule& rule,
                   const Contract& contract) {
  if (!TypeFits(tensor.dtype(), rule.type, contract)) {
    return InvalidArgument(fmt::format("tensor '{}': expected type {}, found {}", name,
                                       Expected(rule.type, contract), NameOf(tensor.dtype())));
  }
  if (!ShapeFits(tensor.shape(), rule)) {
    return InvalidArgument(
        fmt::format("tensor '{}': expected shape {}{}, found {}", name, ToString(rule.shape),
                    rule.broadcasts ? " (or 1 on an axis)" : "", ToString(tensor.shape())));
  }
  return Status();
}

Status CheckLengths(const Case& problem, const char* name, Index limit) {
  const Tensor* lengths = problem.Find(name);
  if (lengths == nullptr) return Status();
  for (Index i = 0; i < lengths->size(); ++i) {
    if (!(lengths->At(i) >= 0 && lengths->At(i) <= static_cast<double>(limit))) {
      return InvalidArgument(fmt::format("tensor '{}': element {} is {}, expected 0 to {}", name, i,
                                         lengths->At(i), limit));
    }
  }
  return Status();
}

// Whether the case has the tensors that a known output needs.
Status CheckOutput(const Case& problem, const std::string& output) {
  if (!output.starts_with("grad_")) return Status();
  if (problem.Find("grad_out") == nullptr && problem.Find("grad_lse") == nullptr) {
    return InvalidArgument(fmt::format("'{}' needs a tensor 'grad_out' or 'grad_lse'", output));
  }
  if (const std::string of = output.substr(5); problem.Find(of) == nullptr) {
    return InvalidArgument(fmt::format("'{}', but there is no tensor '{}'", output, of));
  }
  return Status();
}

// Tensors that only make sense together, or with a field of the contract.
Status CheckCombinations(const Case& problem) {
  const Contract& contract = problem.contract;
  const auto has = [&](const char* name) { return problem.Find(name) != nullptr; };
  if (has("q_documents") != has("kv_documents")) {
    return InvalidArgument("tensor 'q_documents' and 'kv_documents': only one of the two is given");
  }
  if (contract.local.has_value() != has("local_center")) {
    return InvalidArgument(contract.local ? "local: the tensor 'local_center' is missing"
                                          : "tensor 'local_center': the contract has no 'local'");
  }
  if (contract.alibi == Alibi::kTensor && !has("alibi_slopes")) {
    return InvalidArgument("mask.alibi: 'tensor', but the tensor 'alibi_slopes' is missing");
  }
  const auto needs = [&](std::initializer_list<const char*> names, ScoreKind kind) -> Status {
    for (const char* name : names) {
      if (contract.score == kind && !has(name)) {
        return InvalidArgument(fmt::format("tensor '{}': missing, the score kind needs it", name));
      }
      if (contract.score != kind && has(name)) {
        return InvalidArgument(fmt::format("tensor '{}': not used by this score kind", name));
      }
    }
    return Status();
  };
  if (Status s = needs({"w"}, ScoreKind::kGeneral); !s.ok()) return s;
  if (Status s = needs({"w_q", "w_k", "v_a"}, ScoreKind::kAdditive); !s.ok()) return s;
  if (contract.score != ScoreKind::kAdditive && has("b")) {
    return InvalidArgument("tensor 'b': not used by this score kind");
  }
  for (const std::string& output : contract.outputs) {
    if (Status s = CheckOutput(problem, output); !s.ok()) {
      return InvalidArgument("outputs: " + s.message());
    }
  }
  return Status();
}

// The tensor whose gradient the output `name` is; null when it is none.
const Tensor* GradientOf(const Case& problem, const std::string& name) {
  return name.starts_with("grad_") ? problem.Find(name.substr(5)) : nullptr;
}

Status InFile(const std::filesystem::path& file, const Status& status) {
  return {status.code(), file.string() + ": " + status.message()};
}

}  // namespace

const Tensor* Case::Find(const std::string& tensor) const {
  const auto found = tensors.find(tensor);
  return found == tensors.end() ? nullptr : &found->second;
}

Status FinishCase(Case* problem) {
  Contract& contract = problem->contract;
  if (contract.outputs.empty()) {
    contract.outputs = {"out"};
    if (problem->Find("grad_out") != nullptr) {
      contract.outputs.insert(contract.outputs.end(), {"grad_q", "grad_k", "grad_v"});
    }
  }
  const Tensor* w_q = problem->Find("w_q");
  const Index additive_width = w_q != nullptr && w_q->rank() == 2 ? w_q->shape()[0] : 0;
  const std::vector<TensorRule> rules = RulesFor(contract, additive_width);
  for (const char* name : {"q", "k", "v"}) {
    if (problem->Find(name) == nullptr) {
      return InvalidArgument(fmt::format("tensor '{}': missing", name));
    }
  }
  for (const auto& [name, tensor] : problem->tensors) {
    const TensorRule* rule = nullptr;
    for (const TensorRule& candidate : rules) {
      if (name == candidate.name) rule = &candidate;
    }
    if (rule == nullptr) {
      return InvalidArgument(fmt::format("tensor '{}': the contract knows no such tensor", name));
    }
    if (Status s = CheckTensor(name, tensor, *rule, contract); !s.ok()) return s;
  }
  if (Status s = CheckLengths(*problem, "kv_lengths", contract.shape.kv_len); !s.ok()) return s;
  if (Status s = CheckLengths(*problem, "q_lengths", contract.shape.q_len); !s.ok()) return s;
  return CheckCombinations(*problem);
}

std::vector<std::string> AllowedOutputs(const Case& problem) {
  std::vector<std::string> names;
  for (const std::string_view name : OutputNames()) {
    if (CheckOutput(problem, std::string(name)).ok()) names.emplace_back(name);
  }
  return names;
}

Status SelectOutputs(const std::vector<std::string>& names, Case* problem) {
  if (names.empty()) return InvalidArgument("no output is named");
  const std::vector<std::string_view>& known = OutputNames();
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(known.begin(), known.end(), *name) == known.end()) {
      return InvalidArgument(
          fmt::format("unknown output '{}' (known: {})", *name, fmt::join(known, ", ")));
    }
    if (std::find(names.begin(), name, *name) != name) {
      return InvalidArgument(fmt::format("'{}' appears twice", *name));
    }
    if (Status s = CheckOutput(*problem, *name); !s.ok()) return s;
  }
  problem->contract.outputs = names;
  return Status();
}

Shape OutputShape(const Case& problem, const std::string& name) {
  const Dimensions& s = problem.contract.shape;
  if (name == "out") return {s.batch, s.q_heads, s.q_len, s.v_dim};
  if (name == "lse") return {s.batch, s.q_heads, s.q_len};
  if (name == "weights") return {s.batch, s.q_heads, s.q_len, s.kv_len};
  const Tensor* of = GradientOf(problem, name);
  return of == nullptr ? Shape{0} : of->shape();
}

DType OutputDType(const Case& problem, const std::string& name) {
  if (name == "out" || name == "weights") return problem.contract.out_dtype;
  if (name == "lse") return problem.contract.wide_dtype();
  const Tensor* of = GradientOf(problem, name);
  return of == nullptr ? problem.contract.dtype : of->dtype();
}

StatusOr<Case> ReadCase(const std::filesystem::path& file,
                        const std::optional<std::filesystem::path>& contract_file) {
  Case problem;
  problem.name = file.stem().string();
  std::optional<std::string> contract_text;
  if (file.extension() == ".npy") {
    return InvalidArgument(
        fmt::format("{}: one tensor is no case; put q, k and v into an .npz or a .safetensors file",
                    file.string()));
  }
  if (file.extension() == ".npz") {
    StatusOr<TensorMap> tensors = ReadNpz(file);
    if (!tensors.ok()) return tensors.status();
    problem.tensors = *std::move(tensors);
  } else {
    StatusOr<TensorFile> content = ReadSafetensors(file);
    if (!content.ok()) return content.status();
    problem.tensors = std::move(content->tensors);
    const auto found = content->metadata.find(kContractKey);
    if (found != content->metadata.end()) contract_text = found->second;
  }
  std::filesystem::path contract_source = file;
  if (contract_file) {
    if (contract_text) {
      return InvalidArgument(fmt::format("{}: has its own contract, but --contract {} was given",
                                         file.string(), contract_file->string()));
    }
    StatusOr<std::string> text = ReadWholeFile(*contract_file, kContractSizeLimit);
    if (!text.ok()) return text.status();
    contract_text = *std::move(text);
    contract_source = *contract_file;
  }
  if (!contract_text) {
    return InvalidArgument(
        fmt::format("{}: no contract (metadata key '{}'); give one with --contract", file.string(),
                    kContractKey));
  }
  StatusOr<Contract> contract = ParseContract(*contract_text);
  if (!contract.ok()) return InFile(contract_source, contract.status());
  problem.contract = *std::move(contract);
  if (Status s = FinishCase(&problem); !s.ok()) return InFile(file, s);
  return problem;
}

Status WriteCase(const std::filesystem::path& file, const Case& problem, Durability durability) {
  return WriteSafetensors(
      file, {problem.tensors, {{kContractKey, ContractToJson(problem.contract)}}}, durability);
}

StatusOr<TensorMap> ReadResult(const std::filesystem::path& file, const Case& problem) {
  TensorMap found;
  if (file.extension() == ".npz") {
    StatusOr<TensorMap> tensors = ReadNpz(file);
    if (!tensors.ok()) return tensors.status();
    found = *std::move(tensors);
  } else if (file.extension() == ".npy") {
    StatusOr<Tensor> out = ReadNpy(file);
    if (!out.ok()) return out.status();
    found.emplace("out", *std::move(out));
  } else {
    StatusOr<TensorFile> content = ReadSafetensors(file);
    if (!content.ok()) return content.status();
    found = std::move(content->tensors);
  }
  TensorMap outputs;
  for (const std::string& name : problem.contract.outputs) {
    const auto tensor = found.find(name);
    if (tensor == found.end()) continue;
    const Shape shape = OutputShape(problem, name);
    const DType dtype = OutputDType(problem, name);
    if (tensor->second.dtype() != dtype || tensor->second.shape() != shape) {
      return InvalidArgument(fmt::format(
          "{}: tensor '{}': expected {} {}, found {} {}", file.string(), name, NameOf(dtype),
          ToString(shape), NameOf(tensor->second.dtype()), ToString(tensor->second.shape())));
    }
    outputs.emplace(name, std::move(tensor->second));
  }
  return outputs;
}

}  // namespace attest
