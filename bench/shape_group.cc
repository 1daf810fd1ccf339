// SPDX-License-Identifier: Apache-2.0
#include "bench/shape_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfenv>
#include <cmath>

#include "bench/cpu_clock.h"
#include "bench/floors.h"
#include "core/run_record.h"

namespace attest {
namespace {

constexpr double kRateSeconds = 0.0005;  // of multiply-adds, before and after each run of a kernel

using nlohmann::ordered_json;

// The largest |a - b|; NaN where one is NaN and for different sizes.
double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::nan("");
  double largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

// Whether a run kept other threads busy as well.
bool UsedOtherThreads(const Sample& sample) { return sample.process > 1.1 * sample.thread + 0.002; }

}  // namespace

ShapeGroup::ShapeGroup(const AttentionShape& shape, std::uint64_t seed,
                       std::vector<std::string> targets)
    : problem_(std::make_unique<AttentionProblem>(DrawProblem(shape, seed))),
      targets_(std::move(targets)) {}

std::size_t ShapeGroup::Add(std::string name, std::string target,
                            std::unique_ptr<AttentionCall> call) {
  contenders_.push_back(
      {std::move(name), std::move(target), [c = call.get()] { return c->Run(); }, {}, {}});
  calls_.push_back(std::move(call));
  return contenders_.size() - 1;
}

Status ShapeGroup::AddKernel(const KernelChoice& choice, bool every_target) {
  for (const std::string& target : targets_) {
    StatusOr<std::unique_ptr<AttentionCall>> call = PrepareOwnKernel(*problem_, choice);
    if (call.status().code() == StatusCode::kUnsupported) return Status();
    if (!call.ok()) return call.status();
    const Work work = AttentionWork(problem_->shape, choice);
    const std::size_t contender = Add(work.kernel, target, *std::move(call));
    contenders_[contender].rate = [] { return FloatFmaPeak(kRateSeconds); };
    if (const auto once = RunOnce(contenders_[contender]); !once.ok()) return once.status();
    kernels_.push_back({work, choice, target, contender});
    if (!every_target) break;
  }
  return Status();
}

Status ShapeGroup::AddPeers(const std::vector<PeerLibrary>& libraries, double patience,
                            const std::function<double(const std::string& name)>& expected) {
  for (const PeerLibrary& library : libraries) {
    for (const Peer& peer : library.peers) {
      if (Status s = AddPeer(peer, patience, expected(peer.name)); !s.ok()) return s;
    }
  }
  return Status();
}

std::map<std::string, double> ShapeGroup::PeerSeconds() const {
  std::map<std::string, double> seconds;
  for (const Rival& rival : rivals_) {
    seconds[rival.name] = Minimum(contenders_[rival.contender].Seconds());
  }
  return seconds;
}

Status ShapeGroup::AddPeer(const Peer& peer, double patience, double expected) {
  if (expected > patience) {
    left_out_.emplace_back(peer.name, fmt::format("about {:.2g} s for one run", expected));
    return Status();
  }
  const Kernel* fast = Fast(targets_.front(), false);
  if (fast == nullptr) return Internal("no kernel of ours to compare peers with");
  std::fenv_t state;
  std::fegetenv(&state);
  StatusOr<std::unique_ptr<AttentionCall>> call = peer.prepare(*problem_);
  if (call.status().code() == StatusCode::kUnsupported) {
    std::fesetenv(&state);
    return Status();
  }
  if (!call.ok()) return call.status();
  const AttentionCall& prepared = **call;
  const std::size_t contender = Add(peer.name, "", *std::move(call));
  const StatusOr<Sample> once = RunOnce(contenders_[contender]);
  std::fesetenv(&state);
  if (!once.ok()) return once.status();
  const double difference = LargestDifference(prepared.Output(), calls_[fast->contender]->Output());
  const auto leave_out = [&](std::string why) {
    contenders_.pop_back();
    calls_.pop_back();
    left_out_.emplace_back(peer.name, std::move(why));
    return Status();
  };
  if (UsedOtherThreads(*once)) return leave_out("it used more than one thread");
  if (once->thread > patience) return leave_out(fmt::format("{:.2g} s for one run", once->thread));
  rivals_.push_back({peer.name, contender, difference});
  return Status();
}

Status ShapeGroup::Measure(const RoundLimits& limits, const std::function<Status()>& between) {
  return RunRounds(limits, between, &contenders_);
}

void ShapeGroup::Release() {
  for (Contender& contender : contenders_) contender.run = nullptr;
  calls_.clear();
  problem_.reset();
}

const ShapeGroup::Kernel* ShapeGroup::Fast(const std::string& target, bool backward) const {
  for (const Kernel& kernel : kernels_) {
    const KernelChoice& choice = kernel.choice;
    if (kernel.target == target && choice.mode == Mode::kFast && choice.storage == DType::kF32 &&
        choice.backward == backward) {
      return &kernel;
    }
  }
  return nullptr;
}

std::vector<ordered_json> ShapeGroup::Rows(const FloorMeter& floors) const {
  std::vector<ordered_json> rows;
  for (const Kernel& kernel : kernels_) {
    const std::vector<double> seconds = contenders_[kernel.contender].Seconds();
    ordered_json row = RowToJson(kernel.work, kernel.target, seconds, floors);
    AddSharesByRun(kernel.work, kernel.target, contenders_[kernel.contender].samples, floors, &row);
    const Kernel* fast = Fast(kernel.target, kernel.choice.backward);
    if (fast != nullptr && fast != &kernel) {
      row["speed_over_fast_f32"] =
          Minimum(contenders_[fast->contender].Seconds()) / Minimum(seconds);
    }
    row["vs"] = ordered_json::object();
    if (fast == &kernel && !kernel.choice.backward && kernel.target == targets_.front()) {
      row["peer_differences"] = ordered_json::object();
      for (const Rival& rival : rivals_) {
        const std::vector<double> theirs = contenders_[rival.contender].Seconds();
        row["vs"][rival.name] = Minimum(theirs) / Minimum(seconds);
        row["vs_medians"][rival.name] = Median(theirs) / Median(seconds);
        row["peer_differences"][rival.name] = NumberToJson(rival.difference);
      }
      for (const auto& [name, why] : left_out_) row["peers_left_out"][name] = why;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace attest
