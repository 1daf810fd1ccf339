// SPDX-License-Identifier: Apache-2.0
// Model, as templates: what all architectures have in common. For types other than float and
// double.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "experiments/seq2seq/model.h"
#include "experiments/seq2seq/recurrent-inl.h"
#include "experiments/seq2seq/transformer-inl.h"

namespace attest {

template <class T>
Model<T>::Model(const ModelOptions& options)
    : options_(options), parameters_(ParametersOf(options)) {
  const ParameterSpec& last = parameters_.back();
  values_.assign(static_cast<std::size_t>(last.offset + last.size()), T(0));
  grads_ = values_;
  for (const ParameterSpec& spec : parameters_) {
    const RandomStream stream(options.seed, "seq2seq initial values", spec.name);
    for (Index i = 0; i < spec.size(); ++i) {
      const double draw = 2.0 * stream.Uniform(static_cast<std::uint64_t>(i)) - 1.0;
      values_[static_cast<std::size_t>(spec.offset + i)] = T(spec.center + spec.range * draw);
    }
  }
}

template <class T>
std::span<T> Model<T>::Values(std::string_view name) {
  for (const ParameterSpec& spec : parameters_) {
    if (spec.name == name) {
      return {values_.data() + spec.offset, static_cast<std::size_t>(spec.size())};
    }
  }
  return {};
}

template <class T>
Matrix<T> Model<T>::Get(std::string_view name) {
  for (const ParameterSpec& spec : parameters_) {
    if (spec.name == name) {
      return {spec.rows, spec.columns, values_.data() + spec.offset, grads_.data() + spec.offset};
    }
  }
  return {};
}

template <class T>
typename Model<T>::Gru Model<T>::GetGru(const std::string& name) {
  return {Get(name + ".w"), Get(name + ".b"), Get(name + ".u"), Get(name + ".c")};
}

template <class T>
Status Model<T>::Check(std::span<const SentencePair> pairs) const {
  if (pairs.empty()) return InvalidArgument("a batch has no sentence");
  const auto check = [](const std::vector<int>& words, int limit, const char* side) {
    for (const int word : words) {
      if (word < 0 || word >= limit) {
        return InvalidArgument(fmt::format("{} word {} is not in 0 to {}", side, word, limit - 1));
      }
    }
    return Status();
  };
  for (const SentencePair& pair : pairs) {
    if (Status s = check(pair.source, options_.source_words, "source"); !s.ok()) return s;
    if (Status s = check(pair.target, options_.target_words, "target"); !s.ok()) return s;
  }
  return Status();
}

template <class T>
Batch Model<T>::MakeBatch(std::span<const SentencePair> pairs) const {
  Batch batch;
  batch.size = static_cast<Index>(pairs.size());
  batch.time_major = options_.architecture != Architecture::kTransformer;
  for (const SentencePair& pair : pairs) {
    batch.source_len = std::max(batch.source_len, static_cast<Index>(pair.source.size()));
    batch.target_len = std::max(batch.target_len, static_cast<Index>(pair.target.size()) + 1);
  }
  const bool location = options_.architecture == Architecture::kLocation;
  batch.source.assign(static_cast<std::size_t>(batch.size * batch.source_len), kPaddingWord);
  batch.target_in.assign(static_cast<std::size_t>(batch.size * batch.target_len), kPaddingWord);
  batch.target_out.assign(batch.target_in.size(), -1);
  for (Index b = 0; b < batch.size; ++b) {
    const SentencePair& pair = pairs[static_cast<std::size_t>(b)];
    const auto length = static_cast<Index>(pair.source.size());
    for (Index j = 0; j < length; ++j) {
      const Index from = options_.reverse_source ? length - 1 - j : j;
      batch.source[static_cast<std::size_t>(batch.SourceRow(b, j))] =
          pair.source[static_cast<std::size_t>(from)];
    }
    const auto words = static_cast<Index>(pair.target.size());
    for (Index t = 0; t <= words; ++t) {
      const auto row = static_cast<std::size_t>(batch.TargetRow(b, t));
      batch.target_in[row] = t == 0 ? kStartWord : pair.target[static_cast<std::size_t>(t - 1)];
      batch.target_out[row] = t == words ? kEndWord : pair.target[static_cast<std::size_t>(t)];
    }
    batch.lengths.push_back(static_cast<int>(length));
    batch.kv_lengths.push_back(
        static_cast<int>(location ? std::min(length, options_.max_source) : length));
    batch.target_lens.push_back(static_cast<int>(batch.target_len));
    batch.endless.push_back(std::numeric_limits<int>::max());
  }
  return batch;
}

template <class T>
Matrix<T> Model<T>::Logits(const Batch& batch, Encoded* encoded) {
  step_weights_.clear();
  return options_.architecture == Architecture::kTransformer ? TransformerLogits(batch, encoded)
                                                             : RecurrentLogits(batch, encoded);
}

template <class T>
StatusOr<BatchResult> Model<T>::Run(std::span<const SentencePair> pairs, bool gradients) {
  if (Status s = Check(pairs); !s.ok()) return s;
  const Batch batch = MakeBatch(pairs);
  wants_weights_ = false;
  tape_.Reset(gradients);
  if (gradients) std::fill(grads_.begin(), grads_.end(), T(0));
  Encoded encoded;
  const Loss loss = CrossEntropy(tape_, Logits(batch, &encoded), batch.target_out, true);
  if (gradients) tape_.Backward();
  if (!tape_.status().ok()) return tape_.status();
  return BatchResult{loss.sum / static_cast<double>(std::max<Index>(loss.words, 1)), loss.words,
                     loss.correct, tape_.flops()};
}

template <class T>
StatusOr<T> Model<T>::ExactLoss(std::span<const SentencePair> pairs) {
  if (Status s = Check(pairs); !s.ok()) return s;
  const Batch batch = MakeBatch(pairs);
  wants_weights_ = false;
  tape_.Reset(false);
  Encoded encoded;
  T sum(0);
  const Loss loss = CrossEntropy(tape_, Logits(batch, &encoded), batch.target_out, true, &sum);
  if (!tape_.status().ok()) return tape_.status();
  return T(sum / T(loss.words));
}

template <class T>
std::vector<float> Model<T>::WeightsOf(const Batch& batch, const T* weights, Index b) const {
  const auto length = static_cast<Index>(batch.lengths[static_cast<std::size_t>(b)]);
  std::vector<float> row;
  for (Index j = 0; j < length; ++j) {
    row.push_back(static_cast<float>(weights[options_.reverse_source ? length - 1 - j : j]));
  }
  return row;
}

template <class T>
StatusOr<std::vector<Translation>> Model<T>::Translate(std::span<const std::vector<int>> sources,
                                                       Index max_words) {
  if (sources.empty()) return std::vector<Translation>();
  std::vector<SentencePair> pairs;
  for (const std::vector<int>& source : sources) pairs.push_back({source, {}, {}});
  if (Status s = Check(pairs); !s.ok()) return s;
  wants_weights_ = options_.architecture != Architecture::kFixed;
  step_weights_.clear();
  tape_.Reset(false);
  std::vector<Translation> translations = options_.architecture == Architecture::kTransformer
                                              ? TranslateBySelf(sources, max_words)
                                              : TranslateRecurrent(MakeBatch(pairs), max_words);
  if (!tape_.status().ok()) return tape_.status();
  return translations;
}

template <class T>
StatusOr<std::vector<float>> Model<T>::Weights(const SentencePair& pair) {
  std::vector<float> weights;
  if (options_.architecture == Architecture::kFixed) return weights;
  const std::span<const SentencePair> pairs(&pair, 1);
  if (Status s = Check(pairs); !s.ok()) return s;
  const Batch batch = MakeBatch(pairs);
  wants_weights_ = true;
  tape_.Reset(false);
  Encoded encoded;
  Logits(batch, &encoded);
  if (!tape_.status().ok()) return tape_.status();
  for (Index t = 0; t < batch.target_len; ++t) {
    const std::vector<float> row =
        options_.architecture == Architecture::kTransformer
            ? MeanWeights(batch, 0, t)
            : WeightsOf(batch, step_weights_[static_cast<std::size_t>(t)], 0);
    weights.insert(weights.end(), row.begin(), row.end());
  }
  return weights;
}

template <class T>
StatusOr<std::vector<double>> Model<T>::SourceGradients(const SentencePair& pair) {
  // As many copies as outputs, each with the loss of one of them.
  const std::vector<SentencePair> copies(pair.target.size() + 1, pair);
  if (Status s = Check(copies); !s.ok()) return s;
  Batch batch = MakeBatch(copies);
  for (Index b = 0; b < batch.size; ++b) {
    for (Index t = 0; t < batch.target_len; ++t) {
      if (t != b) batch.target_out[static_cast<std::size_t>(batch.TargetRow(b, t))] = -1;
    }
  }
  wants_weights_ = false;
  tape_.Reset(true);
  Encoded encoded;
  CrossEntropy(tape_, Logits(batch, &encoded), batch.target_out, false);
  tape_.Backward();
  if (!tape_.status().ok()) return tape_.status();
  std::vector<double> norms;
  for (Index b = 0; b < batch.size; ++b) {
    for (Index j = 0; j < batch.source_len; ++j) {
      const Index at = options_.reverse_source ? batch.source_len - 1 - j : j;
      const T* const grad = encoded.embedded.GradRow(batch.SourceRow(b, at));
      double sum = 0.0;
      for (Index e = 0; e < encoded.embedded.columns; ++e) {
        const auto element = static_cast<double>(grad[e]);
        sum += element * element;
      }
      norms.push_back(std::sqrt(sum));
    }
  }
  return norms;
}

}  // namespace attest
