// SPDX-License-Identifier: Apache-2.0
// The recurrent models, as templates; included by model-inl.h.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "experiments/seq2seq/attend.h"
#include "experiments/seq2seq/model.h"
#include "experiments/seq2seq/operations.h"

namespace attest {

template <class T>
bool Model<T>::IsLuong() const {
  return options_.architecture != Architecture::kFixed &&
         options_.architecture != Architecture::kLastState &&
         options_.architecture != Architecture::kBahdanau;
}

// States after each word, [S B, He], time-major; a sentence's state stays once it is over.
template <class T>
Matrix<T> Model<T>::RunEncoder(const Batch& batch, const Matrix<T>& embedded,
                               const std::string& name, bool backward) {
  const Gru gru = GetGru(name);
  const Matrix<T> inputs = Linear(tape_, embedded, gru.w, gru.b);
  const Matrix<T> states = tape_.Uninitialised(inputs.rows, gru.u.rows);
  Matrix<T> state = tape_.Zeros(batch.size, gru.u.rows);
  for (Index i = 0; i < batch.source_len; ++i) {
    const Index step = backward ? batch.source_len - 1 - i : i;
    const Index row = step * batch.size;
    const Matrix<T> next = states.Rows(row, batch.size);
    GruStep(tape_, inputs.Rows(row, batch.size), state, gru.u, gru.c, batch.lengths, step, next);
    state = next;
  }
  return states;
}

template <class T>
typename Model<T>::Encoded Model<T>::Encode(const Batch& batch) {
  const Index size = batch.size;
  const Index steps = batch.source_len;
  Encoded encoded;
  encoded.embedded = tape_.Uninitialised(size * steps, options_.embedding);
  Gather(tape_, Get("source.embedding"), batch.source, encoded.embedded);
  const Index width = (options_.bidirectional ? 2 : 1) * options_.encoder;
  encoded.annotations = tape_.Uninitialised(size * steps, width);
  encoded.last = tape_.Uninitialised(size, width);
  for (const bool backward : {false, true}) {
    if (backward && !options_.bidirectional) break;
    const Matrix<T> states = RunEncoder(
        batch, encoded.embedded, backward ? "encoder.backward" : "encoder.forward", backward);
    std::vector<Index> rows;
    for (Index b = 0; b < size; ++b) {
      for (Index j = 0; j < steps; ++j) rows.push_back(batch.SourceRow(b, j));
    }
    const Index column = backward ? options_.encoder : 0;
    Gather(tape_, states, std::move(rows), encoded.annotations, column);
    std::vector<Index> last;
    for (Index b = 0; b < size; ++b) {
      last.push_back(steps == 0 ? -1 : batch.SourceRow(b, backward ? 0 : steps - 1));
    }
    Gather(tape_, states, std::move(last), encoded.last, column);
  }
  encoded.values = encoded.annotations;
  encoded.ones = tape_.Zeros(size, 1);
  std::fill_n(encoded.ones.value, size, T(1));
  switch (options_.architecture) {
    case Architecture::kLastState:
      encoded.keys = tape_.Zeros(size * steps, 1);
      break;
    case Architecture::kDot:
      encoded.keys = encoded.annotations;
      break;
    case Architecture::kBahdanau:
    case Architecture::kConcat:
      encoded.keys = Linear(tape_, encoded.annotations, Get("attention.key"), Get("attention.b"));
      break;
    case Architecture::kQueryKeyValue:
      encoded.values = Linear(tape_, encoded.annotations, Get("attention.value"));
      encoded.keys = Linear(tape_, encoded.annotations, Get("attention.key"));
      break;
    case Architecture::kGeneral:
    case Architecture::kLocalM:
    case Architecture::kLocalP:
      encoded.keys = Linear(tape_, encoded.annotations, Get("attention.key"));
      break;
    default:
      break;
  }
  return encoded;
}

template <class T>
typename Model<T>::State Model<T>::Start(const Encoded& encoded) {
  State state;
  state.hidden = Linear(tape_, encoded.last, Get("start.w"), Get("start.b"));
  Tanh(tape_, state.hidden);
  state.readout = tape_.Zeros(state.hidden.rows, options_.decoder);
  if (options_.architecture == Architecture::kFixed) state.context = encoded.last;
  return state;
}

// Sets the state's context and weights.
template <class T>
void Model<T>::AttendTo(const Batch& batch, const Encoded& encoded, const Matrix<T>& query,
                        Index step, State* state) {
  Attention<T> call;
  call.batch = batch.size;
  call.lengths = &batch.kv_lengths;
  call.wants_weights = wants_weights_;
  call.q = query;
  call.k = encoded.keys;
  call.v = encoded.values;
  const auto centers = [&](auto center_of) {
    call.center = tape_.Zeros(batch.size, 1);
    for (Index b = 0; b < batch.size; ++b) {
      call.center.value[b] =
          T(std::max<Index>(center_of(batch.lengths[static_cast<std::size_t>(b)]), 0));
    }
  };
  switch (options_.architecture) {
    case Architecture::kFixed:
    case Architecture::kTransformer:
      return;
    case Architecture::kLastState:
      call.q = encoded.ones;
      call.local = LocalWindow{0.5, false};
      centers([](Index length) { return length - 1; });
      break;
    case Architecture::kBahdanau:
    case Architecture::kConcat: {
      const Matrix<T> projected = Linear(tape_, query, Get("attention.query"));
      if (options_.kernel_scores) {
        call.q = projected;
        call.v_a = Get("attention.v");
      } else {
        call.q = encoded.ones;
        call.k = AdditiveScores(tape_, projected, encoded.keys, Get("attention.v"));
      }
      break;
    }
    case Architecture::kLocation: {
      const Matrix<T> table = Linear(tape_, query, Get("attention.position"));
      const Matrix<T> column{table.size(), 1, table.value, table.grad};
      std::vector<Index> rows;
      for (Index b = 0; b < batch.size; ++b) {
        for (Index j = 0; j < batch.source_len; ++j) {
          rows.push_back(j < table.columns ? b * table.columns + j : -1);
        }
      }
      call.q = encoded.ones;
      call.k = tape_.Uninitialised(batch.size * batch.source_len, 1);
      Gather(tape_, column, std::move(rows), call.k);
      break;
    }
    case Architecture::kLocalM:
      call.local = LocalWindow{options_.half_width, false};
      centers([&](Index length) { return std::min(step, length - 1); });
      break;
    case Architecture::kLocalP: {
      call.local = LocalWindow{options_.half_width, true};
      const Matrix<T> hidden = Linear(tape_, query, Get("attention.position"));
      Tanh(tape_, hidden);
      call.center = Linear(tape_, hidden, Get("attention.center"));
      std::vector<T> last;  // positions 0 to length - 1
      for (const int length : batch.lengths) last.push_back(T(std::max(length - 1, 0)));
      Logistic(tape_, std::move(last), call.center);
      break;
    }
    case Architecture::kQueryKeyValue:
      call.q = Linear(tape_, query, Get("attention.query"));
      call.scaled = options_.scaled;
      break;
    case Architecture::kDot:
    case Architecture::kGeneral:
      break;
  }
  const Attended<T> attended = Attend(tape_, call);
  state->context = attended.out;
  state->weights = attended.weights;
}

// tanh(c W_c + s W_s + b).
template <class T>
Matrix<T> Model<T>::Readout(const Matrix<T>& context, const Matrix<T>& hidden) {
  const Matrix<T> readout = Linear(tape_, hidden, Get("readout.state"), Get("readout.b"));
  AddProduct(tape_, context, Get("readout.context"), readout);
  Tanh(tape_, readout);
  return readout;
}

template <class T>
void Model<T>::Advance(const Batch& batch, const Encoded& encoded, const Matrix<T>& x, Index step,
                       const Matrix<T>& hidden, State* state) {
  const bool luong = IsLuong();
  if (!luong) AttendTo(batch, encoded, state->hidden, step, state);
  AddProduct(tape_, luong ? state->readout : state->context, Get("decoder.feed"), x);
  GruStep(tape_, x, state->hidden, Get("decoder.u"), Get("decoder.c"), batch.endless, step, hidden);
  state->hidden = hidden;
  if (luong) {
    AttendTo(batch, encoded, hidden, step, state);
    state->readout = Readout(state->context, hidden);
  }
  if (wants_weights_) step_weights_.push_back(state->weights);
}

template <class T>
Matrix<T> Model<T>::RecurrentLogits(const Batch& batch, Encoded* encoded) {
  const Index size = batch.size;
  const Index rows = size * batch.target_len;
  *encoded = Encode(batch);
  State state = Start(*encoded);
  const Matrix<T> words = tape_.Uninitialised(rows, options_.embedding);
  Gather(tape_, Get("target.embedding"), batch.target_in, words);
  const Matrix<T> inputs = Linear(tape_, words, Get("decoder.w"), Get("decoder.b"));
  const Matrix<T> hidden = tape_.Uninitialised(rows, options_.decoder);
  // Without input feeding the readouts of all steps are found together, else they are copied there.
  const bool luong = IsLuong();
  const Matrix<T> readouts = tape_.Zeros(rows, options_.decoder);
  for (Index t = 0; t < batch.target_len; ++t) {
    const Index row = t * size;
    Advance(batch, *encoded, inputs.Rows(row, size), t, hidden.Rows(row, size), &state);
    if (luong) {
      Add(tape_, state.readout, readouts.Rows(row, size));
    } else {
      AddProduct(tape_, state.context, Get("readout.context"), readouts.Rows(row, size));
    }
  }
  if (!luong) {
    AddProduct(tape_, hidden, Get("readout.state"), readouts);
    AddToRows(tape_, Get("readout.b"), readouts);
    Tanh(tape_, readouts);
  }
  return Linear(tape_, readouts, Get("output.w"), Get("output.b"));
}

template <class T>
std::vector<Translation> Model<T>::TranslateRecurrent(const Batch& batch, Index max_words) {
  const auto count = static_cast<std::size_t>(batch.size);
  std::vector<Translation> translations(count);
  const Encoded encoded = Encode(batch);
  State state = Start(encoded);
  std::vector<Index> words(count, kStartWord);
  std::vector<char> over(count, 0);
  for (Index t = 0; t < max_words; ++t) {
    const Matrix<T> embedded = tape_.Uninitialised(batch.size, options_.embedding);
    Gather(tape_, Get("target.embedding"), words, embedded);
    const Matrix<T> input = Linear(tape_, embedded, Get("decoder.w"), Get("decoder.b"));
    Advance(batch, encoded, input, t, tape_.Uninitialised(batch.size, options_.decoder), &state);
    const Matrix<T> readout = IsLuong() ? state.readout : Readout(state.context, state.hidden);
    const Matrix<T> logits = Linear(tape_, readout, Get("output.w"), Get("output.b"));
    bool all_over = true;
    for (std::size_t b = 0; b < count; ++b) {
      const T* const row = logits.Row(static_cast<Index>(b));
      words[b] = std::max_element(row + kEndWord, row + logits.columns) - row;
      over[b] = over[b] || words[b] == kEndWord ? 1 : 0;
      if (over[b]) continue;
      all_over = false;
      translations[b].words.push_back(static_cast<int>(words[b]));
      if (state.weights == nullptr) continue;
      const std::vector<float> weights = WeightsOf(
          batch, state.weights + static_cast<Index>(b) * batch.source_len, static_cast<Index>(b));
      translations[b].weights.insert(translations[b].weights.end(), weights.begin(), weights.end());
    }
    if (all_over) break;
  }
  return translations;
}

}  // namespace attest
