// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_score.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace attest {
namespace {

template <class T>
T Rounded(T value, DType dtype) {
  return static_cast<T>(RoundToDType(static_cast<double>(value), dtype));
}

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

}  // namespace

template <class T>
PlainScore<T>::PlainScore(const PlainCall& call, const RowIndex& row)
    : call_(call), row_(row), scale_(ScaleOf()) {
  const Dimensions& s = call.shape();
  for (Index d = 0; d < s.qk_dim; ++d) {
    q_.push_back(static_cast<T>(call.in.q(row.b, row.h, row.i, d)));
  }
  k_.resize(static_cast<std::size_t>(s.k_dim));
  if (call.contract->score == ScoreKind::kAdditive) {
    hidden_.resize(static_cast<std::size_t>(call.in.w_q.shape()[0]));
  }
}

template <class T>
T PlainScore<T>::ScaleOf() const {
  const Dimensions& s = call_.shape();
  const Scale& scale = call_.contract->scale;
  Index width = s.k_dim;
  if (call_.Has(Fault::kScaleFullModelDim)) width *= s.q_heads;
  if (call_.Has(Fault::kScaleFromPaddedDim)) width = (width + 3) / 4 * 4;
  const T right =
      scale.rsqrt_dk ? T{1} / std::sqrt(static_cast<T>(width)) : static_cast<T>(scale.value);
  switch (call_.fault) {
    case Fault::kScaleMissing:
    case Fault::kScaleOnProbabilities:
      return 1;
    case Fault::kScaleInverted:
      return T{1} / right;
    case Fault::kScaleOffByOnePercent:
      return right * static_cast<T>(1.01);
    default:
      return right;
  }
}

template <class T>
const std::vector<T>& PlainScore<T>::Key(Index j) {
  const bool phantom = j >= call_.shape().kv_len;
  for (std::size_t d = 0; d < k_.size(); ++d) {
    k_[d] = phantom ? T{0} : static_cast<T>(call_.in.k(row_.b, row_.g, j, static_cast<Index>(d)));
  }
  return k_;
}

template <class T>
const std::vector<T>& PlainScore<T>::Hidden(Index j) {
  const std::vector<T>& k = Key(j);
  for (std::size_t a = 0; a < hidden_.size(); ++a) {
    const auto unit = static_cast<Index>(a);
    T sum = call_.in.b.present() ? static_cast<T>(call_.in.b(unit)) : T{0};
    for (std::size_t d = 0; d < q_.size(); ++d) {
      sum += static_cast<T>(call_.in.w_q(unit, static_cast<Index>(d))) * q_[d];
    }
    for (std::size_t d = 0; d < k.size(); ++d) {
      sum += static_cast<T>(call_.in.w_k(unit, static_cast<Index>(d))) * k[d];
    }
    hidden_[a] = std::tanh(sum);
  }
  return hidden_;
}

// The score without its scale.
template <class T>
T PlainScore<T>::Raw(Index j) {
  T sum = 0;
  if (call_.contract->score == ScoreKind::kAdditive) {
    const std::vector<T>& hidden = Hidden(j);
    for (std::size_t a = 0; a < hidden.size(); ++a) {
      sum += static_cast<T>(call_.in.v_a(static_cast<Index>(a))) * hidden[a];
    }
    return sum;
  }
  const std::vector<T>& k = Key(j);
  if (call_.contract->score == ScoreKind::kGeneral) {
    for (std::size_t a = 0; a < q_.size(); ++a) {
      T projected = 0;
      for (std::size_t d = 0; d < k.size(); ++d) {
        projected +=
            static_cast<T>(call_.in.w(static_cast<Index>(a), static_cast<Index>(d))) * k[d];
      }
      sum += q_[a] * projected;
    }
    return sum;
  }
  if (call_.Has(Control::kScaleSplitOverQAndK)) {
    const T root = std::sqrt(std::fabs(scale_));
    for (std::size_t d = 0; d < k.size(); ++d) {
      sum += q_[d] * (scale_ < 0 ? -root : root) * (k[d] * root);
    }
    return sum;
  }
  const std::size_t width =
      call_.Has(Fault::kHeadDimFixed) ? std::min<std::size_t>(k.size(), 4) : k.size();
  for (std::size_t d = 0; d < width; ++d) sum += q_[d] * k[d];
  return sum;
}

template <class T>
void PlainScore<T>::Compute(Index j, PlainKey<T>* key) {
  T score = Raw(j);
  if (call_.Has(Fault::kHalfScoresBeforeScale) && call_.contract->dtype == DType::kF16) {
    score = Rounded(score, DType::kF16);
  }
  const bool scaled =
      call_.Has(Control::kScaleSplitOverQAndK) && call_.contract->score == ScoreKind::kDot;
  if (call_.Has(Fault::kSoftcapBeforeScale)) {
    score = Capped(score, key) * scale_;
  } else {
    score = Capped(scaled ? score : score * scale_, key);
  }
  if (j < call_.shape().kv_len) score += Bias(j);
  score += AlibiBias(j);
  if (call_.Has(Fault::kMaskMultipliesScores) && call_.in.mask.present() &&
      j < call_.shape().kv_len) {
    score *= static_cast<T>(call_.in.mask(row_.b, row_.h, row_.i, j));
  }
  if (call_.Has(Control::kRowConstantShift)) score += T{1};
  if (call_.Has(Fault::kFinfoMinOverflowHalf) && call_.contract->dtype == DType::kF16) {
    score = Rounded(score, DType::kF16);
  }
  key->score = score;
}

template <class T>
T PlainScore<T>::Capped(T score, PlainKey<T>* key) const {
  const T cap = static_cast<T>(call_.contract->softcap);
  if (!(cap > 0)) return score;
  key->cap_tanh = std::tanh(score / cap);
  if (call_.Has(Fault::kSoftcapWrongFactor)) return score * key->cap_tanh;
  if (call_.Has(Fault::kTanhByExponentials)) {
    const T grown = std::exp(score / cap);
    const T shrunk = std::exp(-score / cap);
    key->cap_tanh = (grown - shrunk) / (grown + shrunk);
  }
  return cap * key->cap_tanh;
}

// What tensors add to a score, and what faulty readings of a boolean mask do to it.
template <class T>
T PlainScore<T>::Bias(Index j) const {
  T sum = 0;
  const PlainInputs& in = call_.in;
  if (in.bias.present() && !call_.Has(Fault::kFloatBiasThresholded)) {
    sum = static_cast<T>(in.bias(row_.b, row_.h, row_.i, j));
    if (call_.Has(Fault::kBiasScaledWithScores) && in.mask.present()) sum *= scale_;
  }
  if (!in.mask.present()) return sum;
  const T mask = static_cast<T>(in.mask(row_.b, row_.h, row_.i, j));
  if (call_.Has(Fault::kBoolMaskAddedAsNumber)) sum += mask;
  if (call_.Has(Fault::kMaskViaInfProduct)) sum += (T{1} - mask) * -kInfinity<T>;
  return sum;
}

template <class T>
T PlainScore<T>::AlibiBias(Index j) const {
  const Dimensions& s = call_.shape();
  const Alibi alibi = call_.contract->alibi;
  const bool given = call_.in.alibi_slopes.present();
  if (alibi == Alibi::kNone || (alibi != Alibi::kDefault && !given)) {
    // The fault multiplies positions that nobody wrote by a slope of 0.
    return call_.Has(Fault::kZeroSlopeTimesNan) ? T{0} * std::numeric_limits<T>::quiet_NaN() : T{0};
  }
  if (call_.Has(Fault::kAlibiLostInDecode) && s.q_len == 1) return 0;
  if (call_.Has(Control::kAlibiByColumn)) return Slope() * static_cast<T>(j);
  const Index from = row_.i + s.kv_len - s.q_len;
  Index distance = from > j ? from - j : j - from;
  if (call_.Has(Control::kAlibiUniformOffset)) ++distance;
  const T bias = Slope() * static_cast<T>(distance);
  return call_.Has(Fault::kAlibiSign) ? bias : -bias;
}

template <class T>
T PlainScore<T>::Slope() const {
  if (call_.in.alibi_slopes.present()) return static_cast<T>(call_.in.alibi_slopes(row_.h));
  const Index heads = call_.shape().q_heads;
  double exponent = DefaultAlibiExponent(row_.h, heads);
  if (call_.Has(Fault::kAlibiSlopeExponent)) {
    exponent += 8.0 / static_cast<double>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  }
  if (call_.Has(Control::kSlopeTableConvention)) {
    // The other table in use: the same formula for any number of heads.
    exponent = -8.0 * static_cast<double>(row_.h + 1) / static_cast<double>(heads);
  }
  return static_cast<T>(std::exp2(exponent));
}

template <class T>
std::optional<T> PlainScore<T>::Excluded(Index j, PlainKey<T>* key) {
  if (j >= call_.shape().kv_len) return std::nullopt;
  const auto score = [&] {
    Compute(j, key);
    return key->score;
  };
  if (call_.Has(Control::kModerateSentinel)) return static_cast<T>(-1e4);
  if (call_.Has(Control::kMaskAfterSoftmaxRenormalised)) return score();
  switch (call_.fault) {
    case Fault::kFullRowNan:
    case Fault::kGuardOnOnePathOnly:
      return -kInfinity<T>;
    case Fault::kFullRowMeanOfV:
      return std::numeric_limits<T>::lowest();
    case Fault::kFinfoMinOverflowHalf:
      if (call_.contract->dtype != DType::kF16) return std::nullopt;
      return Rounded(score() + static_cast<T>(-65504.0), DType::kF16);
    case Fault::kSentinelBeatsRealScore:
      return static_cast<T>(-1e4);
    case Fault::kMaskFillNearZero:
      return static_cast<T>(1e-9);
    case Fault::kPlusInfinityFill:
      return kInfinity<T>;
    case Fault::kMaskAfterSoftmax:
      return score();
    case Fault::kSoftcapAfterMask:
      if (!(call_.contract->softcap > 0.0)) return std::nullopt;
      return static_cast<T>(-call_.contract->softcap);
    case Fault::kNanInMaskedKey:
      return score() + -kInfinity<T>;
    default:
      return std::nullopt;
  }
}

template class PlainScore<float>;
template class PlainScore<double>;

}  // namespace attest
