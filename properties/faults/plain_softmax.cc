// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace attest {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// An exponential that writes x / ln 2, shifted, into the exponent and mantissa bits of a float.
float BitTrickExp(float x) {
  if (!(x > -87.0f)) return x != x ? x : 0.0f;
  const double bits = (static_cast<double>(x) * std::numbers::log2e + 127.0) * 0x1p23;
  return std::bit_cast<float>(static_cast<std::uint32_t>(std::clamp(bits, 0.0, 2139095040.0)));
}

// Rounded to 12 significant bits: a relative error of 2^-12 at most.
template <class T>
T TwelveBits(T value) {
  int exponent = 0;
  const T mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(mantissa * T{4096}) / T{4096}, exponent);
}

}  // namespace

template <class T>
T PlainSoftmax<T>::Exp(T x) const {
  switch (call_.fault) {
    case Fault::kFastExponential:
      return static_cast<T>(BitTrickExp(static_cast<float>(x)));
    case Fault::kExponentialClampedAtMin:
      // Near the logarithm of the smallest normal number of the type.
      return std::exp(std::max(x, static_cast<T>(sizeof(T) == 4 ? -87.336 : -708.39)));
    case Fault::kExponentialOfTwelveBits:
      return TwelveBits(std::exp(x));
    default:
      return std::exp(x);
  }
}

template <class T>
Index PlainSoftmax<T>::PartCount() const {
  switch (call_.fault) {
    case Fault::kBase2LseMergedNatural:
    case Fault::kMergeBothEmpty:
    case Fault::kEmptyPartFiniteLse:
    case Fault::kMergeRawExponentials:
    case Fault::kPartialLseNotStored:
    case Fault::kEmptyRowLseZero:
    case Fault::kSinkWithPlaceholderMax:
    case Fault::kSplitBackwardPartialStatistics:
      return 2;
    case Fault::kSplitCountFromBatch:
      return std::max<Index>(1, 8 / std::max<Index>(1, call_.shape().batch));
    case Fault::kSplitCountFromThreads:
      return std::max(1, call_.threads);
    default:
      return 1;
  }
}

template <class T>
std::vector<PlainPart<T>> PlainSoftmax<T>::Split(Index keys) const {
  const Index count = PartCount();
  std::vector<PlainPart<T>> parts(static_cast<std::size_t>(count));
  const Index length = (keys + count - 1) / count;
  for (Index p = 0; p < count; ++p) {
    PlainPart<T>& part = parts[static_cast<std::size_t>(p)];
    part.first = std::min(keys, p * length);
    part.last = std::min(keys, part.first + length);
    part.owns_sink = p == 0;
  }
  return parts;
}

// The value from which the running maximum starts.
template <class T>
T PlainSoftmax<T>::Seed() const {
  switch (call_.fault) {
    case Fault::kNoMaxSubtraction:
      return 0;
    case Fault::kConstantShift:
      return 10;
    case Fault::kMaxSeedSmallestPositive:
      return std::numeric_limits<T>::min();
    case Fault::kMaxSeed5e4:
      return static_cast<T>(-5e4);
    case Fault::kSinkWithPlaceholderMax:
      return sink_ ? static_cast<T>(-1e5) : -kInfinity<T>;
    default:
      return -kInfinity<T>;
  }
}

// Whether the sink joins after the keys; else it is the first term.
template <class T>
bool PlainSoftmax<T>::SinkComesLast() const {
  return call_.Has(Fault::kSinkWithPlaceholderMax) || call_.Has(Fault::kPlusOneWithoutShift) ||
         call_.Has(Control::kDenominatorOnlySink);
}

template <class T>
void PlainSoftmax<T>::Run(PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const {
  const bool sink = part->owns_sink && sink_.has_value();
  part->maximum = Seed();
  if (sink && !SinkComesLast()) AddSink(part, keys);
  for (Index j = part->first; j < part->last; ++j) {
    if ((*keys)[static_cast<std::size_t>(j)].takes_part) {
      AddKey(j, part, keys);
    } else if (call_.Has(Fault::kMaskedTilePoisonsMax) && part->maximum == -kInfinity<T>) {
      part->maximum = 0;  // the shift that keeps a tile without keys from NaN, kept for the others
    }
  }
  if (sink && SinkComesLast()) AddSink(part, keys);
  Finish(part, keys);
}

template <class T>
void PlainSoftmax<T>::AddKey(Index j, PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const {
  PlainKey<T>& key = (*keys)[static_cast<std::size_t>(j)];
  part->empty = false;
  if (key.score == -kInfinity<T>) return;  // weight 0; nothing to shift by
  Raise(key.score, j, part, keys);
  key.weight = Exp(key.score - part->maximum);
  // Two chunks that overlap by the key in the middle.
  if (call_.Has(Fault::kKeyCountedTwice) && j == call_.shape().kv_len / 2) key.weight *= 2;
  part->sum = Summed(part->sum + key.weight);
}

template <class T>
void PlainSoftmax<T>::AddSink(PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const {
  part->empty = false;
  if (call_.Has(Fault::kPlusOneWithoutShift)) {
    part->sum += Exp(*sink_);
    return;
  }
  if (!call_.Has(Fault::kSinkWithPlaceholderMax)) Raise(*sink_, part->last, part, keys);
  T term = Exp(*sink_ - part->maximum);
  if (call_.Has(Fault::kSinkInOtherUnits)) term /= 256;  // the keys' terms carry a factor 2^8
  part->sum = Summed(part->sum + term);
}

template <class T>
void PlainSoftmax<T>::Raise(T candidate, Index end, PlainPart<T>* part,
                            std::vector<PlainKey<T>>* keys) const {
  if (call_.Has(Fault::kNoMaxSubtraction) || call_.Has(Fault::kConstantShift)) return;
  const T before = part->maximum;
  if (candidate <= before || std::isnan(before)) return;  // a NaN candidate does raise it
  part->maximum = candidate;
  const T old = call_.Has(Fault::kCorrectionAliased) ? part->maximum : before;
  const T correction = Exp(old - part->maximum);
  part->sum *= correction;
  if (call_.Has(Fault::kAccumulatorNotRescaled)) return;
  for (Index j = part->first; j < end; ++j) {
    PlainKey<T>& key = (*keys)[static_cast<std::size_t>(j)];
    if (key.takes_part) key.weight *= correction;  // which may be NaN
  }
}

// A denominator after one more term: in the arithmetic of the contract, but for faults.
template <class T>
T PlainSoftmax<T>::Summed(T sum) const {
  const bool half = call_.Has(Fault::kHalfDenominator) && call_.contract->dtype == DType::kF16;
  if (half) return static_cast<T>(RoundToDType(static_cast<double>(sum), DType::kF16));
  if (call_.Has(Fault::kDenominatorInBf16)) {
    return static_cast<T>(RoundToDType(static_cast<double>(sum), DType::kBF16));
  }
  return sum;
}

template <class T>
void PlainSoftmax<T>::Finish(PlainPart<T>* part, std::vector<PlainKey<T>>* keys) const {
  // Without a score above -infinity there is nothing to divide by, and every weight is 0.
  if (part->sum != 0 || call_.Has(Fault::kMaxSeedSmallestPositive)) {
    for (Index j = part->first; j < part->last; ++j) {
      PlainKey<T>& key = (*keys)[static_cast<std::size_t>(j)];
      if (key.takes_part) key.weight /= part->sum;
    }
  }
  part->lse = part->maximum + std::log(part->sum);
  switch (call_.fault) {
    case Fault::kLseWithoutMaximum:
      part->lse = std::log(part->sum);
      break;
    case Fault::kBase2LseMergedNatural:
      part->lse = part->maximum * std::numbers::log2e_v<T> + std::log2(part->sum);
      break;
    case Fault::kPartialLseNotStored:  // where the caller has no place for it; the scratch holds 0
      if (!call_.out.lse.present()) part->lse = 0;
      break;
    case Fault::kEmptyPartFiniteLse:
    case Fault::kEmptyRowLseZero:
      if (part->empty) part->lse = 0;
      break;
    default:
      break;
  }
}

template <class T>
T PlainSoftmax<T>::Merge(std::vector<PlainPart<T>>* parts) const {
  T largest = -kInfinity<T>;
  for (const PlainPart<T>& part : *parts) {
    if (!(part.lse <= largest) && !std::isnan(largest)) largest = part.lse;
  }
  if (largest == -kInfinity<T> && !call_.Has(Fault::kMergeBothEmpty)) return largest;
  if (call_.Has(Fault::kMergeRawExponentials)) largest = 0;
  T total = 0;
  for (PlainPart<T>& part : *parts) {
    part.share = std::exp(part.lse - largest);
    total += part.share;
  }
  for (PlainPart<T>& part : *parts) part.share /= total;
  return largest + std::log(total);
}

template class PlainSoftmax<float>;
template class PlainSoftmax<double>;

}  // namespace attest
