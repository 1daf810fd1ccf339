// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_forward.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/random.h"

namespace attest {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();
template <class T>
constexpr T kNan = std::numeric_limits<T>::quiet_NaN();

constexpr Index kMemoryTile = 4;  // keys whose values are loaded together

template <class T>
T Rounded(T value, DType dtype) {
  return static_cast<T>(RoundToDType(static_cast<double>(value), dtype));
}

}  // namespace

template <class T>
RowIndex PlainForward<T>::At(Index b, Index h, Index i) const {
  const Dimensions& s = call_.shape();
  Index g = h / (s.q_heads / s.kv_heads);
  if (call_.Has(Fault::kGqaTiledHeads)) g = h % s.kv_heads;
  // Groups beyond the last would lie outside the tensor; the last stands for them.
  if (call_.Has(Fault::kGqaWrongDivisor)) g = std::min(h / s.kv_heads, s.kv_heads - 1);
  return {b, h, i, g};
}

template <class T>
PlainRow<T> PlainForward<T>::Compute(Index b, Index h, Index i) {
  PlainRow<T> row;
  row.at = At(b, h, i);
  if (call_.in.sinks.present()) {
    const T sink = static_cast<T>(call_.in.sinks(h));
    if (sink != -kInfinity<T>) row.sink = sink;
  }
  FindKeys(&row);
  const PlainSoftmax<T> softmax(call_, row.sink);
  row.parts = softmax.Split(static_cast<Index>(row.keys.size()));
  if (row.empty) {
    FillEmpty(&row);
    return row;
  }
  for (PlainPart<T>& part : row.parts) softmax.Run(&part, &row.keys);
  row.lse = softmax.Merge(&row.parts);
  ChangeWeights(&row);
  for (PlainPart<T>& part : row.parts) MultiplyByV(&part, row);
  MergeParts(&row);
  return row;
}

template <class T>
void PlainForward<T>::FindKeys(PlainRow<T>* row) {
  const RowMask mask(call_, row->at);
  row->q_length = mask.q_length();
  row->kv_length = mask.kv_length();
  row->keys.resize(static_cast<std::size_t>(call_.shape().kv_len + PhantomKeys(call_)));
  const bool before_the_keys = call_.Has(Control::kBottomRightZeroRows) &&
                               call_.contract->causal == Causal::kBottomRight &&
                               row->at.i + row->kv_length < row->q_length;
  if (before_the_keys) return;  // the loop over keys ends before the first
  PlainScore<T> score(call_, row->at);
  for (std::size_t t = 0; t < row->keys.size(); ++t) {
    PlainKey<T>& key = row->keys[t];
    const auto j = static_cast<Index>(t);
    key.allowed = key.takes_part = mask.Allows(j);
    if (key.allowed) {
      row->empty = false;
      score.Compute(j, &key);
      key.gaussian = Gaussian(row->at, j);
      key.keep = Keep(row->at, j);
    } else if (const std::optional<T> excluded = score.Excluded(j, &key); excluded) {
      key.takes_part = true;
      key.score = *excluded;
    }
  }
  if (call_.Has(Control::kModerateSentinel)) {
    // Far from -1e4 and with a key to see, a row has the weights that exclusion gives.
    const auto near = [](const PlainKey<T>& key) {
      return !key.allowed || std::fabs(key.score) < 3000;
    };
    const bool all_near = std::all_of(row->keys.begin(), row->keys.end(), near);
    if (row->empty || !all_near) call_.state->refused = true;
  }
  if (row->empty && !row->keys.empty()) row->empty = HandlesEmptyRows();
}

// Whether rows without an allowed key are told from others, as they must be.
template <class T>
bool PlainForward<T>::HandlesEmptyRows() const {
  switch (call_.fault) {
    case Fault::kFullRowNan:
    case Fault::kFullRowMeanOfV:
    case Fault::kSentinelBeatsRealScore:
    case Fault::kMaskFillNearZero:
    case Fault::kPlusInfinityFill:
    case Fault::kMaskAfterSoftmax:
    case Fault::kMergeBothEmpty:
      return false;
    case Fault::kFinfoMinOverflowHalf:
      return call_.contract->dtype != DType::kF16;
    case Fault::kSoftcapAfterMask:
      return !(call_.contract->softcap > 0.0);
    case Fault::kGuardOnOnePathOnly:
      return !call_.out.weights.present();
    default:
      return true;
  }
}

template <class T>
void PlainForward<T>::FillEmpty(PlainRow<T>* row) const {
  const Dimensions& s = call_.shape();
  EmptyRow policy = call_.contract->empty_row;
  if (call_.Has(Control::kEmptyRowConvention)) policy = EmptyRow::kUniform;
  row->lse = policy == EmptyRow::kNan ? kNan<T> : -kInfinity<T>;
  if (call_.Has(Fault::kEmptyRowLseZero)) row->lse = 0;
  T fill = policy == EmptyRow::kNan ? kNan<T> : T{0};
  if (row->sink) {
    const bool finite = std::isfinite(*row->sink);
    row->lse = finite ? *row->sink : kNan<T>;
    fill = finite ? T{0} : kNan<T>;
    policy = EmptyRow::kZero;
  }
  row->out.assign(static_cast<std::size_t>(s.v_dim), fill);
  const bool mean = policy == EmptyRow::kUniform && s.kv_len > 0;
  for (std::size_t c = 0; mean && c < row->out.size(); ++c) {
    T sum = 0;
    for (Index j = 0; j < s.kv_len; ++j) {
      sum += static_cast<T>(call_.in.v(row->at.b, row->at.g, j, static_cast<Index>(c)));
    }
    row->out[c] = sum / static_cast<T>(s.kv_len);
  }
  for (PlainKey<T>& key : row->keys) {
    key.takes_part = false;
    key.weight = mean ? T{1} / static_cast<T>(s.kv_len) : policy == EmptyRow::kNan ? fill : T{0};
  }
}

template <class T>
T PlainForward<T>::Gaussian(const RowIndex& at, Index j) const {
  const std::optional<LocalWindow>& local = call_.contract->local;
  if (!local || !local->gaussian) return 1;
  const T center = static_cast<T>(call_.in.local_center(at.b, at.h, at.i));
  const T z = (static_cast<T>(j) - center) / static_cast<T>(local->half_width);
  return std::exp(T{-2} * z * z);
}

template <class T>
T PlainForward<T>::Keep(const RowIndex& at, Index j) const {
  const Dimensions& s = call_.shape();
  if (j >= s.kv_len) return 1;
  const T kept = T{1} / (T{1} - static_cast<T>(call_.contract->dropout_rate));
  if (call_.in.keep.present()) return call_.in.keep(at.b, at.h, at.i, j) != 0.0 ? kept : T{0};
  if (!call_.Has(Fault::kDropoutInInference) || !(call_.contract->dropout_rate > 0.0)) return 1;
  const RandomStream stream(call_.state->calls, "dropout", "keep");
  const Index element = ((at.b * s.q_heads + at.h) * s.q_len + at.i) * s.kv_len + j;
  const double draw = stream.Uniform(static_cast<std::uint64_t>(element));
  return draw < call_.contract->dropout_rate ? T{0} : kept;
}

// What a few implementations do to weights that are right so far.
template <class T>
void PlainForward<T>::ChangeWeights(PlainRow<T>* row) {
  if (call_.Has(Control::kMaskAfterSoftmaxRenormalised)) Renormalise(row);
  if (call_.Has(Fault::kSoftmaxOverQueries)) NormaliseOverQueries(row);
  for (PlainKey<T>& key : row->keys) {
    if (!key.takes_part) continue;
    switch (call_.fault) {
      case Fault::kMaskAfterSoftmax:
        if (!key.allowed) key.weight = -kInfinity<T>;
        break;
      case Fault::kScaleOnProbabilities: {
        const Scale& scale = call_.contract->scale;
        key.weight *= scale.rsqrt_dk ? T{1} / std::sqrt(static_cast<T>(call_.shape().k_dim))
                                     : static_cast<T>(scale.value);
        break;
      }
      case Fault::kSoftmaxOverSingleton:
        key.weight = 1;
        break;
      case Fault::kWeightsOffByOneThousandth:
        key.weight *= static_cast<T>(1.001);
        break;
      default:
        break;
    }
  }
}

// Masks the probabilities and divides by what is left of their sum.
template <class T>
void PlainForward<T>::Renormalise(PlainRow<T>* row) const {
  T kept = row->sink ? std::exp(*row->sink - row->lse) : T{0};
  for (const PlainKey<T>& key : row->keys) kept += key.allowed ? key.weight : T{0};
  // What is masked may exceed the rest by a factor e^20 at most: then no weight underflows early.
  if (!(kept > static_cast<T>(2e-9))) call_.state->refused = true;
  for (PlainKey<T>& key : row->keys) {
    key.weight = key.allowed ? key.weight / kept : T{0};
    key.takes_part = key.allowed;
  }
  row->lse += std::log(kept);
}

// exp(s_ij) / (sum over queries l of exp(s_lj)).
template <class T>
void PlainForward<T>::NormaliseOverQueries(PlainRow<T>* row) {
  std::vector<T> sums(row->keys.size(), T{0});
  for (Index i = 0; i < call_.shape().q_len; ++i) {
    PlainRow<T> other;
    other.at = At(row->at.b, row->at.h, i);
    FindKeys(&other);
    for (std::size_t j = 0; j < sums.size(); ++j) {
      if (!other.keys[j].takes_part || !row->keys[j].takes_part) continue;
      sums[j] += std::exp(other.keys[j].score - row->keys[j].score);
    }
  }
  for (std::size_t j = 0; j < sums.size(); ++j) {
    if (row->keys[j].takes_part) row->keys[j].weight = T{1} / sums[j];
  }
}

// An accumulator of the output after one more term.
template <class T>
T PlainForward<T>::Accumulated(T sum) const {
  if (call_.Has(Fault::kAccumulationInBf16)) return Rounded(sum, DType::kBF16);
  if (call_.Has(Fault::kAccumulationInF16)) return Rounded(sum, DType::kF16);
  return sum;
}

template <class T>
T PlainForward<T>::ValueAt(const RowIndex& at, Index j, Index c) const {
  const Dimensions& s = call_.shape();
  if (j >= s.kv_len) return call_.Has(Fault::kCacheHole) ? T{900} : T{0};  // what memory holds
  if (call_.Has(Fault::kValuesInReverseOrder)) j = s.kv_len - 1 - j;
  if (call_.Has(Fault::kValueWidthFromKey)) {
    // Rows are taken to be as long as those of k; beyond the head's values, 0.
    const Index element = j * s.k_dim + c;
    if (element >= s.kv_len * s.v_dim) return 0;
    j = element / s.v_dim;
    c = element % s.v_dim;
  }
  return static_cast<T>(call_.in.v(at.b, at.g, j, c));
}

template <class T>
void PlainForward<T>::MultiplyByV(PlainPart<T>* part, const PlainRow<T>& row) const {
  const Dimensions& s = call_.shape();
  const bool stale = call_.Has(Fault::kEmptyPartFiniteLse) && part->empty;
  part->out.assign(static_cast<std::size_t>(s.v_dim), stale ? T{9} : T{0});
  if (call_.Has(Fault::kStaleOutput) && row.at.b + row.at.h + row.at.i == 0) {
    const std::vector<double>& before = call_.state->accumulator;
    for (std::size_t c = 0; c < std::min(part->out.size(), before.size()); ++c) {
      part->out[c] = static_cast<T>(before[c]);
    }
  }
  for (Index j = part->first; j < part->last; ++j) {
    const PlainKey<T>& key = row.keys[static_cast<std::size_t>(j)];
    const bool unused = !key.takes_part || (!key.allowed && key.weight == 0);
    // The slots behind the last key that are loaded with it; their weight is 0.
    const bool loaded = call_.Has(Fault::kNanInUnusedValueSlot) && j >= row.kv_length &&
                        j < (row.kv_length + kMemoryTile - 1) / kMemoryTile * kMemoryTile;
    if (unused && !loaded) continue;
    T p = key.weight * key.gaussian * key.keep;
    if (call_.Has(Control::kDropoutWeightsSum))
      p = key.keep == 0 ? T{0} : key.weight * key.gaussian;
    if (call_.Has(Fault::kProbsRoundedBeforePv) && call_.contract->dtype == DType::kF32) {
      p = Rounded(p, DType::kBF16);
    }
    for (Index c = 0; c < s.v_dim; ++c) {
      T& sum = part->out[static_cast<std::size_t>(c)];
      sum = Accumulated(sum + p * ValueAt(row.at, j, c));
    }
  }
  if (!call_.Has(Control::kDropoutWeightsSum) || !call_.in.keep.present()) return;
  const T kept = T{1} / (T{1} - static_cast<T>(call_.contract->dropout_rate));
  for (T& sum : part->out) sum *= kept;
}

template <class T>
void PlainForward<T>::MergeParts(PlainRow<T>* row) const {
  row->out.assign(static_cast<std::size_t>(call_.shape().v_dim), T{0});
  bool any = false;
  for (const PlainPart<T>& part : row->parts) {
    for (std::size_t c = 0; c < row->out.size(); ++c) row->out[c] += part.share * part.out[c];
    for (Index j = part.first; j < part.last; ++j) {
      PlainKey<T>& key = row->keys[static_cast<std::size_t>(j)];
      if (!key.takes_part) continue;
      any = true;
      key.weight *= part.share;
    }
  }
  // Allowed keys, all of score -infinity, and no sink.
  if (any && row->lse == -kInfinity<T> && !call_.Has(Fault::kMaxSeed5e4)) FillNan(row);
}

template <class T>
void PlainForward<T>::FillNan(PlainRow<T>* row) const {
  row->lse = kNan<T>;
  row->out.assign(row->out.size(), kNan<T>);
  for (PlainKey<T>& key : row->keys) {
    if (key.takes_part) key.weight = kNan<T>;
  }
}

template <class T>
void PlainForward<T>::Write(const PlainRow<T>& row) const {
  const Dimensions& s = call_.shape();
  const auto& [b, h, i, g] = row.at;
  if (call_.Has(Fault::kPaddedQueryRowsGarbage) && i >= row.q_length) return;
  if (call_.Has(Fault::kZeroKeysUnwritten) && row.kv_length == 0) return;
  if (call_.out.out.present()) {
    const Index head = call_.Has(Fault::kHeadOutputShifted) ? (h + 1) % s.q_heads : h;
    const Index width = call_.Has(Fault::kValueWidthFromKey) ? std::min(s.k_dim, s.v_dim) : s.v_dim;
    for (Index c = 0; c < width; ++c) {
      call_.out.out.Set(static_cast<double>(row.out[static_cast<std::size_t>(c)]), b, head, i, c);
    }
  }
  if (call_.out.lse.present()) {
    const bool base2 = call_.Has(Control::kLseBaseConvention);
    call_.out.lse.Set(static_cast<double>(row.lse) * (base2 ? std::numbers::log2e : 1.0), b, h, i);
  }
  if (!call_.out.weights.present()) return;
  for (Index j = 0; j < s.kv_len; ++j) {
    const PlainKey<T>& key = row.keys[static_cast<std::size_t>(j)];
    call_.out.weights.Set(static_cast<double>(key.weight * key.gaussian), b, h, i, j);
  }
}

template class PlainForward<float>;
template class PlainForward<double>;

}  // namespace attest
