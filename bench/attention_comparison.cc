// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "bench/cpu_clock.h"
#include "bench/floor_meter.h"
#include "bench/peers/peer.h"
#include "bench/shape_group.h"
#include "core/digest.h"
#include "core/run_record.h"
#include "optimized/targets.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

constexpr std::array<AttentionShape, 7> kShapes{{
    {8, 1024, 1024, 64, false},
    {8, 1024, 1024, 64, true},
    {8, 4096, 4096, 64, false},
    {8, 4096, 4096, 64, true},
    {4, 2048, 2048, 128, false},
    {4, 2048, 2048, 128, true},
    {8, 1, 8192, 128, false},  // a decode step
}};
constexpr AttentionShape kThreadsShape{8, 1024, 1024, 64, false};
constexpr std::array<Index, 5> kScalingLengths{1024, 2048, 4096, 8192, 16384};
constexpr Index kSoftmaxLength = 4096;

// How much time a run may take.
struct Effort {
  RoundLimits limits;      // of each shape
  double deadline;         // wall seconds after which one round has to do
  double patience;         // seconds that a peer's run may take
  Index longest_variants;  // modes, storage types and gradients are measured up to this length
};

Effort EffortOf(const BenchmarkOptions& options) {
  if (options.quick) return {{12, 4.0}, 36.0, 0.5, 2048};
  const auto rounds = static_cast<std::size_t>(std::max(1, options.rounds));
  return {{rounds, 60.0}, 900.0, 30.0, 1 << 20};
}

// The best target; and AVX2, the most that many machines have, against floors of its own.
std::vector<std::string> TargetsOfInterest() {
  std::vector<std::string> targets;
  for (const std::string_view target : RunnableTargets()) {
    if (targets.empty() || target == "AVX2") targets.emplace_back(target);
  }
  return targets;
}

// The parts of one run, which share its floors, peers and limits.
class Comparison {
 public:
  // `shapes`: measured one by one; `whole`: and then what belongs to no shape.
  Comparison(const BenchmarkOptions& options, std::vector<AttentionShape> shapes, bool whole)
      : options_(options),
        shapes_(std::move(shapes)),
        whole_(whole),
        effort_(EffortOf(options)),
        targets_(TargetsOfInterest()),
        peers_(LoadPeers()),
        floors_(targets_) {}

  StatusOr<ordered_json> Run() {
    if (Status s = floors_.SampleMemory(); !s.ok()) return s;
    for (const AttentionShape& shape : shapes_) {
      if (Status s = Shapes(shape); !s.ok()) return s;
    }
    if (whole_) {
      if (Status s = Softmax(); !s.ok()) return s;
      if (Status s = Scaling(); !s.ok()) return s;
      if (Status s = Threads(); !s.ok()) return s;
    }
    if (Status s = floors_.SampleMemory(); !s.ok()) return s;
    return Record();
  }

 private:
  std::size_t Parts() const { return shapes_.size() + (whole_ ? 3 : 0); }

  void PartDone() {
    ++parts_done_;
    if (options_.progress) options_.progress(parts_done_, Parts());
  }

  // As many seconds as are left for each of the remaining parts.
  RoundLimits Limits() const {
    const double left = effort_.deadline - (WallSeconds() - begin_);
    const double parts = static_cast<double>(Parts() - parts_done_);
    return {effort_.limits.rounds, std::min(effort_.limits.seconds, left / parts)};
  }

  // The time of a peer's run, from its time on a shorter shape of the same kind; 0: unknown.
  double Expected(const std::string& peer, const AttentionShape& shape) const {
    const auto known = seconds_per_score_.find({peer, shape.dim, shape.causal});
    return known == seconds_per_score_.end() ? 0.0 : known->second * ScoreCount(shape);
  }

  // What happens before each round.
  std::function<Status()> Sampling() {
    return [this] { return floors_.SampleCompute(); };
  }

  // Forward passes, gradients and peers on one shape.
  Status Shapes(const AttentionShape& shape) {
    ShapeGroup group(shape, options_.seed, targets_);
    std::vector<std::pair<KernelChoice, bool>> choices{{{}, true}};  // and whether on every target
    if (shape.keys <= effort_.longest_variants) {
      choices.push_back({{.mode = Mode::kReproducible}, false});
      choices.push_back({{.mode = Mode::kAccurate}, false});
      choices.push_back({{.storage = DType::kBF16}, false});
      if (shape.queries > 1) choices.push_back({{.backward = true}, true});
    }
    for (const auto& [choice, every_target] : choices) {
      if (Status s = group.AddKernel(choice, every_target); !s.ok()) return s;
    }
    const auto expected = [&](const std::string& peer) { return Expected(peer, shape); };
    if (Status s = group.AddPeers(peers_, effort_.patience, expected); !s.ok()) return s;
    if (Status s = group.Measure(Limits(), Sampling()); !s.ok()) return s;
    for (const auto& [peer, seconds] : group.PeerSeconds()) {
      seconds_per_score_[{peer, shape.dim, shape.causal}] = seconds / ScoreCount(shape);
    }
    if (shape.queries == 1) {
      if (Status s = floors_.SampleMemory(); !s.ok()) return s;
    }
    digests_ += Digest(group.problem());
    group.Release();
    groups_.push_back(std::move(group));
    PartDone();
    return Status();
  }

  static std::string Digest(const AttentionProblem& problem) {
    return Sha256(TensorMap{{"q", problem.q}, {"k", problem.k}, {"v", problem.v}});
  }

  Status Softmax() {
    Tensor x(DType::kF32, {kSoftmaxLength, kSoftmaxLength});
    const Tensor drawn =
        DrawProblem({1, kSoftmaxLength, 1, 64, false}, options_.seed).q;  // repeated over the rows
    for (Index i = 0; i < x.size(); ++i) {
      x.data<float>()[i] = drawn.data<float>()[i % drawn.size()];
    }
    std::vector<Contender> contenders;
    for (const std::string& target : targets_) {
      StatusOr<std::function<Status()>> run = PrepareOwnSoftmax(x);
      if (!run.ok()) return run.status();
      contenders.push_back({"softmax", target, *std::move(run), {}, {}});
      if (const auto once = RunOnce(contenders.back()); !once.ok()) return once.status();
    }
    const auto sampling = [this] {
      if (Status s = floors_.SampleCompute(); !s.ok()) return s;
      return floors_.SampleMemory();
    };
    if (Status s = RunRounds(Limits(), sampling, &contenders); !s.ok()) return s;
    for (const Contender& contender : contenders) {
      softmax_.emplace_back(contender.target, contender.Seconds());
    }
    digests_ += Sha256(TensorMap{{"x", x}});
    PartDone();
    return Status();
  }

  // Time over length, on one head.
  Status Scaling() {
    std::vector<std::unique_ptr<AttentionProblem>> problems;
    std::vector<std::unique_ptr<AttentionCall>> calls;
    std::vector<Contender> contenders;
    for (const Index length : kScalingLengths) {
      problems.push_back(std::make_unique<AttentionProblem>(
          DrawProblem({1, length, length, 64, false}, options_.seed)));
      StatusOr<std::unique_ptr<AttentionCall>> call = PrepareOwnKernel(*problems.back(), {});
      if (!call.ok()) return call.status();
      calls.push_back(*std::move(call));
      contenders.push_back(
          {"scaling", targets_.front(), [c = calls.back().get()] { return c->Run(); }, {}, {}});
    }
    if (const auto once = RunOnce(contenders.front()); !once.ok()) return once.status();
    if (Status s = RunRounds(Limits(), Sampling(), &contenders); !s.ok()) return s;
    // The slope of the line through (ln length, ln time) by least squares.
    double mean_x = 0.0;
    double mean_y = 0.0;
    std::vector<std::pair<double, double>> points;
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const double seconds = Minimum(contenders[i].Seconds());
      scaling_["lengths"].push_back(kScalingLengths[i]);
      scaling_["seconds_min"].push_back(seconds);
      points.emplace_back(std::log(static_cast<double>(kScalingLengths[i])), std::log(seconds));
      mean_x += points.back().first / static_cast<double>(contenders.size());
      mean_y += points.back().second / static_cast<double>(contenders.size());
    }
    double xy = 0.0;
    double xx = 0.0;
    for (const auto& [x, y] : points) {
      xy += (x - mean_x) * (y - mean_y);
      xx += (x - mean_x) * (x - mean_x);
    }
    scaling_["kernel"] = "attention_forward_f32";
    scaling_["target"] = targets_.front();
    scaling_["exponent"] = xy / xx;
    PartDone();
    return Status();
  }

  // Two threads against one, by wall time.
  Status Threads() {
    const AttentionProblem problem = DrawProblem(kThreadsShape, options_.seed);
    std::vector<std::unique_ptr<AttentionCall>> calls;
    std::vector<Contender> contenders;
    for (const int threads : {1, 2}) {
      StatusOr<std::unique_ptr<AttentionCall>> call =
          PrepareOwnKernel(problem, {.threads = threads});
      if (call.status().code() == StatusCode::kUnsupported) break;
      if (!call.ok()) return call.status();
      calls.push_back(*std::move(call));
      contenders.push_back(
          {"threads", targets_.front(), [c = calls.back().get()] { return c->Run(); }, {}, {}});
      if (const auto once = RunOnce(contenders.back()); !once.ok()) return once.status();
    }
    if (contenders.size() == 2) {
      if (Status s = RunRounds(Limits(), Sampling(), &contenders); !s.ok()) return s;
      const auto least = [&](std::size_t i, double Sample::* clock) {
        return Minimum(contenders[i].Seconds(clock));
      };
      threads_ = {
          {"kernel", "attention_forward_f32"},
          {"shape", NameOf(kThreadsShape)},
          {"target", targets_.front()},
          {"wall_seconds_1", least(0, &Sample::wall)},
          {"wall_seconds_2", least(1, &Sample::wall)},
          {"speed_up", least(0, &Sample::wall) / least(1, &Sample::wall)},
          {"processor_time_ratio", least(1, &Sample::process) / least(0, &Sample::process)}};
    }
    PartDone();
    return Status();
  }

  ordered_json PeersToJson() const {
    ordered_json json = ordered_json::array();
    for (const PeerLibrary& library : peers_) {
      ordered_json peer{{"library", library.name}, {"licence", library.licence}};
      if (!library.version.empty()) peer["version"] = library.version;
      if (!library.missing.empty()) peer["missing"] = library.missing;
      if (library.changed_fp_state) peer["changed_floating_point_state"] = true;
      peer["names"] = ordered_json::array();
      for (const Peer& way : library.peers) peer["names"].push_back(way.name);
      json.push_back(std::move(peer));
    }
    return json;
  }

  ordered_json Record() const {
    ordered_json record{{"attest_bench", 1},
                        {"name", "attention"},
                        {"quick", options_.quick},
                        {"rounds", effort_.limits.rounds},
                        {"seconds_per_shape", effort_.limits.seconds},
                        {"clock", "processor time of one thread"},
                        {"targets", targets_},
                        {"floors", floors_.ToJson()},
                        {"peers", PeersToJson()}};
    for (const ShapeGroup& group : groups_) {
      for (ordered_json& row : group.Rows(floors_)) record["rows"].push_back(std::move(row));
    }
    for (const auto& [target, seconds] : softmax_) {
      ordered_json row =
          RowToJson(SoftmaxWork(kSoftmaxLength, kSoftmaxLength), target, seconds, floors_);
      row["vs"] = ordered_json::object();
      record["rows"].push_back(std::move(row));
    }
    if (!scaling_.is_null()) record["scaling"] = scaling_;
    if (!threads_.is_null()) record["threads"] = threads_;
    Manifest manifest;
    manifest.command = options_.command;
    manifest.simd_target = targets_.front();
    manifest.seed = options_.seed;
    manifest.libraries = OptimizedLibraries();
    for (const PeerLibrary& library : peers_) {
      if (library.missing.empty()) manifest.libraries[library.name] = library.version;
    }
    manifest.inputs_sha256 = Sha256(std::as_bytes(std::span(digests_)));
    record["manifest"] = ToJson(manifest);
    return record;
  }

  const BenchmarkOptions& options_;
  std::vector<AttentionShape> shapes_;
  bool whole_;
  Effort effort_;
  std::vector<std::string> targets_;
  std::vector<PeerLibrary> peers_;
  FloorMeter floors_;
  std::vector<ShapeGroup> groups_;
  std::vector<std::pair<std::string, std::vector<double>>> softmax_;  // target, seconds
  ordered_json scaling_, threads_;
  std::string digests_;  // of every shape's inputs
  std::map<std::tuple<std::string, Index, bool>, double> seconds_per_score_;  // peer, size, causal
  std::size_t parts_done_ = 0;
  double begin_ = WallSeconds();
};

}  // namespace

StatusOr<ordered_json> RunAttentionComparison(const BenchmarkOptions& options) {
  if (options.shape.empty()) {
    return Comparison(options, {kShapes.begin(), kShapes.end()}, true).Run();
  }
  StatusOr<AttentionShape> shape = ParseShape(options.shape);
  if (!shape.ok()) return shape.status();
  std::vector<AttentionShape> shapes{*shape};
  if (shape->queries > 1) {
    shape->causal = true;
    shapes.push_back(*shape);
  }
  return Comparison(options, std::move(shapes), false).Run();
}

}  // namespace attest
