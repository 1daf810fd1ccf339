// SPDX-License-Identifier: Apache-2.0
// Which rows, keys and elements of gradients go to which rung, on which thread.
#include "reference/gradient_ladder.h"

#include <algorithm>
#include <cmath>

#include "reference/ball.h"
#include "reference/gradient_block.h"
#include "reference/gradient_certifier.h"
#include "reference/gradient_enclosure.h"

namespace attest {
namespace {

// The tensor's elements, or `size` zeros without one.
std::vector<double> DoublesOf(const Tensor* tensor, Index size) {
  return tensor == nullptr ? std::vector<double>(static_cast<std::size_t>(size), 0.0)
                           : ToDoubles(*tensor);
}

class Ladder {
 public:
  Ladder(const RowInputs& inputs, const CertifyOptions& options, WorkQueue* work, Certified* result)
      : data_(inputs.data()),
        contract_(data_.contract()),
        shape_(contract_.shape),
        inputs_(inputs),
        options_(options),
        work_(*work),
        result_(*result),
        rows_(shape_.batch * shape_.q_heads * shape_.q_len),
        grad_out_(DoublesOf(data_.Find("grad_out"), rows_ * shape_.v_dim)),
        grad_lse_(DoublesOf(data_.Find("grad_lse"), rows_)),
        statistics_(static_cast<std::size_t>(rows_)),
        heads_(static_cast<std::size_t>(shape_.batch * shape_.kv_heads)),
        grad_q_(Values("grad_q")),
        grad_k_(Values("grad_k")),
        grad_v_(Values("grad_v")),
        grad_bias_(BiasIsFull() ? Values("grad_bias") : nullptr),
        grad_sinks_(Values("grad_sinks")),
        efforts_(result) {}

  void Run() {
    const Rung first = FirstRung(options_, contract_, contract_.dtype);
    if (first < Rung::kBall && shape_.kv_len > 0) {
      Classify();
      if (first <= Rung::kDouble) ClimbSimd(Rung::kDouble);
      ClimbSimd(Rung::kDoubleDouble);
    }
    if (!work_.cancelled()) ClimbBalls();
    work_.ReportAll();
  }

 private:
  // Rows and keys of one (batch, key/value head).
  struct OneHead {
    std::vector<Index> rows;     // that a SIMD rung takes, sorted
    double q_norm = 0.0;         // largest of those rows
    double grad_out_norm = 0.0;  // likewise
    bool poisoned = false;       // a row with NaN or infinities reaches its keys
  };
  // Up to kMaxRowLanes rows or keys of one head.
  struct Group {
    std::size_t head;
    std::vector<Index> members;
  };

  CertifiedValue* Values(const char* name) {
    const auto found = result_.outputs.find(name);
    return found == result_.outputs.end() ? nullptr : found->second.values.data();
  }
  // Part `index` of consecutive parts of `width` values; null stays null.
  static CertifiedValue* At(CertifiedValue* values, Index index, Index width) {
    return values == nullptr ? nullptr : values + index * width;
  }
  // Whether the bias is not broadcast, so that each element has one row.
  bool BiasIsFull() const {
    const Tensor* bias = data_.Find("bias");
    return bias != nullptr &&
           bias->shape() == Shape{shape_.batch, shape_.q_heads, shape_.q_len, shape_.kv_len};
  }
  static bool AllDecided(const CertifiedValue* values, Index count) {
    return values == nullptr ||
           std::all_of(values, values + count, [](const CertifiedValue& v) { return v.decided; });
  }
  static void SetZero(CertifiedValue* values, Index count) {
    if (values == nullptr) return;
    std::fill_n(values, count, CertifiedValue{0.0, 0.0, 0.0, 0.0, Rung::kRule, true});
  }

  // Which rows the SIMD rungs take. Rows without an allowed key have gradients of 0; rows in which
  // something that takes part is NaN or infinite, and what they reach, are left to rung 2.
  void Classify() {
    BlockBuilder builder(inputs_);
    std::vector<std::size_t> refused;
    for (Index flat = 0; flat < rows_; ++flat) {
      const RowId row = RowAt(shape_, flat);
      OneHead& head = heads_[inputs_.HeadOf(row)];
      bool taken = AllFinite(GradOut(flat)) && std::isfinite(GradLse(flat));
      if (taken && NeedsALook(row)) {
        builder.Build({&row, 1}, 8, &refused);
        taken = refused.empty();
      }
      if (taken) {
        head.rows.push_back(flat);
        head.q_norm = std::max(head.q_norm, NormBound(data_.Query(row)) * (1.0 + 0x1p-50));
        head.grad_out_norm =
            std::max(head.grad_out_norm, NormBound(GradOut(flat)) * (1.0 + 0x1p-50));
      } else if (!data_.Plan(row).has_allowed_key()) {
        SetZero(At(grad_q_, flat, shape_.k_dim), shape_.k_dim);
        SetZero(At(grad_bias_, flat, shape_.kv_len), shape_.kv_len);
        EmptyRow(flat, row);
      } else {
        head.poisoned = true;
        sinks_known_ = false;
      }
    }
  }
  // Whether a row may be empty or not finite.
  bool NeedsALook(const RowId& row) const {
    const KeyInterval range = data_.RangeOf(row);
    return range.first >= range.last || data_.HasSelections() || inputs_.HasSpecial(row) ||
           !AllFinite(data_.Query(row)) || IsBeyondRungs(data_.SinkOf(row)) ||
           !std::isfinite(inputs_.Slope(row).hi);
  }
  // grad_lse reaches a finite sink of a row without keys.
  void EmptyRow(Index flat, const RowId& row) {
    const double sink = data_.SinkOf(row);
    RowStatistics& statistics = statistics_[static_cast<std::size_t>(flat)];
    if (std::isnan(sink) || sink == HUGE_VAL || !std::isfinite(GradLse(flat))) {
      sinks_known_ = false;
    } else if (std::isfinite(sink)) {
      statistics.sink_hi = GradLse(flat);
    }
  }

  std::span<const double> GradOut(Index flat) const {
    const auto width = static_cast<std::size_t>(shape_.v_dim);
    return {grad_out_.data() + static_cast<std::size_t>(flat) * width, width};
  }
  double GradLse(Index flat) const { return grad_lse_[static_cast<std::size_t>(flat)]; }

  // One rung: first the rows, whose statistics the keys need, then the keys, then the sinks. On
  // rung 1 whatever is decided is left out; a head of which a key is undecided needs all its rows.
  void ClimbSimd(Rung rung) {
    std::vector<std::vector<Index>> keys(heads_.size());
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      for (Index j = 0; j < shape_.kv_len && !heads_[h].poisoned; ++j) {
        const Index key = static_cast<Index>(h) * shape_.kv_len + j;
        if (!AllDecided(At(grad_k_, key, shape_.k_dim), shape_.k_dim) ||
            !AllDecided(At(grad_v_, key, shape_.v_dim), shape_.v_dim)) {
          keys[h].push_back(j);
        }
      }
    }
    const bool sinks = sinks_known_ && !AllDecided(grad_sinks_, shape_.q_heads);
    std::vector<std::vector<Index>> rows(heads_.size());
    std::vector<std::vector<Index>> decided_rows(heads_.size());
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      for (const Index flat : heads_[h].rows) {
        if (!RowDecided(flat)) {
          rows[h].push_back(flat);
        } else if (!keys[h].empty() || sinks) {
          decided_rows[h].push_back(flat);
        }
      }
    }
    const std::size_t most = WidestBlock(rung, shape_.kv_len);
    // Apart, so that blocks of rows that only keys need skip the sums for grad_q.
    std::vector<Group> row_groups = Cut(rows, most);
    for (Group& group : Cut(decided_rows, most)) row_groups.push_back(std::move(group));
    work_.ForEach(row_groups.size(), [&] {
      return [&, builder = BlockBuilder(inputs_), workspace = RungWorkspace(),
              grad_out = hwy::AllocateAligned<double>(static_cast<std::size_t>(shape_.v_dim) *
                                                      kMaxRowLanes)](std::size_t i) mutable {
        DoRows(row_groups[i], rung, builder, grad_out.get(), workspace);
        work_.Report(static_cast<Index>(row_groups[i].members.size()));
      };
    });
    if (sinks && !work_.cancelled()) SettleSinks(rung);
    const std::vector<Group> key_groups = Cut(keys, WidestBlock(rung, 0));
    work_.ForEach(key_groups.size(), [&] {
      return
          [&, buffers = ColumnBuffers(shape_), workspace = RungWorkspace()](std::size_t i) mutable {
            DoKeys(key_groups[i], rung, buffers, workspace);
            work_.Report(static_cast<Index>(key_groups[i].members.size()));
          };
    });
  }

  bool RowDecided(Index flat) const {
    return AllDecided(At(grad_q_, flat, shape_.k_dim), shape_.k_dim) &&
           AllDecided(At(grad_bias_, flat, shape_.kv_len), shape_.kv_len);
  }

  static std::vector<Group> Cut(const std::vector<std::vector<Index>>& by_head, std::size_t most) {
    std::vector<Group> groups;
    for (std::size_t h = 0; h < by_head.size(); ++h) {
      for (std::size_t i = 0; i < by_head[h].size(); ++i) {
        if (i % most == 0) groups.push_back({h, {}});
        groups.back().members.push_back(by_head[h][i]);
      }
    }
    return groups;
  }

  void DoRows(const Group& group, Rung rung, BlockBuilder& builder, double* grad_out,
              RungWorkspace& workspace) {
    std::vector<RowId> rows;
    for (const Index flat : group.members) rows.push_back(RowAt(shape_, flat));
    std::vector<std::size_t> refused;
    const RowBlock block = builder.Build(rows, LanesFor(rows.size()), &refused);
    GradientRows gradients;
    gradients.grad_out = grad_out;
    gradients.dtype = contract_.dtype;
    if (grad_bias_ != nullptr) gradients.bias_dtype = data_.Find("bias")->dtype();
    for (std::size_t lane = 0; lane < block.lanes; ++lane) {
      const Index flat = group.members[std::min(lane, rows.size() - 1)];
      const std::span<const double> values = GradOut(flat);
      for (std::size_t c = 0; c < values.size(); ++c) {
        grad_out[c * block.lanes + lane] = values[c];
      }
      gradients.grad_out_norm[lane] = NormBound(values);
      gradients.grad_lse[lane] = GradLse(flat);
      if (lane >= rows.size()) continue;
      gradients.statistics[lane] = &statistics_[static_cast<std::size_t>(flat)];
      CertifiedValue* grad_q = At(grad_q_, flat, shape_.k_dim);
      if (!AllDecided(grad_q, shape_.k_dim)) gradients.grad_q[lane] = grad_q;
      CertifiedValue* grad_bias = At(grad_bias_, flat, shape_.kv_len);
      if (!AllDecided(grad_bias, shape_.kv_len)) {
        gradients.grad_bias[lane] = grad_bias;
        ForbiddenBias(block, lane, grad_bias);
      }
    }
    const HeadOperands& head = inputs_.Head(rows[0]);
    if (rung == Rung::kDouble) {
      GradientRowsInDouble(head, block, gradients, workspace);
    } else {
      GradientRowsInDoubleDouble(head, block, gradients, workspace);
    }
  }

  // The gradients of biases of keys that are not allowed are 0.
  void ForbiddenBias(const RowBlock& block, std::size_t lane, CertifiedValue* grad_bias) const {
    for (Index j = 0; j < shape_.kv_len; ++j) {
      if (!Allows(block, lane, j)) SetZero(grad_bias + j, 1);
    }
  }

  // The gradient of a head's sink sums over batches and rows, in double-double.
  void SettleSinks(Rung rung) {
    const DType dtype = result_.outputs.at("grad_sinks").dtype;
    for (Index h = 0; h < shape_.q_heads; ++h) {
      double hi = 0.0;
      double lo = 0.0;
      double radius = 0.0;
      double magnitude = 0.0;
      for (Index b = 0; b < shape_.batch; ++b) {
        const Index first = (b * shape_.q_heads + h) * shape_.q_len;
        for (Index i = first; i < first + shape_.q_len; ++i) {
          const RowStatistics& row = statistics_[static_cast<std::size_t>(i)];
          const double sum = hi + row.sink_hi;  // TwoSum
          const double part = sum - hi;
          lo += (hi - (sum - part)) + (row.sink_hi - part) + row.sink_lo;
          hi = sum;
          radius += row.sink_radius;
          magnitude += std::fabs(row.sink_hi);
        }
      }
      // Compensated summation, as in DoubleDoubleConstants::SumError.
      const double n = static_cast<double>(shape_.batch * shape_.q_len);
      radius = 1.0001 * radius + 2.0 * Gamma(2.0 * n + 2.0) * Gamma(n + 1.0) * magnitude;
      const double sum = hi + lo;
      CertifiedValue& value = grad_sinks_[h];
      if (!value.decided) value = Settle(sum, lo - (sum - hi), radius, dtype, rung);
    }
  }

  // One thread's buffers for a block of keys.
  struct ColumnBuffers {
    explicit ColumnBuffers(const Dimensions& s)
        : k(hwy::AllocateAligned<double>(static_cast<std::size_t>(s.k_dim) * kMaxRowLanes)),
          v(hwy::AllocateAligned<double>(static_cast<std::size_t>(s.v_dim) * kMaxRowLanes)),
          additive_hi(hwy::AllocateAligned<double>(kKeyBlock * kMaxRowLanes)),
          additive_lo(hwy::AllocateAligned<double>(kKeyBlock * kMaxRowLanes)),
          keep(hwy::AllocateAligned<double>(kKeyBlock * kMaxRowLanes)),
          center(kKeyBlock) {}
    hwy::AlignedFreeUniquePtr<double[]> k, v, additive_hi, additive_lo, keep;
    std::vector<double> center;
  };

  void DoKeys(const Group& group, Rung rung, ColumnBuffers& buffers, RungWorkspace& workspace) {
    ColumnBlock block;
    block.lanes = LanesFor(group.members.size());
    block.keys = group.members.size();
    block.k = buffers.k.get();
    block.v = buffers.v.get();
    block.k_dim = shape_.k_dim;
    block.v_dim = shape_.v_dim;
    block.scale = inputs_.scale();
    block.softcap = contract_.softcap;
    if (contract_.local && contract_.local->gaussian) {
      block.gaussian_half_width = contract_.local->half_width;
    }
    block.kept = KeptFraction(data_);
    block.dtype = contract_.dtype;
    const auto batch = static_cast<Index>(group.head) / shape_.kv_heads;
    const Index kv_head = static_cast<Index>(group.head) % shape_.kv_heads;
    const Index heads = shape_.q_heads / shape_.kv_heads;  // that share these keys
    const Index rows = heads * shape_.q_len;
    const auto full = static_cast<Index>(kKeyBlock);
    block.rows = heads * ((shape_.q_len + full - 1) / full) * full;
    const HeadOperands& head = inputs_.Head({batch, kv_head * heads, 0});
    block.exact_products = head.exact_products;
    for (std::size_t lane = 0; lane < block.lanes; ++lane) {
      const Index key = group.members[std::min(lane, block.keys - 1)];
      block.key[lane] = static_cast<double>(key);
      for (Index d = 0; d < shape_.k_dim; ++d) {
        buffers.k[static_cast<std::size_t>(d) * block.lanes + lane] =
            head.k[key * shape_.k_dim + d];
      }
      for (Index c = 0; c < shape_.v_dim; ++c) {
        buffers.v[static_cast<std::size_t>(c) * block.lanes + lane] =
            head.v[key * shape_.v_dim + c];
      }
      block.score_bound[lane] =
          heads_[group.head].q_norm * head.k_norm[static_cast<std::size_t>(key)];
      block.dp_bound[lane] =
          heads_[group.head].grad_out_norm * head.v_norm[static_cast<std::size_t>(key)];
      if (lane >= block.keys) continue;
      const Index element = static_cast<Index>(group.head) * shape_.kv_len + key;
      block.grad_k[lane] = At(grad_k_, element, shape_.k_dim);
      block.grad_v[lane] = At(grad_v_, element, shape_.v_dim);
    }
    // Tiles of the rows of one query head after the other.
    Index done = 0;
    block.next = [&](RowTile* tile) {
      while (done < rows) {
        const Index query = done % shape_.q_len;
        const Index count = std::min<Index>(static_cast<Index>(kKeyBlock), shape_.q_len - query);
        const RowId first{batch, kv_head * heads + done / shape_.q_len, query};
        done += count;
        if (FillTile(first, count, group.members, block.lanes, buffers, tile)) return true;
      }
      return false;
    };
    if (rung == Rung::kDouble) {
      GradientColumnsInDouble(block, workspace);
    } else {
      GradientColumnsInDoubleDouble(block, workspace);
    }
  }

  // The tile of `count` rows from `first` on; false where none of them sees any of the keys.
  bool FillTile(const RowId& first, Index count, const std::vector<Index>& keys, std::size_t lanes,
                ColumnBuffers& buffers, RowTile* tile) const {
    const Index flat = (first.batch * shape_.q_heads + first.head) * shape_.q_len + first.query;
    *tile = RowTile();
    tile->rows = static_cast<std::size_t>(count);
    tile->q = data_.Query(first).data();
    tile->grad_out = GradOut(flat).data();
    tile->statistics = statistics_.data() + flat;
    const bool selections = data_.HasSelections();
    const bool alibi = data_.has_alibi();
    bool additive = selections || alibi;
    bool any = false;
    for (Index r = 0; r < count; ++r) {
      const KeyInterval range = data_.RangeOf({first.batch, first.head, first.query + r});
      if (range.first > keys.front() || range.last <= keys.back()) additive = true;
      if (range.first <= keys.back() && range.last > keys.front()) any = true;
    }
    if (!any) return false;
    if (additive) {
      std::fill_n(buffers.additive_hi.get(), tile->rows * lanes, kExcluded);
      std::fill_n(buffers.additive_lo.get(), tile->rows * lanes, 0.0);
      tile->additive = {buffers.additive_hi.get(), buffers.additive_lo.get()};
    }
    if (data_.has_keep()) {
      std::fill_n(buffers.keep.get(), tile->rows * lanes, 1.0);
      tile->keep = buffers.keep.get();
    }
    if (contract_.local && contract_.local->gaussian) tile->center = buffers.center.data();
    for (Index r = 0; r < count; ++r) {
      const RowId row{first.batch, first.head, first.query + r};
      if (tile->center != nullptr) {
        buffers.center[static_cast<std::size_t>(r)] = data_.LocalCenter(row);
      }
      const KeyInterval range = data_.RangeOf(row);
      for (std::size_t lane = 0; lane < keys.size(); ++lane) {
        const Index key = keys[lane];
        if (key < range.first || key >= range.last) continue;
        if (selections && !data_.Selected(row, key)) continue;
        const std::size_t at = static_cast<std::size_t>(r) * lanes + lane;
        if (additive) {
          const Additive sum = AdditiveAt(inputs_, row, key);
          tile->additive.hi[at] = sum.hi;
          tile->additive.lo[at] = sum.lo;
        }
        if (tile->keep != nullptr && !data_.Keeps(row, key)) buffers.keep[at] = 0.0;
      }
    }
    return true;
  }

  void ClimbBalls() {
    struct Part {
      std::string tensor;
      std::vector<Index> elements;
    };
    std::vector<Part> parts;
    for (auto& [name, gradient] : result_.outputs) {
      if (!name.starts_with("grad_")) continue;
      if (AllDecided(gradient.values.data(), static_cast<Index>(gradient.values.size()))) continue;
      const std::string tensor = name.substr(5);
      for (std::vector<Index>& part : IndependentParts(data_, tensor)) {
        std::erase_if(part, [&](Index element) {
          return gradient.values[static_cast<std::size_t>(element)].decided;
        });
        if (!part.empty()) parts.push_back({tensor, std::move(part)});
      }
    }
    work_.ForEach(parts.size(), [&] {
      return [&, cleanup = BallCaches()](std::size_t i) {
        const Part& part = parts[i];
        efforts_.Add(CertifyGradient(data_, options_.digits, part.tensor, part.elements,
                                     &result_.outputs.at("grad_" + part.tensor)));
        work_.Report(0);
      };
    });
  }

  const CaseData& data_;
  const Contract& contract_;
  const Dimensions& shape_;
  const RowInputs& inputs_;
  const CertifyOptions& options_;
  WorkQueue& work_;
  Certified& result_;
  const Index rows_;
  const std::vector<double> grad_out_;     // [rows, v_dim]
  const std::vector<double> grad_lse_;     // [rows]
  std::vector<RowStatistics> statistics_;  // [rows], of the rung at work
  std::vector<OneHead> heads_;             // [batch, kv_heads]
  CertifiedValue* const grad_q_;           // null: not wanted
  CertifiedValue* const grad_k_;
  CertifiedValue* const grad_v_;
  CertifiedValue* const grad_bias_;  // null as well where the bias is broadcast
  CertifiedValue* const grad_sinks_;
  bool sinks_known_ = true;  // every row's term of the sinks is a finite number
  EffortTally efforts_;
};

}  // namespace

void CertifyGradients(const RowInputs& inputs, const CertifyOptions& options, WorkQueue* work,
                      Certified* result) {
  Ladder(inputs, options, work, result).Run();
}

}  // namespace attest
