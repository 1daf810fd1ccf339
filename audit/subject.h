// SPDX-License-Identifier: Apache-2.0
// Subjects: the implementations that an audit judges.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "audit/guarded_tensor.h"
#include "core/case.h"
#include "core/status.h"

namespace attest {

struct SubjectInfo {
  std::string name;
  std::string version;
  std::string description;
  std::string target;            // SIMD target, where the subject runs on a chosen one
  bool deterministic = false;    // declared: the same call gives the same bits
  bool batch_invariant = false;  // declared: a row's bits depend on its own inputs only
  bool strided = false;          // takes tensors of any layout
  bool threaded = false;         // takes a number of threads
  bool recorded = false;         // results were computed elsewhere: only the cases as they are

  // The outputs that the subject gives; empty: all of them. An audit asks it for nothing else.
  std::set<std::string> outputs;
  // Its own convention for rows without an allowed key, by which it is judged.
  std::optional<EmptyRow> empty_row;
  // Declared; a case is judged by the first whose profile is defined for its element type.
  std::vector<Arithmetic> arithmetic;
  nlohmann::ordered_json declared;  // its info as it gave it, for records
  // What the audit found out by probing and takes for granted, one sentence each.
  std::vector<std::string> assumptions;
};

// How a subject is called. What it does not take is ignored by it (see SubjectInfo).
struct CallOptions {
  Junk junk = Junk::kNaN;  // in output buffers and around every tensor
  Layout layout = Layout::kDense;
  int threads = 1;
};

// What a subject did beside computing, as a finding's code and one line ("printed", "fp-state").
struct Complaint {
  std::string code;
  std::string message;
};

// What became of one call.
struct Outcome {
  // kUnreadable: a recorded result cannot be read; the audit ends.
  enum class Kind { kOk, kUnsupported, kFailed, kUnreadable };
  Kind kind = Kind::kOk;
  std::string message{};       // one line; empty for kOk
  TensorMap outputs{};         // those of the contract's outputs that the subject gave
  std::string code = "error";  // of kFailed: the finding's code (FindingKinds)
  std::vector<Complaint> complaints{};
  bool at_start = false;  // of kFailed: the implementation did not come to the call

  static Outcome Ok(TensorMap outputs) { return {.outputs = std::move(outputs)}; }
  static Outcome Unsupported(std::string message) {
    return {.kind = Kind::kUnsupported, .message = std::move(message)};
  }
  static Outcome Failed(std::string code, std::string message) {
    return {.kind = Kind::kFailed, .message = std::move(message), .code = std::move(code)};
  }
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual const SubjectInfo& info() const = 0;

  // Runs one case. Fails with code "trespass" when the subject wrote its inputs or outside its
  // outputs; kUnsupported also where this machine has no room for the layout.
  virtual Outcome Run(const Case& problem, const CallOptions& options) const = 0;
};

// A subject that is a function of raw pointers inside this process.
class InProcessSubject : public Subject {
 public:
  Outcome Run(const Case& problem, const CallOptions& options) const final;

 protected:
  // The inputs and outputs of one call, by tensor name.
  using Buffers = std::map<std::string, GuardedTensor>;

  // Ok, kUnsupported or an error; writes the outputs that the contract asks for. `outputs` has a
  // buffer for each of them, and one for `out` in any case.
  virtual Status Call(const Contract& contract, Buffers& inputs, Buffers& outputs,
                      int threads) const = 0;

  // What the last call did beside computing; asked once after every call.
  virtual std::vector<Complaint> TakeComplaints() const { return {}; }

 private:
  // What became of a call that gave `status`.
  static Outcome OutcomeOf(const Status& status, const Case& problem, const Buffers& inputs,
                           const Buffers& outputs);
};

// A directory of result files, one a case, computed elsewhere: CASE_NAME.safetensors, .npz or .npy,
// and what is declared of them in info.json, where there is one (docs/plugins.md). Without a result
// a case is kUnsupported. Error when the directory does not exist or the info is malformed.
StatusOr<std::unique_ptr<Subject>> MakeRecordedSubject(const std::string& directory,
                                                       const std::string& name);

}  // namespace attest
