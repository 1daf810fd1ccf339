// SPDX-License-Identifier: Apache-2.0
// The online softmax of one row, key by key, in one part or in several that are merged.
#pragma once

#include <optional>
#include <vector>

#include "properties/faults/plain_args.h"
#include "properties/faults/plain_score.h"

namespace attest {

// Consecutive keys of a row: first, .., last - 1.
template <class T>
struct PlainPart {
  Index first = 0;
  Index last = 0;
  bool owns_sink = false;
  bool empty = true;  // no key takes part, and no sink
  T maximum = 0;
  T sum = 0;  // of exp(s - maximum)
  T lse = 0;
  T share = 0;         // of the part in the row: exp(part's LSE - row's LSE)
  std::vector<T> out;  // [Dv], normalised in the part
};

template <class T>
class PlainSoftmax {
 public:
  PlainSoftmax(const PlainCall& call, std::optional<T> sink) : call_(call), sink_(sink) {}

  // In how many parts a row of `keys` keys is computed: one, unless a fault is about more.
  std::vector<PlainPart<T>> Split(Index keys) const;
  // The weights of the part's keys, normalised in the part, and the part's statistics.
  void Run(PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const;
  // The parts' shares; the LSE of the row.
  T Merge(std::vector<PlainPart<T>>* parts) const;

  // exp(x), by the function of the implementation.
  T Exp(T x) const;

 private:
  Index PartCount() const;
  T Seed() const;
  bool SinkComesLast() const;
  void AddKey(Index j, PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const;
  // Raises the running maximum; what the keys before `end` have summed up is rescaled.
  void Raise(T candidate, Index end, PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const;
  void AddSink(PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const;
  T Summed(T sum) const;
  void Finish(PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const;

  const PlainCall& call_;
  const std::optional<T> sink_;
};

extern template class PlainSoftmax<float>;
extern template class PlainSoftmax<double>;

}  // namespace attest
