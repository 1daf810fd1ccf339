// SPDX-License-Identifier: Apache-2.0
// Which rows go to which rung, on which thread.
#include "reference/forward_ladder.h"

#include <algorithm>
#include <numeric>

#include "reference/ball.h"
#include "reference/row_certifier.h"

namespace attest {
namespace {

// Rows of one head operand that are worked on together.
using RowGroup = std::vector<Index>;

class Ladder {
 public:
  Ladder(const RowInputs& inputs, const CertifyOptions& options, WorkQueue* work, Certified* result)
      : contract_(inputs.data().contract()),
        data_(inputs.data()),
        inputs_(inputs),
        options_(options),
        work_(*work),
        result_(*result),
        efforts_(result) {}

  void Run() {
    const Dimensions& s = contract_.shape;
    std::vector<Index> pending(static_cast<std::size_t>(s.batch * s.q_heads * s.q_len));
    std::iota(pending.begin(), pending.end(), Index{0});
    const Rung first = FirstRung(options_, contract_, contract_.out_dtype);
    if (first <= Rung::kDouble) pending = ClimbSimd(pending, Rung::kDouble);
    if (first <= Rung::kDoubleDouble) pending = ClimbSimd(pending, Rung::kDoubleDouble);
    ClimbBalls(pending);
  }

 private:
  // Cuts `rows`, which are sorted, into groups that share keys and values.
  std::vector<RowGroup> Groups(const std::vector<Index>& rows, std::size_t most) const {
    std::vector<RowGroup> groups;
    std::size_t head = 0;
    for (const Index row : rows) {
      const std::size_t of_row = inputs_.HeadOf(RowAt(contract_.shape, row));
      if (groups.empty() || groups.back().size() == most || of_row != head) groups.emplace_back();
      groups.back().push_back(row);
      head = of_row;
    }
    return groups;
  }

  // Takes `rows` to one of the SIMD rungs; the rows that are left, sorted. The grouping depends on
  // `rows` alone, so that enclosures are the same for any number of threads.
  std::vector<Index> ClimbSimd(const std::vector<Index>& rows, Rung rung) {
    const std::size_t most = WidestBlock(rung, contract_.shape.kv_len);
    const std::vector<RowGroup> groups = Groups(rows, most);
    std::vector<RowGroup> left(groups.size());
    work_.ForEach(groups.size(), [&] {
      return
          [&, builder = BlockBuilder(inputs_), workspace = RungWorkspace()](std::size_t i) mutable {
            left[i] = CertifyGroup(groups[i], rung, builder, workspace);
            work_.Report(static_cast<Index>(groups[i].size() - left[i].size()));
          };
    });
    std::vector<Index> pending;
    for (const RowGroup& group : left) pending.insert(pending.end(), group.begin(), group.end());
    return pending;
  }

  RowGroup CertifyGroup(const RowGroup& group, Rung rung, BlockBuilder& builder,
                        RungWorkspace& workspace) {
    std::vector<RowId> rows;
    for (const Index flat : group) rows.push_back(RowAt(contract_.shape, flat));
    const std::size_t lanes = LanesFor(rows.size());
    std::vector<std::size_t> refused;
    RowBlock block = builder.Build(rows, lanes, &refused);
    std::uint32_t pending = 0;
    if (refused.size() < rows.size()) {
      for (std::size_t i = 0; i < rows.size(); ++i) Direct(group[i], i, &block);
      for (const std::size_t i : refused) Unwanted(i, &block);
      ForbiddenWeights(rows, refused, group, block);
      pending = rung == Rung::kDouble
                    ? CertifyRowsInDouble(inputs_.Head(rows[0]), block, workspace)
                    : CertifyRowsInDoubleDouble(inputs_.Head(rows[0]), block, workspace);
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
        const bool allowed = Allows(block, i, j);
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
    work_.ForEach(rows.size(), [&] {
      return [&, cleanup = BallCaches()](std::size_t i) {
        efforts_.Add(certifier.CertifyRow(rows[i]));
        work_.Report(1);
      };
    });
  }

  const Contract& contract_;
  const CaseData& data_;
  const RowInputs& inputs_;
  const CertifyOptions& options_;
  WorkQueue& work_;
  Certified& result_;
  EffortTally efforts_;
};

}  // namespace

void CertifyForward(const RowInputs& inputs, const CertifyOptions& options, WorkQueue* work,
                    Certified* result) {
  Ladder(inputs, options, work, result).Run();
}

}  // namespace attest
