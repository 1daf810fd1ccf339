// SPDX-License-Identifier: Apache-2.0
// Runs one case on every kernel and SIMD target, and judges what comes back.
#pragma once

#include <functional>
#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "audit/judge.h"
#include "audit/subject.h"
#include "optimized/kernels.h"
#include "properties/kernel_validation/kernel_tally.h"

namespace attest {

// Changes what a kernel gave before it is judged: how a test shows that a fault is seen.
using Tamper = std::function<void(const KernelAndTarget& kernel, const Case& problem,
                                  const Expectation& expected, TensorMap* outputs)>;

class KernelRunner {
 public:
  // Every kernel named, on every SIMD target of this machine. NotFound for an unknown name.
  static StatusOr<std::unique_ptr<KernelRunner>> Make(const std::vector<std::string>& kernels,
                                                      Tamper tamper = nullptr);

  // Expect(problem), while no kernel runs: the reference has SIMD kernels of its own, and a forced
  // target must not change while any kernel is chosen.
  StatusOr<Expectation> Certify(const Case& problem);

  // The tally of one case. `turn` decides the junk in the buffers, and the target that three
  // threads are tried on. Callable from several threads: the kernels themselves run one at a time,
  // because a forced SIMD target is that of the process.
  ValidationTally Run(const Case& problem, const Expectation& expected, Index turn);

 private:
  // One kernel on all targets, in the order of targets_.
  struct KernelOnTargets {
    KernelInfo kernel;
    std::vector<std::unique_ptr<Subject>> subjects;
    std::vector<std::unique_ptr<Subject>> on_three_threads;
  };
  struct Results {
    std::vector<Outcome> outcomes;  // by target
    Outcome on_three_threads;       // on the target of the case's turn
  };

  Results RunKernel(const KernelOnTargets& kernel, const Case& problem, Index turn);

  std::shared_mutex target_;  // held alone by whoever forces a target
  std::vector<std::string> targets_;
  std::vector<KernelOnTargets> kernels_;
  Tamper tamper_;
};

}  // namespace attest
