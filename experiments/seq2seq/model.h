// SPDX-License-Identifier: Apache-2.0
// Encoder-decoders: recurrent ones with a fixed context or one of many attentions, and a small
// Transformer.
//
// Recurrent: a GRU encoder (both directions), s_0 = tanh([last forward; first backward] W_s + b), a
// GRU decoder, a readout tanh([c_t; s_t] W_c + b) and a softmax over words.
// - kFixed (Cho et al. 2014): c_t is the encoder's last states, at every step.
// - kBahdanau (Bahdanau, Cho and Bengio 2015): c_t by additive attention of s_{t-1}, before the
// step.
// - kLastState: as kBahdanau, but attention sees the last annotation alone; a control.
// - Luong, Pham and Manning 2015, attention of s_t, after the step, and input feeding: kDot,
//   kGeneral, kConcat, kLocation (a table of positions), kLocalM and kLocalP (`general` in a window
//   around t, or around a predicted position and with a Gaussian).
// - kQueryKeyValue: as those, with q = s_t W_Q, k = h W_K, v = h W_V.
// kTransformer: Vaswani et al. 2017, layer norm after every sublayer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "experiments/seq2seq/sentences.h"
#include "experiments/seq2seq/tape.h"

namespace attest {

enum class Architecture {
  kFixed,
  kLastState,
  kBahdanau,
  kDot,
  kGeneral,
  kConcat,
  kLocation,
  kLocalM,
  kLocalP,
  kQueryKeyValue,
  kTransformer,
};

// "fixed", "last-state", "bahdanau", "dot", "general", "concat", "location", "local-m", "local-p",
// "qkv", "transformer".
std::string_view NameOf(Architecture architecture);
// In the order of the enumeration.
std::span<const Architecture> Architectures();

struct ModelOptions {
  Architecture architecture = Architecture::kBahdanau;
  int source_words = 0;  // sizes of the vocabularies, reserved words included
  int target_words = 0;
  Index embedding = 32;
  Index encoder = 48;           // states of each direction
  Index decoder = 96;           // states; the width of the Transformer
  Index attention = 64;         // hidden units of additive scores; width of q, k and v of `qkv`
  bool bidirectional = true;    // else the encoder goes forward only
  bool reverse_source = false;  // reads the source from its end (Sutskever et al. 2014)
  bool scaled = true;           // scores of qkv and Transformer times 1/sqrt(D_k)
  // Additive scores by the kernel's own rather than by the tape, whose scores the kernel takes as
  // they are. The same function; slow, as the backward kernel is made for blocks of queries.
  bool kernel_scores = false;
  double half_width = 5.0;   // of local attention, at least 0.5
  Index max_source = 64;     // location: words beyond get no attention (Luong et al. 2015, 3.1)
  Index heads = 4;           // Transformer
  Index layers = 1;          // Transformer, each of encoder and decoder
  Index feed_forward = 192;  // Transformer
  std::uint64_t seed = 0;    // of the initial values

  bool operator==(const ModelOptions&) const = default;
};

// One line that says everything; equal for equal options alone.
std::string TextOf(const ModelOptions& options);

// InvalidArgument names what is wrong.
Status CheckModelOptions(const ModelOptions& options);

// A parameter's place among all values.
struct ParameterSpec {
  std::string name;
  Index rows = 0;
  Index columns = 0;
  double range = 0.0;   // initial values are uniform in (-range, range) ...
  double center = 0.0;  // ... around this
  Index offset = 0;

  Index size() const { return rows * columns; }
};

std::vector<ParameterSpec> ParametersOf(const ModelOptions& options);

// Padded sentences as indices. Row of word t of sentence b: t * size + b if time-major, else
// b * length + t.
struct Batch {
  Index size = 0;
  Index source_len = 0;
  Index target_len = 0;  // the longest target and an end word
  bool time_major = true;
  std::vector<Index> source;     // rows of the embeddings
  std::vector<Index> target_in;  // start word, target
  std::vector<int> target_out;   // target, end word; -1 beyond
  std::vector<int> lengths;      // of sources
  std::vector<int> kv_lengths;   // keys of each source that take part in attention
  std::vector<int> target_lens;  // target_len for each sentence
  std::vector<int> endless;      // for each sentence: a recurrent decoder goes on until it is told

  Index SourceRow(Index b, Index j) const { return time_major ? j * size + b : b * source_len + j; }
  Index TargetRow(Index b, Index t) const { return time_major ? t * size + b : b * target_len + t; }
};

struct BatchResult {
  double loss = 0.0;   // mean of -log p over target words, end words included
  Index words = 0;     // those
  Index correct = 0;   // whose largest logit is right, given the words before (teacher forcing)
  double flops = 0.0;  // of matrix products and attention
};

// Everything is a function of options and inputs alone, bit for bit on one SIMD target. Objects
// share nothing: each may be used by a thread of its own.
template <class T>
class Model {
 public:
  // The options must be right. Initial values depend on seed and parameter name alone.
  explicit Model(const ModelOptions& options);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelOptions& options() const { return options_; }
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  std::vector<T>& values() { return values_; }
  const std::vector<T>& values() const { return values_; }
  const std::vector<T>& gradients() const { return grads_; }
  // Values of one parameter; none for an unknown name.
  std::span<T> Values(std::string_view name);

  // With `gradients`, those of the mean loss are then in gradients().
  StatusOr<BatchResult> Run(std::span<const SentencePair> pairs, bool gradients);

  // The mean loss in T itself.
  StatusOr<T> ExactLoss(std::span<const SentencePair> pairs);

  // Greedy: the likeliest word at each step, up to the end word or max_words.
  StatusOr<std::vector<Translation>> Translate(std::span<const std::vector<int>> sources,
                                               Index max_words);

  // Attention weights given the target's words, [target words + 1, source words]; empty without
  // attention. Of the Transformer: mean over heads, of its last layer.
  StatusOr<std::vector<float>> Weights(const SentencePair& pair);

  // Euclidean norms of the gradients of log p(word t of the target and its end word) with respect
  // to the embedding of each source word, [target words + 1, source words].
  StatusOr<std::vector<double>> SourceGradients(const SentencePair& pair);

 private:
  struct Gru {
    Matrix<T> w, b, u, c;
  };
  // What the decoder sees of the source.
  struct Encoded {
    Matrix<T> embedded;     // [S B, E], in the batch's order
    Matrix<T> annotations;  // [B S, D], sentence by sentence
    Matrix<T> last;         // [B, D]: last forward and first backward states
    Matrix<T> keys;         // [B S, .], what queries are compared with
    Matrix<T> values;       // [B S, .]
    Matrix<T> ones;         // [B, 1]
  };
  // Of a recurrent decoder between two steps.
  struct State {
    Matrix<T> hidden;            // s [B, Hd]
    Matrix<T> readout;           // of the step before, [B, Hd]
    Matrix<T> context;           // [B, C]
    const T* weights = nullptr;  // [B, S]
  };

  bool IsLuong() const;
  Matrix<T> Get(std::string_view name);
  Gru GetGru(const std::string& name);
  Status Check(std::span<const SentencePair> pairs) const;
  Batch MakeBatch(std::span<const SentencePair> pairs) const;

  Encoded Encode(const Batch& batch);
  Matrix<T> RunEncoder(const Batch& batch, const Matrix<T>& embedded, const std::string& name,
                       bool backward);
  State Start(const Encoded& encoded);
  void AttendTo(const Batch& batch, const Encoded& encoded, const Matrix<T>& query, Index step,
                State* state);
  // One step; x is the embedded word's part of the decoder's input. Writes s to `hidden`.
  void Advance(const Batch& batch, const Encoded& encoded, const Matrix<T>& x, Index step,
               const Matrix<T>& hidden, State* state);
  Matrix<T> Readout(const Matrix<T>& context, const Matrix<T>& hidden);
  Matrix<T> RecurrentLogits(const Batch& batch, Encoded* encoded);

  Matrix<T> Embed(const Batch& batch, bool source, Matrix<T>* embedded);
  Matrix<T> MultiHead(const std::string& name, const Matrix<T>& from, const Matrix<T>& to,
                      const Batch& batch, const std::vector<int>& lengths, bool causal,
                      bool wants_weights);
  Matrix<T> AddAndNorm(const std::string& name, const Matrix<T>& x, const Matrix<T>& y);
  Matrix<T> FeedForward(const std::string& name, const Matrix<T>& x);
  Matrix<T> TransformerLogits(const Batch& batch, Encoded* encoded);

  Matrix<T> Logits(const Batch& batch, Encoded* encoded);
  std::vector<Translation> TranslateRecurrent(const Batch& batch, Index max_words);
  std::vector<Translation> TranslateBySelf(std::span<const std::vector<int>> sources,
                                           Index max_words);
  std::vector<float> MeanWeights(const Batch& batch, Index b, Index t) const;
  // Weights of one step of sentence b in the source's own order.
  std::vector<float> WeightsOf(const Batch& batch, const T* weights, Index b) const;

  ModelOptions options_;
  std::vector<ParameterSpec> parameters_;
  std::vector<T> values_;
  std::vector<T> grads_;
  Tape<T> tape_;
  bool wants_weights_ = false;
  // Of the last pass, if wanted: [step][B, S], or the Transformer's [B, H, T, S].
  std::vector<const T*> step_weights_;
};

extern template class Model<float>;
extern template class Model<double>;

}  // namespace attest
