// SPDX-License-Identifier: Apache-2.0
// The catalogue of seeded faults, each reported in public in a real implementation, as subjects.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/subject.h"
#include "core/status.h"
#include "properties/faults/plain_attention.h"

namespace attest {

struct FaultInfo {
  std::string name;
  std::string fault_class;
  std::string behaviour;
  std::string reference;  // where the same fault was reported in public
  Fault fault = Fault::kNone;
};
const std::vector<FaultInfo>& Faults();

// The plain implementation without a fault (name "none") or with the named one, as a subject that
// declares f32, determinism and batch invariance. NotFound for an unknown name.
StatusOr<std::unique_ptr<Subject>> MakePlainSubject(const std::string& fault_name);

}  // namespace attest
