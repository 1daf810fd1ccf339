// SPDX-License-Identifier: Apache-2.0
// What a stability report consists of: experiments, another engine's recorded outputs, built-in
// kernels, installed peers.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/status.h"

namespace attest {

enum class PartKind { kExperiment, kAudit, kPeer };

// One record of a report, and how to make it.
struct ReportPart {
  PartKind kind = PartKind::kExperiment;
  std::string name;  // unique in the report
  // Neighbours of one group may be made at the same time, on one thread each; empty: alone, on all
  // threads. Kernels are grouped by the SIMD target that they force, `target`; empty: none.
  std::string group;
  std::string target;
  // `label` names the part in progress lines; `records` are those of the parts before.
  std::function<StatusOr<nlohmann::ordered_json>(const std::string& label,
                                                 const nlohmann::ordered_json& records)>
      make;
};

// All parts in the order of the report; `common` must outlive them. Quick: every kernel on the best
// SIMD target, `tiled` on the others, suites quick and real; peers by real
// activations alone. Full: every kernel on every target, suites standard and real; peers by quick
// and real.
std::vector<ReportPart> ReportParts(const CommonOptions& common, bool full);

}  // namespace attest
