// SPDX-License-Identifier: Apache-2.0
#include "optimized/row_tile.h"

#include <cmath>
#include <limits>

namespace attest {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t RowsOfGroup(const AttentionArgs& args) {
  const Index kv_heads = args.k.shape[1];
  return kv_heads == 0 ? 0 : static_cast<std::size_t>(args.q.shape[1] / kv_heads * args.q.shape[2]);
}

// The mean of column c of v over all keys, in double.
double MeanOfColumn(const Input<4>& v, Index batch, Index kv_head, Index c) {
  const Index count = v.shape[2];
  if (count == 0) return 0.0;
  double sum = 0.0;
  for (Index j = 0; j < count; ++j) sum += ReadElement(v.dtype, At(v, batch, kv_head, j, c));
  return sum / static_cast<double>(count);
}

}  // namespace

std::size_t QueryTile::Count(const AttentionArgs& args) {
  return static_cast<std::size_t>(args.q.shape[0] * args.k.shape[1]) *
         CeilDivide(RowsOfGroup(args), kQueryRows);
}

QueryTile::QueryTile(const AttentionArgs& args, std::size_t index) {
  const std::size_t group_rows = RowsOfGroup(args);
  const std::size_t group_tiles = CeilDivide(group_rows, kQueryRows);
  const auto kv_heads = static_cast<std::size_t>(args.k.shape[1]);
  const Index group = args.q.shape[1] / args.k.shape[1];
  const Index q_len = args.q.shape[2];
  batch = static_cast<Index>(index / group_tiles / kv_heads);
  kv_head = static_cast<Index>(index / group_tiles % kv_heads);
  const std::size_t first = index % group_tiles * kQueryRows;
  count = std::min(kQueryRows, group_rows - first);
  std::size_t heads = 0;
  for (std::size_t r = 0; r < count; ++r) {
    QueryRow& row = rows[r];
    row.head = kv_head * group + static_cast<Index>(first + r) / q_len;
    row.i = static_cast<Index>(first + r) % q_len;
    if (r == 0 || row.head != rows[r - 1].head) {
      rules[heads++] = HeadRules(args, batch, row.head);
    }
    row.rules = &rules[heads - 1];
    row.range = row.rules->RangeOf(row.i);
  }
}

KeyRange QueryTile::RangeWithin(Index first, Index last) const {
  KeyRange all{last, first};
  for (std::size_t r = 0; r < count; ++r) {
    const KeyRange& range = rows[r].range;
    const Index begin = std::max(range.begin, first);
    const Index end = std::min(range.end, last);
    if (begin >= end) continue;
    all.begin = std::min(all.begin, begin);
    all.end = std::max(all.end, end);
  }
  return all;
}

void WriteEmptyRow(const AttentionArgs& args, const AttentionOutputs& outputs, Index batch,
                   const QueryRow& row) {
  const bool nan = args.empty_row == EmptyRow::kNan;
  const bool uniform = args.empty_row == EmptyRow::kUniform;
  const Index keys = args.k.shape[2];
  if (outputs.out) {
    const Output<4>& out = *outputs.out;
    const Index kv_head = row.head / (args.q.shape[1] / args.k.shape[1]);
    for (Index c = 0; c < out.shape[3]; ++c) {
      WriteElement(nan       ? kNan
                   : uniform ? MeanOfColumn(args.v, batch, kv_head, c)
                             : 0.0,
                   out.dtype, At(out, batch, row.head, row.i, c));
    }
  }
  if (outputs.lse) {
    WriteElement(nan ? kNan : -kInfinity, outputs.lse->dtype,
                 At(*outputs.lse, batch, row.head, row.i));
  }
  if (outputs.weights) {
    const double weight = nan ? kNan : uniform ? 1.0 / static_cast<double>(keys) : 0.0;
    for (Index j = 0; j < keys; ++j) {
      WriteElement(weight, outputs.weights->dtype, At(*outputs.weights, batch, row.head, row.i, j));
    }
  }
}

template <class T>
void FinishRow(const AttentionOutputs& outputs, Index batch, const QueryRow& row, T inverse,
               double lse, T* out) {
  if (outputs.out) {
    const auto columns = static_cast<std::size_t>(outputs.out->shape[3]);
    const bool nan = std::isnan(lse);
    for (std::size_t c = 0; c < columns; ++c) {
      out[c] = nan ? std::numeric_limits<T>::quiet_NaN() : out[c] * inverse + T{0};  // -0 becomes 0
    }
    WriteRow(out, columns, outputs.out->dtype, At(*outputs.out, batch, row.head, row.i),
             outputs.out->strides[3]);
  }
  if (outputs.lse) {
    WriteElement(lse, outputs.lse->dtype, At(*outputs.lse, batch, row.head, row.i));
  }
}

template void FinishRow(const AttentionOutputs&, Index, const QueryRow&, float, double, float*);
template void FinishRow(const AttentionOutputs&, Index, const QueryRow&, double, double, double*);

}  // namespace attest
