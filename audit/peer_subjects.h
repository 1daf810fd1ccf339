// SPDX-License-Identifier: Apache-2.0
// Peers: attention of other libraries, each optional, as subjects of audits (docs/peers.md).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "audit/process_subject.h"
#include "audit/subject.h"
#include "core/status.h"

namespace attest {

struct PeerEntry {
  std::string name;         // "onnxruntime", of `attest audit --kernel peer:onnxruntime`
  std::string description;  // library and entry point
  std::string licence;      // of the library
  std::string missing;      // why it cannot be audited here; empty where it can
};

// Every peer, whether it is installed or not. Looks for files alone: no library is loaded.
std::vector<PeerEntry> Peers();

// In a process of its own. NotFound names what is missing, or the peers that there are.
StatusOr<std::unique_ptr<Subject>> MakePeerSubject(const std::string& name,
                                                   const ProcessLimits& limits);

}  // namespace attest
