// SPDX-License-Identifier: Apache-2.0
#include "properties/faults/plain_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/dtype.h"

namespace attest {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr Index kTile = 2;  // of the faults that model a tiled kernel

// One query row while it is computed.
class Row {
 public:
  Row(const PlainInputs& in, bool weights_wanted, Fault fault, Index b, Index h, Index i)
      : in_(in),
        shape_(in.contract->shape),
        weights_wanted_(weights_wanted),
        fault_(fault),
        b_(b),
        h_(h),
        i_(i) {
    const Index groups = shape_.kv_heads;
    g_ = fault == Fault::kGqaTiledHeads ? h % groups : h / (shape_.q_heads / groups);
    kv_length_ = in.kv_lengths != nullptr ? in.kv_lengths[b] : shape_.kv_len;
    q_length_ = in.q_lengths != nullptr ? in.q_lengths[b] : shape_.q_len;
  }

  void Compute(const PlainOutputs& outputs) {
    if (fault_ == Fault::kPaddedQueryRowsGarbage && i_ >= q_length_) return;
    bool any = false;
    scores_.assign(static_cast<std::size_t>(shape_.kv_len), -kInfinity);
    allowed_.assign(scores_.size(), false);
    for (Index j = 0; j < shape_.kv_len; ++j) {
      if (!Allowed(j)) continue;
      allowed_[static_cast<std::size_t>(j)] = any = true;
      scores_[static_cast<std::size_t>(j)] = Score(j);
    }
    if (!any && fault_ != Fault::kFullRowNan && fault_ != Fault::kFullRowMeanOfV) {
      return WriteEmpty(outputs);
    }
    if (!any && fault_ == Fault::kFullRowMeanOfV) {  // the lowest float instead of -infinity
      std::fill(scores_.begin(), scores_.end(), std::numeric_limits<float>::lowest());
      std::fill(allowed_.begin(), allowed_.end(), true);
    }
    Softmax(any || fault_ == Fault::kFullRowMeanOfV);
    Write(outputs);
  }

 private:
  bool Allowed(Index j) const {
    const Contract& contract = *in_.contract;
    if (i_ >= q_length_ || j >= kv_length_) return false;
    if (in_.mask) {
      const bool takes_part = (*in_.mask)(b_, h_, i_, j) != 0;
      if (takes_part == (fault_ == Fault::kMaskPolarityInverted)) return false;
    }
    if (in_.bias && (*in_.bias)(b_, h_, i_, j) == -kInfinity) return false;
    if (contract.causal == Causal::kNone) return true;
    if (fault_ == Fault::kCausalLostWhenWeightsRequested && weights_wanted_) return true;
    Index last = i_;
    if (contract.causal == Causal::kBottomRight && fault_ != Fault::kCausalIgnoresPast) {
      last += kv_length_ - q_length_;
    }
    if (fault_ == Fault::kCausalSeesNext) ++last;
    return j <= last;
  }

  float Score(Index j) const {
    const Scale& scale = in_.contract->scale;
    float factor = scale.rsqrt_dk ? 1.0f / std::sqrt(static_cast<float>(shape_.k_dim))
                                  : static_cast<float>(scale.value);
    if (fault_ == Fault::kScaleMissing) factor = 1.0f;
    float sum = 0.0f;
    for (Index d = 0; d < shape_.qk_dim; ++d) sum += in_.q(b_, h_, i_, d) * in_.k(b_, g_, j, d);
    float score = sum * factor;
    if (in_.bias) score += (*in_.bias)(b_, h_, i_, j);
    return score;
  }

  // Adds one key to the running maximum, sum and unnormalised weights.
  void AddKey(std::size_t j, float score) {
    const float largest = std::max(maximum_, score);
    // std::max hides a NaN score; it must reach the row.
    const float next = std::isnan(score) || std::isnan(maximum_) ? kNaN : largest;
    const float shift = fault_ == Fault::kNoMaxSubtraction ? 0.0f : next;
    const bool first = maximum_ == -kInfinity;
    float correction =
        first || fault_ == Fault::kNoMaxSubtraction ? 1.0f : std::exp(maximum_ - next);
    if (fault_ == Fault::kCorrectionAliased) correction = 1.0f;
    for (float& weight : weights_) weight *= correction;
    sum_ *= correction;
    maximum_ = next;
    // A score of -infinity has weight 0; before any other score the shift is not a number.
    weights_[j] = score == -kInfinity ? 0.0f : std::exp(score - shift);
    sum_ += weights_[j];
  }

  void Softmax(bool any) {
    weights_.assign(scores_.size(), 0.0f);
    for (std::size_t j = 0; j < scores_.size(); ++j) {
      if (allowed_[j]) AddKey(j, scores_[j]);
    }
    const Index tail = shape_.kv_len % kTile;
    if (fault_ == Fault::kZeroFilledTailKeys && tail != 0 && any) {
      // A phantom key of zeros at the end of the last tile: score 0, value 0.
      weights_.push_back(0.0f);
      AddKey(weights_.size() - 1, 0.0f);
      weights_.pop_back();
    }
    if (fault_ == Fault::kSplitCountFromBatch) SumInSplits();
    if (maximum_ == -kInfinity) sum_ = kNaN;  // allowed scores, all -infinity (or the fault)
    for (std::size_t j = 0; j < weights_.size(); ++j) {
      const float p = weights_[j] / sum_;
      weights_[j] = allowed_[j] ? p : (any ? 0.0f : kNaN);
    }
  }

  // The sum of weights in as many parts as the batch leaves threads free.
  void SumInSplits() {
    const Index splits = std::max<Index>(1, 8 / shape_.batch);
    const std::size_t length = weights_.size() / static_cast<std::size_t>(splits) + 1;
    sum_ = 0.0f;
    for (std::size_t first = 0; first < weights_.size(); first += length) {
      float part = 0.0f;
      for (std::size_t j = first; j < std::min(first + length, weights_.size()); ++j) {
        part += weights_[j];
      }
      sum_ += part;
    }
  }

  void Write(const PlainOutputs& outputs) const {
    for (Index c = 0; c < shape_.v_dim; ++c) {
      float sum = 0.0f;
      for (Index j = 0; j < shape_.kv_len; ++j) {
        const auto at = static_cast<std::size_t>(j);
        const bool reads =
            allowed_[at] || fault_ == Fault::kNanInUnusedValueSlot || fault_ == Fault::kFullRowNan;
        if (!reads) continue;
        float p = weights_[at];
        if (fault_ == Fault::kProbsRoundedBeforePv) {
          p = static_cast<float>(ToDouble(RoundToBFloat16(static_cast<double>(p))));
        }
        sum += p * in_.v(b_, g_, j, c);
      }
      outputs.out(b_, h_, i_, c) = sum;
    }
    if (outputs.lse) {
      const float shift = fault_ == Fault::kNoMaxSubtraction ? 0.0f : maximum_;
      (*outputs.lse)(b_, h_, i_) = shift + std::log(sum_);
    }
    if (!outputs.weights) return;
    for (Index j = 0; j < shape_.kv_len; ++j) {
      (*outputs.weights)(b_, h_, i_, j) = weights_[static_cast<std::size_t>(j)];
    }
  }

  void WriteEmpty(const PlainOutputs& outputs) const {
    const EmptyRow policy = in_.contract->empty_row;
    const float fill = policy == EmptyRow::kNan ? kNaN : 0.0f;
    const float uniform =
        policy == EmptyRow::kUniform ? 1.0f / static_cast<float>(shape_.kv_len) : fill;
    for (Index c = 0; c < shape_.v_dim; ++c) {
      float sum = 0.0f;
      for (Index j = 0; j < shape_.kv_len; ++j) sum += in_.v(b_, g_, j, c);
      const bool mean = policy == EmptyRow::kUniform && shape_.kv_len > 0;
      outputs.out(b_, h_, i_, c) = mean ? sum / static_cast<float>(shape_.kv_len) : fill;
    }
    if (outputs.lse) {
      (*outputs.lse)(b_, h_, i_) = policy == EmptyRow::kNan ? kNaN : -kInfinity;
    }
    if (!outputs.weights) return;
    for (Index j = 0; j < shape_.kv_len; ++j) (*outputs.weights)(b_, h_, i_, j) = uniform;
  }

  const PlainInputs& in_;
  const Dimensions& shape_;
  const bool weights_wanted_;
  const Fault fault_;
  const Index b_, h_, i_;
  Index g_ = 0;
  Index kv_length_ = 0;
  Index q_length_ = 0;
  std::vector<float> scores_;
  std::vector<bool> allowed_;
  std::vector<float> weights_;
  float maximum_ = -kInfinity;
  float sum_ = 0.0f;
};

}  // namespace

void PlainAttention(const PlainInputs& in, const PlainOutputs& outputs, Fault fault) {
  const Dimensions& s = in.contract->shape;
  for (Index b = 0; b < s.batch; ++b) {
    for (Index h = 0; h < s.q_heads; ++h) {
      for (Index i = 0; i < s.q_len; ++i) {
        Row(in, outputs.weights.has_value(), fault, b, h, i).Compute(outputs);
      }
    }
  }
}

}  // namespace attest
