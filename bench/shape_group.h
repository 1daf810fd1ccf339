// SPDX-License-Identifier: Apache-2.0
// Everything that is timed on one shape: our kernels on each SIMD target, and the peers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/attention_problem.h"
#include "bench/attention_rows.h"
#include "bench/own_kernels.h"
#include "bench/peers/peer.h"
#include "bench/rounds.h"

namespace attest {

class ShapeGroup {
 public:
  // Targets: the first is the best one, with which peers are compared.
  ShapeGroup(const AttentionShape& shape, std::uint64_t seed, std::vector<std::string> targets);

  const AttentionProblem& problem() const { return *problem_; }

  // A kernel of ours, on every target or on the best alone. One that does not exist is left out.
  Status AddKernel(const KernelChoice& choice, bool every_target);

  // Every way of every library that takes this problem. Each runs once, before the rounds; one
  // whose run takes longer than `patience` seconds is left out of them, and one of which `expected`
  // says so (by the peer's name, 0 for unknown) is not run at all. Our fast kernel comes first.
  Status AddPeers(const std::vector<PeerLibrary>& libraries, double patience,
                  const std::function<double(const std::string& name)>& expected);

  // The least time of each peer in the rounds.
  std::map<std::string, double> PeerSeconds() const;

  Status Measure(const RoundLimits& limits, const std::function<Status()>& between);

  // The rows, once the floors are known. What the problem and the calls held can go before.
  void Release();
  std::vector<nlohmann::ordered_json> Rows(const FloorMeter& floors) const;

 private:
  struct Kernel {
    Work work;
    KernelChoice choice;
    std::string target;
    std::size_t contender;
  };
  struct Rival {
    std::string name;
    std::size_t contender;
    double difference;  // largest, from the output of our fast kernel
  };

  // Adds the contender that runs `call`; returns its place.
  std::size_t Add(std::string name, std::string target, std::unique_ptr<AttentionCall> call);
  Status AddPeer(const Peer& peer, double patience, double expected);
  const Kernel* Fast(const std::string& target, bool backward) const;

  std::unique_ptr<AttentionProblem> problem_;  // calls refer to it
  std::vector<std::string> targets_;
  std::vector<std::unique_ptr<AttentionCall>> calls_;
  std::vector<Contender> contenders_;
  std::vector<Kernel> kernels_;
  std::vector<Rival> rivals_;
  std::vector<std::pair<std::string, std::string>> left_out_;  // peers, and why
};

}  // namespace attest
