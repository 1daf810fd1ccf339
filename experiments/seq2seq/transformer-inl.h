// SPDX-License-Identifier: Apache-2.0
// The Transformer (Vaswani et al. 2017), as templates; included by model-inl.h.
//
// As published, sublayer by sublayer: LayerNorm(x + Sublayer(x)), sinusoidal positions; without
// dropout, without the factor sqrt(d) of embeddings and with an output matrix of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "experiments/seq2seq/attend.h"
#include "experiments/seq2seq/model.h"
#include "experiments/seq2seq/operations.h"

namespace attest {

// Embeddings plus positions; with `embedded`, also the embeddings themselves.
template <class T>
Matrix<T> Model<T>::Embed(const Batch& batch, bool source, Matrix<T>* embedded) {
  const std::vector<Index>& words = source ? batch.source : batch.target_in;
  const Index length = source ? batch.source_len : batch.target_len;
  const Index width = options_.decoder;
  const Matrix<T> rows = tape_.Uninitialised(batch.size * length, width);
  Gather(tape_, Get(source ? "source.embedding" : "target.embedding"), words, rows);
  const Matrix<T> x = tape_.Zeros(rows.rows, width);
  Add(tape_, rows, x);
  for (Index i = 0; i < x.rows; ++i) {
    const auto position = static_cast<double>(i % length);
    for (Index j = 0; j < width; ++j) {
      const auto pair = static_cast<double>(j / 2 * 2);
      const double angle = position / std::pow(1e4, pair / static_cast<double>(width));
      x.Row(i)[j] += T(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  }
  if (embedded != nullptr) *embedded = rows;
  return x;
}

template <class T>
Matrix<T> Model<T>::AddAndNorm(const std::string& name, const Matrix<T>& x, const Matrix<T>& y) {
  Add(tape_, x, y);
  return LayerNorm(tape_, y, Get(name + ".norm.gain"), Get(name + ".norm.shift"));
}

// Queries of `from`, keys and values of `to`, with the residual connection and the norm.
template <class T>
Matrix<T> Model<T>::MultiHead(const std::string& name, const Matrix<T>& from, const Matrix<T>& to,
                              const Batch& batch, const std::vector<int>& lengths, bool causal,
                              bool wants_weights) {
  Attention<T> call;
  call.batch = batch.size;
  call.heads = options_.heads;
  call.q = Linear(tape_, from, Get(name + ".q"));
  call.k = Linear(tape_, to, Get(name + ".k"));
  call.v = Linear(tape_, to, Get(name + ".v"));
  call.lengths = &lengths;
  call.scaled = options_.scaled;
  call.causal = causal;
  call.wants_weights = wants_weights;
  const Attended<T> attended = Attend(tape_, call);
  if (wants_weights) step_weights_.assign(1, attended.weights);
  return AddAndNorm(name, from, Linear(tape_, attended.out, Get(name + ".o")));
}

template <class T>
Matrix<T> Model<T>::FeedForward(const std::string& name, const Matrix<T>& x) {
  const Matrix<T> inner = Linear(tape_, x, Get(name + ".inner.w"), Get(name + ".inner.b"));
  Relu(tape_, inner);
  return AddAndNorm(name, x, Linear(tape_, inner, Get(name + ".outer.w"), Get(name + ".outer.b")));
}

template <class T>
Matrix<T> Model<T>::TransformerLogits(const Batch& batch, Encoded* encoded) {
  Matrix<T> x = Embed(batch, true, &encoded->embedded);
  for (Index layer = 0; layer < options_.layers; ++layer) {
    const std::string name = "encoder." + std::to_string(layer);
    x = MultiHead(name + ".self", x, x, batch, batch.lengths, false, false);
    x = FeedForward(name, x);
  }
  Matrix<T> y = Embed(batch, false, nullptr);
  for (Index layer = 0; layer < options_.layers; ++layer) {
    const std::string name = "decoder." + std::to_string(layer);
    y = MultiHead(name + ".self", y, y, batch, batch.target_lens, true, false);
    y = MultiHead(name + ".cross", y, x, batch, batch.lengths, false,
                  wants_weights_ && layer + 1 == options_.layers);
    y = FeedForward(name, y);
  }
  return Linear(tape_, y, Get("output.w"), Get("output.b"));
}

// Every step reads the whole beginning again.
template <class T>
std::vector<Translation> Model<T>::TranslateBySelf(std::span<const std::vector<int>> sources,
                                                   Index max_words) {
  std::vector<SentencePair> pairs;
  for (const std::vector<int>& source : sources) pairs.push_back({source, {}, {}});
  std::vector<Translation> translations(sources.size());
  std::vector<char> over(sources.size(), 0);
  for (Index t = 0; t < max_words; ++t) {
    tape_.Reset(false);
    const Batch batch = MakeBatch(pairs);
    Encoded encoded;
    const Matrix<T> logits = TransformerLogits(batch, &encoded);
    bool all_over = true;
    for (std::size_t b = 0; b < pairs.size(); ++b) {
      const auto sentence = static_cast<Index>(b);
      const T* const row = logits.Row(batch.TargetRow(sentence, t));
      const auto word =
          static_cast<int>(std::max_element(row + kEndWord, row + logits.columns) - row);
      pairs[b].target.push_back(word);
      over[b] = over[b] || word == kEndWord ? 1 : 0;
      if (over[b]) continue;
      all_over = false;
      translations[b].words.push_back(word);
      const std::vector<float> weights = MeanWeights(batch, sentence, t);
      translations[b].weights.insert(translations[b].weights.end(), weights.begin(), weights.end());
    }
    if (all_over) break;
  }
  return translations;
}

// Of query t of sentence b, over the heads.
template <class T>
std::vector<float> Model<T>::MeanWeights(const Batch& batch, Index b, Index t) const {
  std::vector<T> mean(static_cast<std::size_t>(batch.source_len), T(0));
  for (Index h = 0; h < options_.heads; ++h) {
    const T* const row =
        step_weights_[0] + ((b * options_.heads + h) * batch.target_len + t) * batch.source_len;
    for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += row[j] / T(options_.heads);
  }
  return WeightsOf(batch, mean.data(), b);
}

}  // namespace attest
