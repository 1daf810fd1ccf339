// SPDX-License-Identifier: Apache-2.0
// Rows of the benchmark `attention`: what a kernel does, and how near its time is to the floor.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/attention_problem.h"
#include "bench/floor_meter.h"
#include "bench/own_kernels.h"
#include "bench/rounds.h"

namespace attest {

// What bounds a kernel's time from below. F and X: multiply-add operations and exponentials per
// second, D: the head size.
enum class FloorKind {
  kForward,   // for each score 4 D / F + 1 / X
  kBackward,  // for each score 10 D / F + 1 / X: five products instead of two
  kRead,      // the bytes of k and v over the rate of reading 64 MB
  kCopy,      // the bytes of x and y over the rate of copying a matrix of 4096 x 4096 floats
};

// The formula as text, for records.
std::string FormulaOf(FloorKind kind);

struct Work {
  std::string kernel;  // "attention_forward_f32"
  std::string shape;   // NameOf its AttentionShape, or "4096x4096"
  FloorKind floor = FloorKind::kForward;
  double scores = 0.0;  // elements of the score matrices that are needed
  double dim = 0.0;     // head size
  double flops = 0.0;
  double bytes = 0.0;  // of the tensors, each counted once
};

// A decode step is a forward pass of one query.
Work AttentionWork(const AttentionShape& shape, const KernelChoice& choice);
Work SoftmaxWork(Index rows, Index columns);

// Seconds, from the best rates of the target that were seen in this run.
double FloorSeconds(const Work& work, const std::string& target, const FloorMeter& floors);

// One line of the table. `seconds`: at least one sample.
nlohmann::ordered_json RowToJson(const Work& work, const std::string& target,
                                 const std::vector<double>& seconds, const FloorMeter& floors);

// Forward and backward passes: "share_by_run", the median over the runs of the floor's time at the
// rate of multiply-adds just before and after the run, over the run's own time. Machines change
// their clock and share it with others; both sides of this ratio see the same.
void AddSharesByRun(const Work& work, const std::string& target, const std::vector<Sample>& samples,
                    const FloorMeter& floors, nlohmann::ordered_json* row);

}  // namespace attest
