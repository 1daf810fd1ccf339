// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_mask.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace attest {
namespace {

// |key - center| <= half_width of real numbers: where the rounded difference equals the half width,
// what rounding took away from it decides.
bool IsWithin(double key, double center, double half_width) {
  const double difference = key - center;
  if (std::fabs(difference) != half_width) return std::fabs(difference) < half_width;
  const double center_part = key - difference;  // TwoDiff (Knuth)
  const double lost = (key - (difference + center_part)) + (center_part - center);
  return difference < 0.0 ? lost >= 0.0 : lost <= 0.0;
}

Index TilesOf(Index keys) { return (keys + kPlainTile - 1) / kPlainTile; }

}  // namespace

Index PhantomKeys(const PlainCall& call) {
  const Index keys = call.shape().kv_len;
  switch (call.fault) {
    case Fault::kZeroFilledTailKeys:
      return keys % kPlainTile;
    case Fault::kTailGuardNeedsMask:
      return call.in.mask.present() ? 0 : keys % kPlainTile;
    case Fault::kCacheHole:  // between the keys of the past and that of a decoding step
      return call.shape().q_len == 1 && keys > 1 ? 1 : 0;
    default:
      return 0;
  }
}

RowMask::RowMask(const PlainCall& call, const RowIndex& row) : call_(call), row_(row) {
  const PlainInputs& in = call.in;
  kv_length_ =
      in.kv_lengths.present() ? static_cast<Index>(in.kv_lengths(row.b)) : call.shape().kv_len;
  q_length_ = in.q_lengths.present() ? static_cast<Index>(in.q_lengths(row.b)) : call.shape().q_len;
  mask_is_causal_ =
      call.Has(Fault::kMaskDroppedAsRedundant) && in.mask.present() && !HidesPadding();
}

bool RowMask::Allows(Index j) const {
  const Index keys = call_.shape().kv_len;
  if (call_.Has(Fault::kCacheHole) && j == keys) return Allows(keys - 1);
  if (row_.i >= q_length_ || j >= EndOfKeys()) return false;
  if (!ByCausal(j) || !ByWindow(j) || !ByLocalWindow(j)) return false;
  if (j >= keys) return true;  // there is no mask, bias or document beyond the last key
  return ByMask(j) && ByBias(j) && ByDocuments(j) && InBlockTable(j);
}

Index RowMask::EndOfKeys() const {
  const Index keys = call_.shape().kv_len;
  const bool full = kv_length_ == keys;
  if (call_.Has(Fault::kAdditivePadsAttended) && call_.contract->score == ScoreKind::kAdditive) {
    return keys;
  }
  if (call_.Has(Fault::kTailOfOne) && kv_length_ % kPlainTile == 1) return kv_length_ - 1;
  if (call_.Has(Fault::kLastKeyDropped)) return kv_length_ - 1;
  return full ? keys + PhantomKeys(call_) : kv_length_;
}

bool RowMask::ByMask(Index j) const {
  const PlainTensor& mask = call_.in.mask;
  if (!mask.present() || mask_is_causal_) return true;
  switch (call_.fault) {
    case Fault::kExplicitMaskIgnored:
    case Fault::kBoolMaskAddedAsNumber:  // in the scores
    case Fault::kMaskMultipliesScores:   // likewise
      return true;
    case Fault::kMaskPolarityInverted:
      return mask(row_.b, row_.h, row_.i, j) == 0.0;
    case Fault::kHoleyMaskAsLength:
      return j < LeadingTrue();
    case Fault::kPaddingOnQueryAxis:
      if (mask.shape()[2] != 1) break;  // not a mask of padded keys
      return row_.i < mask.shape()[3] && mask(row_.b, row_.h, 0, row_.i) != 0.0;
    case Fault::kFirstRowOfChunkMask:
      return mask(row_.b, row_.h, row_.i / kPlainTile * kPlainTile, j) != 0.0;
    default:
      break;
  }
  return mask(row_.b, row_.h, row_.i, j) != 0.0;
}

// Whether some key is hidden from every query.
bool RowMask::HidesPadding() const {
  const Dimensions& s = call_.shape();
  for (Index j = 0; j < s.kv_len; ++j) {
    bool seen = false;
    for (Index i = 0; i < s.q_len && !seen; ++i) {
      seen = call_.in.mask(row_.b, row_.h, i, j) != 0.0;
    }
    if (!seen) return true;
  }
  return false;
}

Index RowMask::LeadingTrue() const {
  Index length = 0;
  while (length < call_.shape().kv_len && call_.in.mask(row_.b, row_.h, row_.i, length) != 0.0) {
    ++length;
  }
  return length;
}

bool RowMask::ByBias(Index j) const {
  if (!call_.in.bias.present()) return true;
  const double bias = call_.in.bias(row_.b, row_.h, row_.i, j);
  if (call_.Has(Fault::kFloatBiasThresholded)) return bias == 0.0;
  return bias != -std::numeric_limits<double>::infinity();
}

bool RowMask::ByCausal(Index j) const {
  if (mask_is_causal_ && j > row_.i) return false;
  Causal causal = call_.contract->causal;
  if (causal == Causal::kNone && call_.Has(Fault::kCausalAlwaysOn)) causal = Causal::kTopLeft;
  if (causal == Causal::kNone) return true;
  if (call_.Has(Fault::kCausalLostWhenWeightsRequested) && call_.out.weights.present()) return true;
  if (call_.Has(Fault::kCausalNeedsAMask) && !call_.in.mask.present()) return true;

  bool bottom_right = causal == Causal::kBottomRight;
  if (call_.Has(Fault::kCausalIgnoresPast)) bottom_right = false;
  if (call_.Has(Fault::kCausalWrongCorner)) bottom_right = true;
  if (call_.Has(Control::kCausalCornerConvention)) bottom_right = !bottom_right;
  const Index offset = bottom_right ? kv_length_ - q_length_ : 0;
  if (call_.Has(Fault::kDiagonalTileOnly) || call_.Has(Fault::kCausalLoopBoundShort)) {
    return ByTiles(j, offset);
  }
  Index last = row_.i + offset;
  if (call_.Has(Fault::kCausalSeesNext)) ++last;
  if (call_.Has(Fault::kCausalDropsSelf)) --last;
  return j <= last;
}

// The causal rule of kernels that take queries by tiles.
bool RowMask::ByTiles(Index j, Index offset) const {
  const Index tile = row_.i / kPlainTile;
  if (call_.Has(Fault::kCausalLoopBoundShort)) {
    // Keys one by one, but no more than the first query of the tile may see.
    return j <= row_.i + offset && j <= tile * kPlainTile + offset;
  }
  const Index last_query = std::min((tile + 1) * kPlainTile, q_length_) - 1;
  if (j / kPlainTile * kPlainTile > last_query + offset) return false;
  // The tile on the diagonal is the one with the same number only where the offset is 0.
  return j / kPlainTile == tile ? j <= row_.i + offset : true;
}

bool RowMask::ByWindow(Index j) const {
  const Contract& contract = *call_.contract;
  Window window = contract.window;
  const bool lengths = call_.in.kv_lengths.present() || call_.in.q_lengths.present();
  const bool masked = call_.in.mask.present() || contract.causal != Causal::kNone || lengths;
  if (call_.Has(Fault::kWindowNeedsAMask) && !masked) return true;
  if (call_.Has(Fault::kWindowNegativeMeansAll) && window.left > 0) window.left = -window.left;
  if (call_.Has(Fault::kWindowFutureLeak) && contract.causal == Causal::kNone) window.right = -1;
  if (call_.Has(Fault::kWindowPlusOne) && window.left >= 0) ++window.left;

  Index offset = kv_length_ - q_length_;
  if (call_.Has(Fault::kWindowFromPaddedEnd)) offset = call_.shape().kv_len - call_.shape().q_len;
  if (contract.causal == Causal::kTopLeft) offset = 0;
  const Index diagonal = row_.i + offset;
  if (call_.Has(Control::kWindowAtDecode)) {
    // The first key as a bound of the loop over keys.
    const Index first = window.left < 0 ? 0 : std::max<Index>(0, diagonal - window.left);
    return j >= first && (window.right < 0 || j <= diagonal + window.right);
  }
  if (window.left >= 0 && diagonal - j > window.left) return false;
  return window.right < 0 || j - diagonal <= window.right;
}

bool RowMask::ByDocuments(Index j) const {
  if (!call_.in.q_documents.present()) return true;
  return call_.in.q_documents(row_.b, row_.i) == call_.in.kv_documents(row_.b, j);
}

bool RowMask::ByLocalWindow(Index j) const {
  const Contract& contract = *call_.contract;
  if (!contract.local) return true;
  return IsWithin(static_cast<double>(j), call_.in.local_center(row_.b, row_.h, row_.i),
                  contract.local->half_width);
}

// A table of key tiles that was laid out for keys rounded up to a multiple of 4, and is read as if
// it had been laid out for Tk keys. An entry that was never made means that there is no tile.
bool RowMask::InBlockTable(Index j) const {
  if (!call_.Has(Fault::kLaterBatchesEmpty)) return true;
  const Index keys = call_.shape().kv_len;
  const Index tiles = TilesOf(keys);
  const Index laid_out = TilesOf((keys + 3) / 4 * 4);
  const Index entry = row_.b * tiles + j / kPlainTile;
  return entry % laid_out < tiles;
}

}  // namespace attest
