// SPDX-License-Identifier: Apache-2.0
// What the row kernels work on: up to 16 rows of queries that share a key/value head, the rows of k
// and v as numbers of the accumulation type, and how a finished row is written. Private to
// optimized/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "optimized/attention.h"
#include "optimized/execution.h"
#include "optimized/forward_task.h"
#include "optimized/head_rules.h"
#include "optimized/rows.h"

namespace attest {

// Keys that are widened, and multiplied with all rows of a tile, at a time; divides kKeyBlock.
inline constexpr std::size_t kKeyGroup = 32;
// Rows of queries that share a pass over the keys.
inline constexpr std::size_t kQueryRows = 16;
// Rows in scratch are padded to a multiple of this many bytes: at least a vector of any target.
inline constexpr std::size_t kRowUnit = 64;

inline constexpr std::size_t CeilDivide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

// `count` numbers, padded.
template <class T>
constexpr std::size_t Padded(std::size_t count) {
  constexpr std::size_t kUnit = kRowUnit / sizeof(T);
  return CeilDivide(count, kUnit) * kUnit;
}

// Memory that will be needed soon: kKeyGroup rows of `columns` numbers.
template <class T>
struct Ahead {
  const T* rows = nullptr;  // null: nothing
  std::ptrdiff_t step = 0;
  std::size_t columns = 0;
};

// The rows of k or v of one head. Those that are read in place are dense and have only whole units.
template <class T>
class RowSource {
 public:
  RowSource(const Input<4>& tensor, Index batch, Index head)
      : data_(static_cast<const std::byte*>(At(tensor, batch, head))),
        dtype_(tensor.dtype),
        row_stride_(tensor.strides[2]),
        column_stride_(tensor.strides[3]),
        row_bytes_(tensor.strides[2] * static_cast<Index>(SizeOf(tensor.dtype))),
        count_(tensor.shape[2]),
        columns_(static_cast<std::size_t>(tensor.shape[3])),
        in_place_(tensor.dtype == DTypeOf<T>::value && tensor.strides[3] == 1 &&
                  Padded<T>(columns_) == columns_) {}

  std::size_t columns() const { return columns_; }

  DType dtype() const { return dtype_; }
  bool in_place() const { return in_place_; }
  Index row_stride() const { return row_stride_; }
  Index column_stride() const { return column_stride_; }
  bool Has(Index j) const { return j < count_; }
  const void* Row(Index j) const { return data_ + j * row_bytes_; }

  // kKeyGroup rows that will be read in place; nothing where they are not, or do not exist.
  Ahead<T> Next(Index first) const {
    if (!in_place_ || first + static_cast<Index>(kKeyGroup) > count_) return {};
    return {static_cast<const T*>(Row(first)), row_stride_, columns_};
  }

 private:
  const std::byte* data_;
  DType dtype_;
  Index row_stride_, column_stride_;
  Index row_bytes_;
  Index count_;
  std::size_t columns_;
  bool in_place_;
};

// The group of rows that is needed next.
template <class T>
struct NextRows {
  const RowSource<T>* source;
  Index first;
};

// One row of queries.
struct QueryRow {
  Index head = 0;
  Index i = 0;
  const HeadRules* rules = nullptr;
  KeyRange range;
};

// Rows of the heads that share key/value head `kv_head` of batch entry `batch`: query i of head h
// is row (h - first head) Tq + i; tile t has rows 16 t, ..., 16 t + 15.
struct QueryTile {
  // The number of tiles of a call, and tile `index` of them.
  static std::size_t Count(const AttentionArgs& args);
  QueryTile(const AttentionArgs& args, std::size_t index);
  QueryTile(const QueryTile&) = delete;
  QueryTile& operator=(const QueryTile&) = delete;

  // The keys of [first, last) that some row may look at.
  KeyRange RangeWithin(Index first, Index last) const;

  Index batch = 0;
  Index kv_head = 0;
  std::size_t count = 0;  // of rows
  QueryRow rows[kQueryRows];
  HeadRules rules[kQueryRows];  // of the heads of the rows
};

// Row `row` of a tile by the policy for rows without allowed keys: out, lse and weights.
void WriteEmptyRow(const AttentionArgs& args, const AttentionOutputs& outputs, Index batch,
                   const QueryRow& row);

// out, Dv numbers times `inverse`, which are overwritten, and lse. A NaN as `lse` makes a NaN row.
template <class T>
void FinishRow(const AttentionOutputs& outputs, Index batch, const QueryRow& row, T inverse,
               double lse, T* out);

}  // namespace attest
