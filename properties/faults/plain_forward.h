// SPDX-License-Identifier: Apache-2.0
// Rows of the plain forward pass.
#pragma once

#include <optional>
#include <vector>

#include "properties/faults/plain_args.h"
#include "properties/faults/plain_mask.h"
#include "properties/faults/plain_score.h"
#include "properties/faults/plain_softmax.h"

namespace attest {

template <class T>
struct PlainRow {
  RowIndex at;
  Index q_length = 0;
  Index kv_length = 0;
  bool empty = true;              // no allowed key, and handled as such
  std::optional<T> sink;          // -infinity is none
  std::vector<PlainKey<T>> keys;  // all of them, and phantoms
  std::vector<PlainPart<T>> parts;
  T lse = 0;
  std::vector<T> out;  // [Dv]
};

template <class T>
class PlainForward {
 public:
  explicit PlainForward(const PlainCall& call) : call_(call) {}

  PlainRow<T> Compute(Index b, Index h, Index i);
  void Write(const PlainRow<T>& row) const;

 private:
  RowIndex At(Index b, Index h, Index i) const;
  void FindKeys(PlainRow<T>* row);
  bool HandlesEmptyRows() const;
  void FillEmpty(PlainRow<T>* row) const;
  T Gaussian(const RowIndex& at, Index j) const;
  T Keep(const RowIndex& at, Index j) const;
  void ChangeWeights(PlainRow<T>* row);
  void Renormalise(PlainRow<T>* row) const;
  void NormaliseOverQueries(PlainRow<T>* row);
  void MultiplyByV(PlainPart<T>* part, const PlainRow<T>& row) const;
  T ValueAt(const RowIndex& at, Index j, Index c) const;
  T Accumulated(T sum) const;
  void MergeParts(PlainRow<T>* row) const;
  void FillNan(PlainRow<T>* row) const;

  const PlainCall& call_;
};

extern template class PlainForward<float>;
extern template class PlainForward<double>;

}  // namespace attest
