// SPDX-License-Identifier: Apache-2.0
// The keys that a query may see, by the plain implementation: written for itself, so that it shares
// no mistake with the reference.
#pragma once

#include "properties/faults/plain_args.h"

namespace attest {

inline constexpr Index kPlainTile = 2;  // keys, or queries, of the faults that model a tiled kernel

// Keys beyond the last that a faulty implementation visits as well; 0 for right ones.
Index PhantomKeys(const PlainCall& call);

class RowMask {
 public:
  RowMask(const PlainCall& call, const RowIndex& row);

  Index q_length() const { return q_length_; }
  Index kv_length() const { return kv_length_; }
  // For 0 <= j < Tk + PhantomKeys(call).
  bool Allows(Index j) const;

 private:
  Index EndOfKeys() const;
  bool ByMask(Index j) const;
  bool HidesPadding() const;
  Index LeadingTrue() const;
  bool ByBias(Index j) const;
  bool ByCausal(Index j) const;
  bool ByTiles(Index j, Index offset) const;
  bool ByWindow(Index j) const;
  bool ByDocuments(Index j) const;
  bool ByLocalWindow(Index j) const;
  bool InBlockTable(Index j) const;

  const PlainCall& call_;
  const RowIndex row_;
  Index kv_length_;
  Index q_length_;
  bool mask_is_causal_ = false;  // the fault that replaces a mask by the causal rule
};

}  // namespace attest
