// SPDX-License-Identifier: Apache-2.0
// The catalogue of seeded faults, and of right variants that must pass, as subjects.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/status.h"
#include "properties/faults/fault.h"

namespace attest {

struct FaultInfo {
  std::string name;
  std::string fault_class;
  std::string behaviour;  // one line
  std::string reference;  // where the same fault was reported in public; "elementary" if nowhere
  Fault fault = Fault::kNone;
};
const std::vector<FaultInfo>& Faults();

// Variants that look like faults, and most of which were reported as such, but are right.
struct ControlInfo {
  std::string name;
  std::string reason;     // why it is right, one line
  std::string reference;  // where it was taken for a fault
  Control control = Control::kNone;
};
const std::vector<ControlInfo>& Controls();

// The plain implementation as it is (name "none"), with the named fault, or as the named control:
// a subject that takes every layout and number of threads. It declares determinism and batch
// invariance, which a fault may break; a control declares what makes it right, and answers
// "unsupported" to cases that its convention excludes. NotFound for an unknown name.
StatusOr<std::unique_ptr<Subject>> MakePlainSubject(const std::string& name);

}  // namespace attest
