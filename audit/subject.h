// SPDX-License-Identifier: Apache-2.0
// Subjects: the implementations that an audit judges.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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

  // What the subject gives of the forward outputs out, lse and weights; empty: all of them. An
  // audit asks it for nothing else.
  std::set<std::string> outputs;
  // Its own convention for rows without an allowed key, by which it is judged.
  std::optional<EmptyRow> empty_row;
};

// How a subject is called. What it does not take is ignored by it (see SubjectInfo).
struct CallOptions {
  Junk junk = Junk::kNaN;  // in output buffers and around every tensor
  Layout layout = Layout::kDense;
  int threads = 1;
};

// What became of one call.
struct Outcome {
  // kUnreadable: a recorded result cannot be read; the audit ends.
  enum class Kind { kOk, kUnsupported, kError, kTrespassed, kUnreadable };
  Kind kind = Kind::kOk;
  std::string message;  // one line; empty for kOk
  TensorMap outputs;    // those of the contract's outputs that the subject gave
};

class Subject {
 public:
  virtual ~Subject() = default;
  virtual const SubjectInfo& info() const = 0;

  // Runs one case. kTrespassed when the subject wrote its inputs or outside its outputs;
  // kUnsupported also where this machine has no room for the layout.
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
};

// A directory of result files, one a case, computed elsewhere: CASE_NAME.safetensors, .npz or .npy.
// Error when the directory does not exist.
StatusOr<std::unique_ptr<Subject>> MakeRecordedSubject(const std::string& directory,
                                                       const std::string& name);

}  // namespace attest
