// SPDX-License-Identifier: Apache-2.0
// The parts of the catalogue, in its order.
#pragma once

#include <vector>

#include "properties/faults/fault_catalogue.h"

namespace attest {

std::vector<FaultInfo> MaskFaults();        // allowed sets, from empty rows to partial tiles
std::vector<FaultInfo> ScoreFaults();       // scale, soft cap, ALiBi, grouped heads
std::vector<FaultInfo> SoftmaxFaults();     // range, recurrence, merging, sinks, rounding
std::vector<FaultInfo> MemoryFaults();      // masked memory, layouts, addresses, short sequences
std::vector<FaultInfo> BackwardFaults();    // dropout, gradients, repeatability, returned weights
std::vector<FaultInfo> ElementaryFaults();  // what everybody knows and nobody reports

}  // namespace attest
