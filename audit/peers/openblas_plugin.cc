// SPDX-License-Identifier: Apache-2.0
// Plug-in: textbook attention, two matrix products of OpenBLAS and a softmax of whole rows between
// them. A control: it should conform.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "audit/peers/openblas.h"
#include "audit/peers/peer_call.h"

namespace attest {
namespace {

const StatusOr<OpenBlas>& Library() {
  static const StatusOr<OpenBlas> library = OpenBlas::Load();
  return library;
}

template <class T>
CblasGemm<T>* GemmOf(const OpenBlas& blas) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return blas.sgemm;
  } else {
    return blas.dgemm;
  }
}

// What a row of scores becomes.
template <class T>
class Rows {
 public:
  explicit Rows(const Case& problem)
      : problem_(problem),
        contract_(problem.contract),
        additions_(Additions(problem, DTypeOf<T>::value)),
        slopes_(problem.Find("alibi_slopes")),
        sinks_(problem.Find("sinks")),
        keep_(problem.Find("keep")),
        centers_(problem.Find("local_center")) {}

  struct Result {
    T lse;
    bool empty;  // no key takes part
  };
  // Softmax of `row`, in place.
  Result ToWeights(T* row, Index b, Index h, Index i) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const Dimensions& s = contract_.shape;
    const Index first = ((b * s.q_heads + h) * s.q_len + i) * s.kv_len;
    T largest = sinks_ ? static_cast<T>(sinks_->At(h)) : -kInfinity;
    const T sink = largest;
    bool empty = true;
    for (Index j = 0; j < s.kv_len; ++j) {
      const T added = additions_.data<T>()[first + j];
      if (added == -kInfinity) {
        row[j] = -kInfinity;
        continue;
      }
      empty = false;
      row[j] = Capped(row[j]) + added - Alibi(h, i, j);
      largest = std::max(largest, row[j]);
    }
    if (empty) return {FillEmptyRow(row, sink), true};
    T sum = sink == -kInfinity ? T{0} : std::exp(sink - largest);
    for (Index j = 0; j < s.kv_len; ++j) {
      row[j] = row[j] == -kInfinity ? T{0} : std::exp(row[j] - largest);
      sum += row[j];
    }
    for (Index j = 0; j < s.kv_len; ++j) {
      const bool allowed = additions_.data<T>()[first + j] != -kInfinity;
      row[j] = allowed ? row[j] / sum * Gaussian(b, h, i, j) : T{0};
    }
    return {largest + std::log(sum), false};
  }

  T Kept(T weight, Index b, Index h, Index i, Index j) const {
    if (keep_ == nullptr) return weight;
    if (BroadcastAt(*keep_, b, h, i, j) == 0.0) return T{0};
    return weight / (T{1} - static_cast<T>(contract_.dropout_rate));
  }

 private:
  T Capped(T score) const {
    const T cap = static_cast<T>(contract_.softcap);
    return cap > 0 ? cap * std::tanh(score / cap) : score;
  }

  T Alibi(Index h, Index i, Index j) const {
    const Dimensions& s = contract_.shape;
    const bool given = slopes_ != nullptr && contract_.alibi != attest::Alibi::kNone;
    if (!given && contract_.alibi != attest::Alibi::kDefault) return T{0};
    const T slope = given ? static_cast<T>(slopes_->At(h))
                          : std::exp2(static_cast<T>(DefaultAlibiExponent(h, s.q_heads)));
    return slope * static_cast<T>(std::abs(i + s.kv_len - s.q_len - j));
  }

  T Gaussian(Index b, Index h, Index i, Index j) const {
    if (!contract_.local || !contract_.local->gaussian) return T{1};
    const Dimensions& s = contract_.shape;
    const T distance =
        static_cast<T>(j) - static_cast<T>(centers_->At((b * s.q_heads + h) * s.q_len + i));
    const T sigma = static_cast<T>(contract_.local->half_width) / 2;
    return std::exp(-distance * distance / (2 * sigma * sigma));
  }

  // By the contract's policy.
  T FillEmptyRow(T* row, T sink) const {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const Index n = contract_.shape.kv_len;
    T weight = sink - sink;  // 0, or NaN for a sink that is not finite
    if (sink == -kInfinity) {
      if (contract_.empty_row == EmptyRow::kZero) weight = T{0};
      if (contract_.empty_row == EmptyRow::kUniform) weight = T{1} / static_cast<T>(n);
    }
    std::fill(row, row + n, weight);
    return std::isnan(weight) ? weight : sink;
  }

  const Case& problem_;
  const Contract& contract_;
  const Tensor additions_;
  const Tensor* slopes_;
  const Tensor* sinks_;
  const Tensor* keep_;
  const Tensor* centers_;
};

template <class T>
TensorMap Attention(const Case& problem, const OpenBlas& blas) {
  const Dimensions& s = problem.contract.shape;
  constexpr DType kType = DTypeOf<T>::value;
  const T* q = problem.Find("q")->data<T>();
  const T* k = problem.Find("k")->data<T>();
  const T* v = problem.Find("v")->data<T>();
  Tensor out(kType, {s.batch, s.q_heads, s.q_len, s.v_dim});
  Tensor lse(kType, {s.batch, s.q_heads, s.q_len});
  Tensor weights(kType, {s.batch, s.q_heads, s.q_len, s.kv_len});
  const Rows<T> rows(problem);
  const auto gemm = GemmOf<T>(blas);
  const int queries = static_cast<int>(s.q_len), keys = static_cast<int>(s.kv_len);
  const int qk_dim = static_cast<int>(s.qk_dim), v_dim = static_cast<int>(s.v_dim);
  const T scale = static_cast<T>(ScaleOf(problem.contract));
  std::vector<T> kept(static_cast<std::size_t>(s.q_len * s.kv_len));
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.q_heads; ++h) {
      const Index head = b * s.q_heads + h;
      const Index kv_head = b * s.kv_heads + h / (s.q_heads / s.kv_heads);
      T* p = weights.data<T>() + head * s.q_len * s.kv_len;
      if (keys > 0) {
        gemm(kCblasRowMajor, kCblasNoTranspose, kCblasTranspose, queries, keys, qk_dim, scale,
             q + head * s.q_len * s.qk_dim, qk_dim, k + kv_head * s.kv_len * s.qk_dim, qk_dim, T{0},
             p, keys);
      }
      for (Index i = 0; i < s.q_len; ++i) {
        T* row = p + i * s.kv_len;
        const typename Rows<T>::Result result = rows.ToWeights(row, b, h, i);
        lse.data<T>()[head * s.q_len + i] = result.lse;
        for (Index j = 0; j < s.kv_len; ++j) {
          kept[static_cast<std::size_t>(i * s.kv_len + j)] =
              result.empty ? row[j] : rows.Kept(row[j], b, h, i, j);
        }
      }
      T* o = out.data<T>() + head * s.q_len * s.v_dim;
      if (keys > 0) {
        gemm(kCblasRowMajor, kCblasNoTranspose, kCblasNoTranspose, queries, v_dim, keys, T{1},
             kept.data(), keys, v + kv_head * s.kv_len * s.v_dim, v_dim, T{0}, o, v_dim);
      } else if (s.q_len > 0 && std::isnan(lse.data<T>()[head * s.q_len])) {
        std::fill(o, o + s.q_len * s.v_dim, std::numeric_limits<T>::quiet_NaN());
      }
    }
  }
  return {{"out", std::move(out)}, {"lse", std::move(lse)}, {"weights", std::move(weights)}};
}

}  // namespace

const std::string& PeerInfoText() {
  static const std::string text = InfoText({
      .name = "OpenBLAS, textbook",
      .version = Library().ok() ? Library()->version : "not installed",
      .supports = {{"dtypes", {"f32", "f64"}},
                   {"scores", {"dot"}},
                   {"masks",
                    {"boolean", "bias", "causal_top_left", "causal_bottom_right", "window",
                     "kv_lengths", "q_lengths", "documents", "local"}},
                   {"features",
                    {"gqa", "alibi", "softcap", "sinks", "dropout", "explicit_scale", "v_dim",
                     "out_dtype"}},
                   {"outputs", {"out", "lse", "weights"}}},
      .arithmetic = {{{"profile", "f32"}}},
  });
  return text;
}

StatusOr<TensorMap> PeerAttention(const Case& problem, int threads) {
  const StatusOr<OpenBlas>& library = Library();
  if (!library.ok()) return Internal(library.status().message());
  for (const char* name : {"q", "k", "v"}) {
    if (!IsFinite(*problem.Find(name))) {
      return Unsupported("products of whole matrices let a NaN or infinity reach every row");
    }
  }
  library->set_threads(threads);
  return problem.contract.dtype == DType::kF64 ? Attention<double>(problem, *library)
                                               : Attention<float>(problem, *library);
}

}  // namespace attest
