// SPDX-License-Identifier: Apache-2.0
// ONNX's Attention 23 and 24 written down from its definition: random calls and their results in
// double, for the tests of how node tests become cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "audit/onnx_file.h"
#include "core/random.h"

namespace attest {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

enum class Mistake {
  kNone,
  kCausalByOne,
  kPastIgnored,
  kLengthsIgnored,
  kShortMaskAllows,
  kHeadsInTurn,
  kCapAfterMask,
};

// A call with everything drawn from a seed, and its results in double.
class PlainCall {
 public:
  PlainCall(std::uint64_t seed, Mistake mistake) : random_(seed, "onnx", "call"), seed_(seed) {
    mistake_ = mistake;
    batch_ = 1 + Draw(2);
    kv_heads_ = 1 + Draw(2);
    q_heads_ = kv_heads_ * (1 + Draw(3));
    q_len_ = 1 + Draw(4);
    new_ = 1 + Draw(5);
    dim_ = 1 + Draw(5);
    v_dim_ = 1 + Draw(4);
    flat_ = Draw(2) == 1;
    causal_ = Draw(2) == 1;
    const Index cache = Draw(3);
    past_ = cache == 1 ? Draw(4) : -1;
    has_lengths_ = cache == 2;
    keys_ = new_ + std::max<Index>(past_, 0);
    softcap_ = Draw(3) == 0 ? 1.5 : 0.0;
    scale_ = Draw(3) == 0 ? 0.375 : 0.0;
    stage_ = Draw(5) - 1;
    model_.nodes = 1;
    model_.op_type = "Attention";
    model_.opset = 23 + Draw(2);
    DrawInputs();
    SetAttributes();
    Compute();
  }

  const OnnxModel& model() const { return model_; }
  const OnnxDataSet& data() const { return data_; }
  bool has_scores() const { return stage_ >= 0 && stage_ < 3; }

 private:
  Index Draw(std::uint64_t bound) { return static_cast<Index>(random_.Below(drawn_++, bound)); }

  Tensor Normal(const std::string& name, const Shape& shape) const {
    const RandomStream stream(seed_, "onnx", name);
    Tensor tensor(DType::kF32, shape);
    for (Index i = 0; i < tensor.size(); ++i) {
      tensor.Set(i, stream.Normal(static_cast<std::uint64_t>(i)));
    }
    return tensor;
  }

  // An input or output of `name` at the node's next place; none without `present`.
  void AddInput(const std::string& name, bool present, Tensor tensor) {
    model_.inputs.push_back(present ? name : "");
    if (present) data_.inputs[name] = std::move(tensor);
  }

  Shape Stored(Index heads, Index length, Index dim) const {
    return flat_ ? Shape{batch_, length, heads * dim} : Shape{batch_, heads, length, dim};
  }
  // Element [b, h, t, d] of a tensor that is stored so.
  Index Place(Index heads, Index length, Index dim, Index b, Index h, Index t, Index d) const {
    return flat_ ? ((b * length + t) * heads + h) * dim + d
                 : ((b * heads + h) * length + t) * dim + d;
  }

  void DrawInputs() {
    AddInput("Q", true, Normal("Q", Stored(q_heads_, q_len_, dim_)));
    AddInput("K", true, Normal("K", Stored(kv_heads_, new_, dim_)));
    AddInput("V", true, Normal("V", Stored(kv_heads_, new_, v_dim_)));
    const Index kind = Draw(3);
    Shape shape{batch_, q_heads_, q_len_, std::max<Index>(1, keys_ - Draw(3))};
    for (std::size_t axis = 0; axis < 3; ++axis) shape[axis] = Draw(3) == 0 ? 1 : shape[axis];
    shape.erase(shape.begin(), shape.begin() + Draw(4));
    Tensor mask(kind == 1 ? DType::kBool : DType::kF32, shape);
    for (Index i = 0; i < mask.size(); ++i) {
      const bool excluded = Draw(3) == 0;
      mask.Set(i, kind == 1 ? (excluded ? 0.0 : 1.0)
                            : (excluded ? -kInfinity : 0.25 * static_cast<double>(Draw(9))));
    }
    AddInput("mask", kind != 0, std::move(mask));
    AddInput("past_key", past_ >= 0,
             Normal("past_key", {batch_, kv_heads_, std::max<Index>(past_, 0), dim_}));
    AddInput("past_value", past_ >= 0,
             Normal("past_value", {batch_, kv_heads_, std::max<Index>(past_, 0), v_dim_}));
    Tensor lengths(DType::kI32, {batch_});
    for (Index b = 0; b < batch_; ++b)
      lengths.Set(b, static_cast<double>(Draw(static_cast<std::uint64_t>(keys_ + 1))));
    AddInput("lengths", has_lengths_, std::move(lengths));
  }

  void SetAttributes() {
    if (causal_) model_.attributes["is_causal"] = std::int64_t{1};
    if (flat_) {
      model_.attributes["q_num_heads"] = q_heads_;
      model_.attributes["kv_num_heads"] = kv_heads_;
    }
    if (softcap_ > 0.0) model_.attributes["softcap"] = softcap_;
    if (scale_ > 0.0) model_.attributes["scale"] = scale_;
    if (stage_ >= 0) model_.attributes["qk_matmul_output_mode"] = stage_;
  }

  // k or v with the past before it.
  double Key(const std::string& name, const std::string& past, Index dim, Index b, Index g, Index j,
             Index d) const {
    const Index before = std::max<Index>(past_, 0);
    if (j < before) return data_.inputs.at(past).At(((b * kv_heads_ + g) * before + j) * dim + d);
    return data_.inputs.at(name).At(Place(kv_heads_, new_, dim, b, g, j - before, d));
  }

  // What is added to a score; -infinity for a key that may not be seen.
  double Added(Index b, Index h, Index i, Index j) const {
    const Index length =
        has_lengths_ ? static_cast<Index>(data_.inputs.at("lengths").At(b)) : keys_;
    Index offset = has_lengths_ ? length - q_len_ : std::max<Index>(past_, 0);
    if (mistake_ == Mistake::kPastIgnored && past_ > 0) offset = 0;
    if (mistake_ == Mistake::kCausalByOne) ++offset;
    if (causal_ && j > i + offset) return -kInfinity;
    if (j >= length && mistake_ != Mistake::kLengthsIgnored) return -kInfinity;
    const auto found = data_.inputs.find("mask");
    if (found == data_.inputs.end()) return 0.0;
    const Shape& shape = found->second.shape();
    if (j >= shape.back()) return mistake_ == Mistake::kShortMaskAllows ? 0.0 : -kInfinity;
    const Index index[] = {b, h, i, j};
    Index at = 0;
    for (std::size_t axis = 0; axis < shape.size(); ++axis) {
      const Index wanted = index[4 - shape.size() + axis];
      at = at * shape[axis] + (shape[axis] == 1 ? 0 : wanted);
    }
    const double value = found->second.At(at);
    if (found->second.dtype() != DType::kBool) return value;
    return value == 0.0 ? -kInfinity : 0.0;
  }

  void ComputeRow(Index b, Index h, Index i, Tensor* y, Tensor* matrix) const {
    const Index g = mistake_ == Mistake::kHeadsInTurn ? h % kv_heads_ : h / (q_heads_ / kv_heads_);
    const double scale = scale_ > 0.0 ? scale_ : 1.0 / std::sqrt(static_cast<double>(dim_));
    const auto n = static_cast<std::size_t>(keys_);
    std::vector<std::vector<double>> stages(4, std::vector<double>(n));
    double sum = 0.0;
    for (std::size_t at = 0; at < n; ++at) {
      const auto j = static_cast<Index>(at);
      double score = 0.0;
      for (Index d = 0; d < dim_; ++d) {
        score += data_.inputs.at("Q").At(Place(q_heads_, q_len_, dim_, b, h, i, d)) *
                 Key("K", "past_key", dim_, b, g, j, d);
      }
      const auto cap = [&](double s) {
        return softcap_ > 0.0 ? softcap_ * std::tanh(s / softcap_) : s;
      };
      stages[0][at] = scale * score;
      stages[1][at] = cap(scale * score);
      stages[2][at] = mistake_ == Mistake::kCapAfterMask ? cap(scale * score + Added(b, h, i, j))
                                                         : stages[1][at] + Added(b, h, i, j);
      stages[3][at] = std::exp(stages[2][at]);
      sum += stages[3][at];
    }
    for (std::size_t at = 0; at < n; ++at) {
      if (sum > 0.0) stages[3][at] /= sum;
      if (stage_ >= 0) {
        matrix->Set(((b * q_heads_ + h) * q_len_ + i) * keys_ + static_cast<Index>(at),
                    stages[static_cast<std::size_t>(stage_)][at]);
      }
    }
    for (Index d = 0; d < v_dim_; ++d) {
      double out = 0.0;
      for (std::size_t at = 0; at < n; ++at) {
        out += stages[3][at] * Key("V", "past_value", v_dim_, b, g, static_cast<Index>(at), d);
      }
      y->Set(Place(q_heads_, q_len_, v_dim_, b, h, i, d), out);
    }
  }

  void Compute() {
    Tensor y(DType::kF32, Stored(q_heads_, q_len_, v_dim_));
    Tensor matrix(DType::kF32, {batch_, q_heads_, q_len_, keys_});
    for (Index b = 0; b < batch_; ++b) {
      for (Index h = 0; h < q_heads_; ++h) {
        for (Index i = 0; i < q_len_; ++i) ComputeRow(b, h, i, &y, &matrix);
      }
    }
    Tensor present_key(DType::kF32, {batch_, kv_heads_, keys_, dim_});
    Index at = 0;
    for (Index b = 0; b < batch_; ++b) {
      for (Index g = 0; g < kv_heads_; ++g) {
        for (Index j = 0; j < keys_; ++j) {
          for (Index d = 0; d < dim_; ++d) {
            present_key.Set(at++, Key("K", "past_key", dim_, b, g, j, d));
          }
        }
      }
    }
    model_.outputs = {"Y", "present_key", "", stage_ >= 0 ? "scores" : ""};
    data_.outputs = {{"Y", y}, {"present_key", present_key}};
    if (stage_ >= 0) data_.outputs["scores"] = matrix;
  }

  RandomStream random_;
  std::uint64_t seed_;
  std::uint64_t drawn_ = 0;
  Mistake mistake_ = Mistake::kNone;
  Index batch_ = 0, q_heads_ = 0, kv_heads_ = 0, q_len_ = 0, new_ = 0, keys_ = 0, dim_ = 0,
        v_dim_ = 0;
  Index past_ = -1;
  Index stage_ = -1;  // -1: no matrix of scores
  bool flat_ = false, causal_ = false, has_lengths_ = false;
  double softcap_ = 0.0, scale_ = 0.0;
  OnnxModel model_;
  OnnxDataSet data_;
};

}  // namespace attest
