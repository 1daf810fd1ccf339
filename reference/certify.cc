// SPDX-License-Identifier: Apache-2.0
// Climbs the ladder: which rows go to which rung, on which thread.
#include "reference/certify.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "core/fp_environment.h"
#include "reference/ball.h"
#include "reference/row_certifier.h"
#include "reference/row_inputs.h"

namespace attest {
namespace {

// Blocks of long rows are narrow, so that a thread's planes stay in memory.
constexpr Index kLongRow = Index{1} << 16;

// Rows of one head operand that are worked on together.
using RowGroup = std::vector<Index>;

class Ladder {
 public:
  Ladder(const Case& problem, const CaseData& data, const CertifyOptions& options)
      : contract_(problem.contract), data_(data), options_(options) {
    const Dimensions& s = contract_.shape;
    rows_ = s.batch * s.q_heads * s.q_len;
    for (const char* name : {"out", "lse", "weights"}) {
      if (!contract_.Wants(name)) continue;
      CertifiedTensor& tensor = result_.outputs[name];
      tensor.dtype = OutputDType(problem, name);
      tensor.shape = OutputShape(problem, name);
      const auto size = static_cast<std::size_t>(ElementCount(tensor.shape));
      tensor.values.resize(size);
      if (options.digits > 0) tensor.digits.resize(size);
    }
    if (options.conditions) {
      const auto size = static_cast<std::size_t>(rows_ * s.kv_len);
      result_.conditions.allowed.resize(size);
      result_.conditions.weight.resize(size);
      result_.conditions.log_weight.resize(size);
      result_.conditions.score_condition.resize(size);
    }
  }

  StatusOr<Certified> Run() {
    std::vector<Index> pending(static_cast<std::size_t>(rows_));
    for (std::size_t i = 0; i < pending.size(); ++i) pending[i] = static_cast<Index>(i);
    Rung first = options_.first_rung;
    if (options_.digits > 0 || contract_.score != ScoreKind::kDot) first = Rung::kBall;
    if (first < Rung::kBall && !result_.outputs.empty()) {
      const RowInputs inputs(data_, options_.conditions);
      // Double cannot decide a double.
      if (first <= Rung::kDouble && contract_.out_dtype != DType::kF64) {
        pending = ClimbSimd(inputs, pending, Rung::kDouble);
      }
      pending = ClimbSimd(inputs, pending, Rung::kDoubleDouble);
    }
    ClimbBalls(pending);
    if (cancelled_) return Internal("cancelled");
    return std::move(result_);
  }

 private:
  // Runs work(i) for i < tasks on all threads. `worker` makes a thread's own state.
  template <class MakeWorker>
  void ForEach(std::size_t tasks, const MakeWorker& make_worker) {
    std::atomic<std::size_t> next{0};
    const auto run = [&] {
      auto worker = make_worker();
      for (std::size_t i = next++; i < tasks && !cancelled_; i = next++) worker(i);
    };
    const auto wanted = static_cast<std::size_t>(std::max(1, options_.threads));
    std::vector<std::thread> helpers;
    for (std::size_t i = 1; i < std::min(wanted, tasks); ++i) helpers.emplace_back(run);
    run();
    for (std::thread& helper : helpers) helper.join();
  }

  void Report(Index rows_done) {
    const std::lock_guard lock(mutex_);
    done_ += rows_done;
    if (options_.progress && rows_done > 0 && !options_.progress(done_, rows_)) cancelled_ = true;
  }

  // Cuts `rows`, which are sorted, into groups that share keys and values.
  std::vector<RowGroup> Groups(const RowInputs& inputs, const std::vector<Index>& rows,
                               std::size_t most) const {
    std::vector<RowGroup> groups;
    std::size_t head = 0;
    for (const Index row : rows) {
      const std::size_t of_row = inputs.HeadOf(RowAt(contract_.shape, row));
      if (groups.empty() || groups.back().size() == most || of_row != head) groups.emplace_back();
      groups.back().push_back(row);
      head = of_row;
    }
    return groups;
  }

  // Takes `rows` to one of the SIMD rungs; the rows that are left, sorted. The grouping depends on
  // `rows` alone, so that enclosures are the same for any number of threads.
  std::vector<Index> ClimbSimd(const RowInputs& inputs, const std::vector<Index>& rows, Rung rung) {
    const std::size_t widest = rung == Rung::kDouble ? kMaxRowLanes : kMaxRowLanes / 2;
    const std::size_t most = contract_.shape.kv_len > kLongRow ? 8 : widest;
    const std::vector<RowGroup> groups = Groups(inputs, rows, most);
    std::vector<RowGroup> left(groups.size());
    ForEach(groups.size(), [&] {
      return
          [&, builder = BlockBuilder(inputs), workspace = RungWorkspace()](std::size_t i) mutable {
            left[i] = CertifyGroup(inputs, groups[i], rung, builder, workspace);
            Report(static_cast<Index>(groups[i].size() - left[i].size()));
          };
    });
    std::vector<Index> pending;
    for (const RowGroup& group : left) pending.insert(pending.end(), group.begin(), group.end());
    return pending;
  }

  RowGroup CertifyGroup(const RowInputs& inputs, const RowGroup& group, Rung rung,
                        BlockBuilder& builder, RungWorkspace& workspace) {
    std::vector<RowId> rows;
    for (const Index flat : group) rows.push_back(RowAt(contract_.shape, flat));
    std::size_t lanes = 8;
    while (lanes < rows.size()) lanes *= 2;
    std::vector<std::size_t> refused;
    RowBlock block = builder.Build(rows, lanes, &refused);
    std::uint32_t pending = 0;
    if (refused.size() < rows.size()) {
      for (std::size_t i = 0; i < rows.size(); ++i) Direct(group[i], i, &block);
      for (const std::size_t i : refused) Unwanted(i, &block);
      ForbiddenWeights(rows, refused, group, block);
      pending = rung == Rung::kDouble
                    ? CertifyRowsInDouble(inputs.Head(rows[0]), block, workspace)
                    : CertifyRowsInDoubleDouble(inputs.Head(rows[0]), block, workspace);
    }
    for (const std::size_t i : refused) pending |= std::uint32_t{1} << i;
    RowGroup left;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if ((pending >> i & 1) != 0) left.push_back(group[i]);
    }
    return left;
  }

  // Where the results of row `flat` go.
  void Direct(Index flat, std::size_t lane, RowBlock* block) {
    const Index n = contract_.shape.kv_len;
    block->out[lane] = At("out", flat * contract_.shape.v_dim);
    block->lse[lane] = At("lse", flat);
    block->weights[lane] = At("weights", flat * n);
    if (options_.conditions) {
      Conditions& conditions = result_.conditions;
      block->weight_condition[lane] = conditions.weight.data() + flat * n;
      block->log_weight_condition[lane] = conditions.log_weight.data() + flat * n;
      block->score_condition[lane] = conditions.score_condition.data() + flat * n;
    }
  }
  static void Unwanted(std::size_t lane, RowBlock* block) {
    block->out[lane] = nullptr;
    block->lse[lane] = nullptr;
    block->weights[lane] = nullptr;
  }
  CertifiedValue* At(const char* name, Index element) {
    const auto found = result_.outputs.find(name);
    return found == result_.outputs.end() ? nullptr : found->second.values.data() + element;
  }

  // Weights of excluded keys are 0 by rule; and which keys are allowed, for the conditions.
  void ForbiddenWeights(const std::vector<RowId>& rows, const std::vector<std::size_t>& refused,
                        const RowGroup& group, const RowBlock& block) {
    const bool wants_weights = result_.outputs.contains("weights");
    if (!wants_weights && !options_.conditions) return;
    const Index n = contract_.shape.kv_len;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (std::find(refused.begin(), refused.end(), i) != refused.end()) continue;
      for (Index j = 0; j < n; ++j) {
        const bool inside = j >= block.first_key && j < block.last_key;
        const auto at = static_cast<std::size_t>(j - block.first_key) * block.lanes + i;
        const bool allowed =
            inside && (block.additive.hi == nullptr || block.additive.hi[at] != kExcluded);
        if (options_.conditions) {
          result_.conditions.allowed[static_cast<std::size_t>(group[i] * n + j)] = allowed ? 1 : 0;
        }
        if (wants_weights && !allowed)
          block.weights[i][j] = {0.0, 0.0, 0.0, 0.0, Rung::kRule, true};
      }
    }
  }

  void ClimbBalls(const std::vector<Index>& rows) {
    const RowCertifier certifier(data_, options_, &result_);
    ForEach(rows.size(), [&] {
      return [&, cleanup = BallCaches()](std::size_t i) {
        const RowCertifier::Effort effort = certifier.CertifyRow(rows[i]);
        {
          const std::lock_guard lock(mutex_);
          result_.undecided += effort.undecided;
          result_.largest_precision =
              std::max(result_.largest_precision, static_cast<int>(effort.precision));
        }
        Report(1);
      };
    });
  }

  // Frees what a thread's balls have cached when the thread's work ends.
  struct BallCaches {
    ~BallCaches() { Ball::FreeThreadCaches(); }
  };

  const Contract& contract_;
  const CaseData& data_;
  const CertifyOptions& options_;
  Index rows_ = 0;
  Certified result_;
  std::mutex mutex_;
  Index done_ = 0;
  std::atomic<bool> cancelled_{false};
};

}  // namespace

std::array<Index, kRungs> Certified::RungCounts() const {
  std::array<Index, kRungs> counts{};
  for (const auto& [name, tensor] : outputs) {
    for (const CertifiedValue& value : tensor.values) {
      ++counts[static_cast<std::size_t>(value.rung)];
    }
  }
  return counts;
}

StatusOr<Certified> Certify(const Case& problem, const CertifyOptions& options) {
  if (Status s = CheckFloatingPointEnvironment(); !s.ok()) return s;
  for (const std::string& output : problem.contract.outputs) {
    if (output.starts_with("grad_")) {
      return Unsupported("outputs: the reference does not compute '" + output + "'");
    }
  }
  StatusOr<CaseData> data = CaseData::Make(problem);
  if (!data.ok()) return data.status();
  return Ladder(problem, *data, options).Run();
}

std::map<std::string, std::string> ReferenceLibraries() { return Ball::Libraries(); }

}  // namespace attest
