// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/fault_catalogue.h"

#include <fmt/format.h>

#include <mutex>
#include <utility>

#include "properties/faults/controls.h"
#include "properties/faults/fault_tables.h"
#include "properties/faults/plain_attention.h"

namespace attest {
namespace {

class PlainSubject : public InProcessSubject {
 public:
  PlainSubject(Fault fault, Control control, SubjectInfo info)
      : fault_(fault), control_(control), info_(std::move(info)) {}

  const SubjectInfo& info() const override { return info_; }

 protected:
  Status Call(const Contract& contract, Buffers& inputs, Buffers& outputs,
              int threads) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    PlainCall call;
    call.contract = &contract;
    call.threads = threads;
    call.fault = fault_;
    call.control = control_;
    call.state = &state_;
    for (auto& [name, buffer] : inputs) {
      PlainTensor* const tensor = call.in.Find(name);
      if (tensor == nullptr) return Unsupported("tensor '" + name + "': not supported");
      *tensor = PlainTensor(buffer);
    }
    for (auto& [name, buffer] : outputs) {
      PlainTensor* const tensor = call.out.Find(name);
      if (tensor == nullptr) return Unsupported("output '" + name + "': not supported");
      *tensor = PlainTensor(buffer);
    }
    if (Status accepts = Accepts(call); !accepts.ok()) return accepts;
    MistakeAddresses(&call);
    ++state_.calls;
    state_.refused = false;
    PlainAttention(call);
    return state_.refused ? Unsupported("scores beyond those for which the control is right")
                          : Status();
  }

 private:
  static void MistakeAddresses(PlainCall* call) {
    PlainInputs& in = call->in;
    for (PlainTensor* tensor : {&in.q, &in.k, &in.v}) {
      if (call->Has(Fault::kStridesIgnored)) tensor->ForgetStrides();
    }
    for (PlainTensor* tensor : {&in.k, &in.v}) {
      if (call->Has(Fault::kInt32RowOffset)) tensor->NarrowOffsets(2);
      if (!call->Has(Fault::kInt32BatchOffset)) continue;
      tensor->NarrowOffsets(0);
      tensor->NarrowOffsets(1);
    }
    if (call->Has(Fault::kInt32MaskOffset)) in.mask.NarrowOffsets(2);
  }

  const Fault fault_;
  const Control control_;
  const SubjectInfo info_;
  mutable std::mutex mutex_;  // of the state, of which only a fault makes use
  mutable PlainState state_;
};

}  // namespace

const std::vector<FaultInfo>& Faults() {
  static const std::vector<FaultInfo> faults = [] {
    std::vector<FaultInfo> all;
    for (const auto& part : {MaskFaults(), ScoreFaults(), SoftmaxFaults(), MemoryFaults(),
                             BackwardFaults(), ElementaryFaults()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return faults;
}

StatusOr<std::unique_ptr<Subject>> MakePlainSubject(const std::string& name) {
  SubjectInfo info;
  info.name = "fault:" + name;
  info.deterministic = info.batch_invariant = info.strided = info.threaded = true;
  const auto make = [&info](Fault fault, Control control, const std::string& description) {
    info.description = description;
    Declare(control, &info);
    return std::unique_ptr<Subject>(std::make_unique<PlainSubject>(fault, control, info));
  };
  if (name == "none") {
    return make(Fault::kNone, Control::kNone,
                "the plain implementation that the seeded faults change, without a fault");
  }
  std::vector<std::string> names{"none"};
  for (const FaultInfo& fault : Faults()) {
    if (fault.name == name) {
      return make(fault.fault, Control::kNone, "seeded fault: " + fault.behaviour);
    }
    names.push_back(fault.name);
  }
  for (const ControlInfo& control : Controls()) {
    if (control.name == name) {
      return make(Fault::kNone, control.control, "control: " + control.reason);
    }
    names.push_back(control.name);
  }
  return NotFound(fmt::format("no fault '{}' (known: {})", name, fmt::join(names, ", ")));
}

}  // namespace attest
