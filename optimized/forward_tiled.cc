// SPDX-License-Identifier: Apache-2.0
#include "optimized/forward_tiled.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "optimized/attention_check.h"
#include "optimized/forward_task.h"
#include "optimized/rows.h"

namespace attest {
namespace {

// Keys that one work item stages.
constexpr std::size_t kStageKeys = 1024;

// Blocks of queries for each thread between two waits for all of them.
constexpr std::size_t kBlocksOfThread = 8;

// What all heads of a call share, in the types of the kernels.
template <class Policy, class S, class W>
class TiledCall {
 public:
  TiledCall(const AttentionArgs& args, const AttentionOutputs& outputs)
      : args_(args), outputs_(outputs), kernels_(KernelsOf<Policy, S, W>()) {
    const double scale = ScaleOf(args);
    common_.q_len = args.q.shape[2];
    common_.kv_len = static_cast<std::size_t>(args.k.shape[2]);
    common_.q_dim = static_cast<std::size_t>(args.q.shape[3]);
    common_.v_dim = static_cast<std::size_t>(args.v.shape[3]);
    k_dim_ = static_cast<std::size_t>(args.k.shape[3]);
    common_.width = additive() ? static_cast<std::size_t>(args.w_q->shape[0]) : k_dim_;
    common_.score = args.score;
    common_.factor = args.softcap > 0.0 ? scale / args.softcap : scale * kLog2E;
    common_.cap = args.softcap * kLog2E;
    common_.empty_row = args.empty_row;
    keys_in_place_ = !additive() && args.k.dtype == DTypeOf<S>::value && args.k.strides[3] == 1;
  }

  void Run(Execution& execution) {
    Carver sizes;
    Carve(sizes, execution.pool.threads());
    Carver memory(execution.workspace.Reserve(sizes.used()));
    Carve(memory, execution.pool.threads());
    StageParameters();

    const std::size_t rows = kernels_.query_rows();
    const std::size_t blocks = BlocksOfQueries();
    const std::size_t group = QueryHeadsOfKeyHead();
    for (std::size_t first = 0; first < key_heads_; first += staged_) {
      const std::size_t count = std::min(staged_, key_heads_ - first);
      StageKeysAndValues(first, count, execution.pool);
      execution.pool.Run(count * group * blocks, [&](std::size_t item, std::size_t thread) {
        kernels_.rows(TaskOf(first * group + item / blocks, first),
                      static_cast<Index>(item % blocks * rows), scratch_ + thread * scratch_step_);
      });
    }
  }

 private:
  bool additive() const { return args_.score == ScoreKind::kAdditive; }

  std::size_t BlocksOfQueries() const {
    const std::size_t rows = kernels_.query_rows();
    return (static_cast<std::size_t>(common_.q_len) + rows - 1) / rows;
  }
  std::size_t QueryHeadsOfKeyHead() const {
    return static_cast<std::size_t>(args_.q.shape[1] / args_.k.shape[1]);
  }

  void Carve(Carver& carver, std::size_t threads) {
    // One head at a time leaves its keys and values in the cache; several threads need enough
    // blocks of queries to share.
    key_heads_ = static_cast<std::size_t>(args_.k.shape[0] * args_.k.shape[1]);
    const std::size_t blocks = std::max<std::size_t>(BlocksOfQueries() * QueryHeadsOfKeyHead(), 1);
    staged_ = threads == 1 ? 1 : (kBlocksOfThread * threads + blocks - 1) / blocks;
    staged_ = std::min(staged_, std::max<std::size_t>(key_heads_, 1));
    const std::size_t length = common_.kv_len;
    padded_ = (common_.width + kProjectionStep - 1) / kProjectionStep * kProjectionStep;
    if (args_.score == ScoreKind::kGeneral) w_ = carver.Take<S>(common_.q_dim * k_dim_);
    if (additive()) {
      w_q_ = carver.Take<S>(common_.width * common_.q_dim);
      w_k_ = carver.Take<S>(k_dim_ * padded_);
      b_ = carver.Take<S>(common_.width);
      v_a_ = carver.Take<S>(common_.width);
      projected_ = carver.Take<S>(staged_ * length * common_.width);
    }
    if (!keys_in_place_) keys_ = carver.Take<S>(staged_ * length * k_dim_);
    panels_ = carver.Take<S>(staged_ * length * common_.v_dim);
    row_step_ = std::max(k_dim_, common_.v_dim);
    rows_ = carver.Take<S>(threads * row_step_);
    scratch_step_ = (kernels_.scratch(common_) + Carver::kAlignment - 1) / Carver::kAlignment *
                    Carver::kAlignment;
    scratch_ = carver.Take<std::byte>(threads * scratch_step_);
  }

  void StageParameters() {
    const auto stage = [](const Input<2>& matrix, S* to) {
      const auto columns = static_cast<std::size_t>(matrix.shape[1]);
      for (Index r = 0; r < matrix.shape[0]; ++r) {
        ReadRow(matrix.dtype, At(matrix, r), matrix.strides[1], columns,
                to + static_cast<std::size_t>(r) * columns);
      }
    };
    if (args_.score == ScoreKind::kGeneral) {
      stage(*args_.w, w_);
      common_.w = w_;
    }
    if (!additive()) return;
    stage(*args_.w_q, w_q_);
    common_.w_q = w_q_;
    std::fill(w_k_, w_k_ + k_dim_ * padded_, S{0});
    for (std::size_t a = 0; a < common_.width; ++a) {
      const auto row = static_cast<Index>(a);
      for (std::size_t d = 0; d < k_dim_; ++d) {
        ReadRow(args_.w_k->dtype, At(*args_.w_k, row, static_cast<Index>(d)), 1, 1,
                w_k_ + d * padded_ + a);
      }
      const double v_a = ReadElement(args_.v_a->dtype, At(*args_.v_a, row));
      v_a_[a] = static_cast<S>(v_a * common_.factor);
      if (args_.b) ReadRow(args_.b->dtype, At(*args_.b, row), 1, 1, b_ + a);
    }
    common_.v_a = v_a_;
    if (args_.b) common_.b = b_;
  }

  // Of key/value heads [first_head, first_head + heads), counted over all batches.
  void StageKeysAndValues(std::size_t first_head, std::size_t heads, ThreadPool& pool) {
    const std::size_t length = common_.kv_len;
    const std::size_t parts = (length + kStageKeys - 1) / kStageKeys;
    pool.Run(heads * parts, [&](std::size_t item, std::size_t thread) {
      const std::size_t first = item % parts * kStageKeys;
      const std::size_t count = std::min(kStageKeys, length - first);
      const std::size_t head = item / parts;
      const Index in_batch = static_cast<Index>(first_head + head) % args_.k.shape[1];
      const Index batch = static_cast<Index>(first_head + head) / args_.k.shape[1];
      kernels_.pack(OfHead(args_.v, batch, in_batch), first, count, rows_ + thread * row_step_,
                    panels_ + head * length * common_.v_dim);
      if (keys_in_place_) return;
      const Input<2> k = OfHead(args_.k, batch, in_batch);
      S* const keys = keys_ + (head * length + first) * k_dim_;
      for (std::size_t j = 0; j < count; ++j) {
        ReadRow(k.dtype, At(k, static_cast<Index>(first + j)), k.strides[1], k_dim_,
                keys + j * k_dim_);
      }
      if (!additive()) return;
      kernels_.project(keys, k_dim_, count, k_dim_, w_k_, common_.width, padded_,
                       projected_ + (head * length + first) * common_.width);
    });
  }

  // Query head `of_all`, counted over all batches, where key/value heads from `first_staged` on are
  // staged.
  HeadTask<S> TaskOf(std::size_t of_all, std::size_t first_staged) const {
    const Index batch = static_cast<Index>(of_all) / args_.q.shape[1];
    const Index head = static_cast<Index>(of_all) % args_.q.shape[1];
    HeadTask<S> task = common_;
    task.rules = HeadRules(args_, batch, head);
    const std::size_t kv_of_all = of_all / QueryHeadsOfKeyHead();
    const Index kv_head = static_cast<Index>(kv_of_all) % args_.k.shape[1];
    const std::size_t kv = kv_of_all - first_staged;
    task.q = OfHead(args_.q, batch, head);
    task.v = OfHead(args_.v, batch, kv_head);
    if (keys_in_place_) {
      task.keys = static_cast<const S*>(At(args_.k, batch, kv_head));
      task.key_step = static_cast<std::size_t>(args_.k.strides[2]);  // wraps around when negative
    } else {
      task.keys = (additive() ? projected_ : keys_) + kv * common_.kv_len * common_.width;
      task.key_step = common_.width;
    }
    task.panels = panels_ + kv * common_.kv_len * common_.v_dim;
    if (outputs_.out) task.out = OfHead(*outputs_.out, batch, head);
    if (outputs_.lse) task.lse = OfHead(*outputs_.lse, batch, head);
    if (outputs_.weights) task.weights = OfHead(*outputs_.weights, batch, head);
    return task;
  }

  const AttentionArgs& args_;
  const AttentionOutputs& outputs_;
  const ForwardKernels<S>& kernels_;
  HeadTask<S> common_;  // what does not depend on the head
  std::size_t k_dim_ = 0;
  std::size_t padded_ = 0;  // columns of w_k_
  bool keys_in_place_ = false;
  S* w_ = nullptr;
  S* w_q_ = nullptr;
  S* w_k_ = nullptr;  // transposed
  S* b_ = nullptr;
  S* v_a_ = nullptr;
  std::size_t key_heads_ = 0;  // of all batches
  std::size_t staged_ = 0;     // of them at a time
  S* keys_ = nullptr;          // [staged, Tk, Dk]
  S* projected_ = nullptr;     // [staged, Tk, A]
  S* panels_ = nullptr;        // [staged], of values
  S* rows_ = nullptr;          // one row of values for every thread
  std::size_t row_step_ = 0;
  std::byte* scratch_ = nullptr;
  std::size_t scratch_step_ = 0;
};

}  // namespace

template <class ModePolicy>
void ForwardTiled(ModePolicy, const AttentionArgs& args, const AttentionOutputs& outputs,
                  Execution& execution) {
  constexpr bool kAccurate = kModeOf<ModePolicy> == Mode::kAccurate;
  using Score = std::conditional_t<kAccurate, double, float>;
  if (args.q.dtype == DType::kF64) {
    TiledCall<ModePolicy, double, double>(args, outputs).Run(execution);
  } else {
    TiledCall<ModePolicy, Score, float>(args, outputs).Run(execution);
  }
}

template void ForwardTiled(Fast, const AttentionArgs&, const AttentionOutputs&, Execution&);
template void ForwardTiled(Reproducible, const AttentionArgs&, const AttentionOutputs&, Execution&);
template void ForwardTiled(Accurate, const AttentionArgs&, const AttentionOutputs&, Execution&);

}  // namespace attest
