// SPDX-License-Identifier: Apache-2.0
#include "audit/subject.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <utility>

#include "audit/capabilities.h"
#include "core/file_io.h"

namespace attest {
namespace {

constexpr std::uint64_t kInfoSizeLimit = std::uint64_t{1} << 20;

// What whoever computed the results declares, in the info.json beside them.
Status ReadInfo(const std::filesystem::path& file, SubjectInfo* info) {
  const StatusOr<std::string> text = ReadWholeFile(file, kInfoSizeLimit);
  if (!text.ok()) return text.status();
  StatusOr<Capabilities> declared = ParseCapabilities(*text);
  if (!declared.ok()) {
    return InvalidArgument(file.string() + ": " + declared.status().message());
  }
  Declare(*declared, info);
  return Status();
}

class RecordedSubject : public Subject {
 public:
  RecordedSubject(std::filesystem::path directory, SubjectInfo info)
      : directory_(std::move(directory)), info_(std::move(info)) {}

  const SubjectInfo& info() const override { return info_; }

  Outcome Run(const Case& problem, const CallOptions&) const override {
    std::filesystem::path file;
    for (const char* extension : {".safetensors", ".npz", ".npy"}) {
      const std::filesystem::path candidate = directory_ / (problem.name + extension);
      if (file.empty() && std::filesystem::exists(candidate)) file = candidate;
    }
    if (file.empty()) {
      return Outcome::Unsupported("no result for the case in " + directory_.string());
    }
    StatusOr<TensorMap> outputs = ReadResult(file, problem);
    if (!outputs.ok()) {
      return {.kind = Outcome::Kind::kUnreadable, .message = outputs.status().message()};
    }
    return Outcome::Ok(*std::move(outputs));
  }

 private:
  std::filesystem::path directory_;
  SubjectInfo info_;
};

}  // namespace

Outcome InProcessSubject::Run(const Case& problem, const CallOptions& options) const {
  const Layout layout = info().strided ? options.layout : Layout::kDense;
  Buffers inputs;
  bool valid = true;
  const auto add = [&](Buffers& buffers, const std::string& name, GuardedTensor tensor) {
    valid = valid && tensor.valid();
    buffers.emplace(name, std::move(tensor));
  };
  for (const auto& [name, tensor] : problem.tensors) {
    add(inputs, name, GuardedTensor(tensor, options.junk, layout));
  }
  Buffers outputs;
  const auto add_output = [&](const std::string& name) {
    add(outputs, name,
        GuardedTensor(OutputDType(problem, name), OutputShape(problem, name), options.junk,
                      layout));
  };
  for (const std::string& name : problem.contract.outputs) add_output(name);
  // There is always a place for `out`, so that no subject needs one of its own.
  if (!outputs.contains("out")) add_output("out");
  if (!valid) {
    return Outcome::Unsupported(
        fmt::format("layout {}: no address space for it here", NameOf(layout)));
  }
  const Status status = Call(problem.contract, inputs, outputs, options.threads);
  Outcome outcome = OutcomeOf(status, problem, inputs, outputs);
  outcome.complaints = TakeComplaints();
  return outcome;
}

Outcome InProcessSubject::OutcomeOf(const Status& status, const Case& problem,
                                    const Buffers& inputs, const Buffers& outputs) {
  if (status.code() == StatusCode::kUnsupported) {
    return Outcome::Unsupported(status.message());
  }
  if (!status.ok()) return Outcome::Failed("error", status.message());

  Outcome outcome;
  for (const auto& [name, buffer] : inputs) {
    if (!buffer.GuardsIntact() || !buffer.Holds(problem.tensors.at(name))) {
      return Outcome::Failed("trespass", "wrote to or around the input '" + name + "'");
    }
  }
  for (const auto& [name, buffer] : outputs) {
    if (!buffer.GuardsIntact()) {
      return Outcome::Failed("trespass", "wrote outside the output '" + name + "'");
    }
    if (problem.contract.Wants(name)) outcome.outputs.emplace(name, buffer.Copy());
  }
  return outcome;
}

StatusOr<std::unique_ptr<Subject>> MakeRecordedSubject(const std::string& directory,
                                                       const std::string& name) {
  if (!std::filesystem::is_directory(directory)) {
    return NotFound(directory + ": no such directory of results");
  }
  SubjectInfo info;
  info.name = name;
  info.description = "recorded results in " + directory;
  info.recorded = true;
  const std::filesystem::path declared = std::filesystem::path(directory) / "info.json";
  if (std::filesystem::exists(declared)) {
    if (Status s = ReadInfo(declared, &info); !s.ok()) return s;
  }
  return std::unique_ptr<Subject>(std::make_unique<RecordedSubject>(directory, info));
}

}  // namespace attest
