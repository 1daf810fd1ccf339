// SPDX-License-Identifier: Apache-2.0
// The models' names, sizes and parameters.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "experiments/seq2seq/model.h"

namespace attest {
namespace {

constexpr std::array kArchitectures{
    Architecture::kFixed,         Architecture::kLastState,  Architecture::kBahdanau,
    Architecture::kDot,           Architecture::kGeneral,    Architecture::kConcat,
    Architecture::kLocation,      Architecture::kLocalM,     Architecture::kLocalP,
    Architecture::kQueryKeyValue, Architecture::kTransformer};
constexpr std::array<std::string_view, kArchitectures.size()> kNames{
    "fixed",    "last-state", "bahdanau", "dot", "general",    "concat",
    "location", "local-m",    "local-p",  "qkv", "transformer"};

class ParameterList {
 public:
  void Add(std::string name, Index rows, Index columns, double range, double center = 0.0) {
    specs_.push_back({std::move(name), rows, columns, range, center, offset_});
    // Each on cache lines of its own.
    offset_ += (rows * columns + 15) / 16 * 16;
  }
  // Uniform with the variance of Glorot and Bengio 2010, of a matrix with these numbers of inputs
  // and outputs.
  void AddDense(std::string name, Index rows, Index columns) {
    AddDense(std::move(name), rows, columns, rows, columns);
  }
  void AddDense(std::string name, Index rows, Index columns, Index inputs, Index outputs) {
    Add(std::move(name), rows, columns, std::sqrt(6.0 / static_cast<double>(inputs + outputs)));
  }
  void AddGru(const std::string& name, Index input, Index fed, Index size) {
    AddDense(name + ".w", input, 3 * size, input + fed, size);
    Add(name + ".b", 1, 3 * size, 0.0);
    if (fed > 0) AddDense(name + ".feed", fed, 3 * size, input + fed, size);
    Add(name + ".u", size, 3 * size, 1.0 / std::sqrt(static_cast<double>(size)));
    Add(name + ".c", 1, 3 * size, 0.0);
  }
  void AddNorm(const std::string& name, Index size) {
    Add(name + ".gain", 1, size, 0.0, 1.0);
    Add(name + ".shift", 1, size, 0.0);
  }
  void AddMultiHead(const std::string& name, Index size) {
    for (const char* const part : {".q", ".k", ".v", ".o"}) AddDense(name + part, size, size);
    AddNorm(name + ".norm", size);
  }
  void AddFeedForward(const std::string& name, Index size, Index inner) {
    AddDense(name + ".inner.w", size, inner);
    Add(name + ".inner.b", 1, inner, 0.0);
    AddDense(name + ".outer.w", inner, size);
    Add(name + ".outer.b", 1, size, 0.0);
    AddNorm(name + ".norm", size);
  }
  std::vector<ParameterSpec> Take() { return std::move(specs_); }

 private:
  std::vector<ParameterSpec> specs_;
  Index offset_ = 0;
};

constexpr double kEmbeddingRange = 0.5;

void AddTransformer(const ModelOptions& o, ParameterList* list) {
  for (Index layer = 0; layer < o.layers; ++layer) {
    const std::string encoder = fmt::format("encoder.{}", layer);
    list->AddMultiHead(encoder + ".self", o.decoder);
    list->AddFeedForward(encoder, o.decoder, o.feed_forward);
    const std::string decoder = fmt::format("decoder.{}", layer);
    list->AddMultiHead(decoder + ".self", o.decoder);
    list->AddMultiHead(decoder + ".cross", o.decoder);
    list->AddFeedForward(decoder, o.decoder, o.feed_forward);
  }
}

void AddAttention(const ModelOptions& o, Index annotation, ParameterList* list) {
  switch (o.architecture) {
    case Architecture::kBahdanau:
    case Architecture::kConcat:
      list->AddDense("attention.query", o.decoder, o.attention);
      list->AddDense("attention.key", annotation, o.attention);
      list->Add("attention.b", 1, o.attention, 0.0);
      list->Add("attention.v", 1, o.attention, std::sqrt(3.0 / static_cast<double>(o.attention)));
      break;
    case Architecture::kLocalP:
      list->AddDense("attention.position", o.decoder, o.attention);
      list->AddDense("attention.center", o.attention, 1);
      list->AddDense("attention.key", annotation, o.decoder);
      break;
    case Architecture::kGeneral:
    case Architecture::kLocalM:
      list->AddDense("attention.key", annotation, o.decoder);
      break;
    case Architecture::kLocation:
      list->AddDense("attention.position", o.decoder, o.max_source);
      break;
    case Architecture::kQueryKeyValue:
      list->AddDense("attention.query", o.decoder, o.attention);
      list->AddDense("attention.key", annotation, o.attention);
      list->AddDense("attention.value", annotation, o.attention);
      break;
    default:
      break;
  }
}

void AddRecurrent(const ModelOptions& o, ParameterList* list) {
  const Index annotation = (o.bidirectional ? 2 : 1) * o.encoder;
  const Index context = o.architecture == Architecture::kQueryKeyValue ? o.attention : annotation;
  const bool feeds_context = o.architecture == Architecture::kFixed ||
                             o.architecture == Architecture::kLastState ||
                             o.architecture == Architecture::kBahdanau;
  list->AddGru("encoder.forward", o.embedding, 0, o.encoder);
  if (o.bidirectional) list->AddGru("encoder.backward", o.embedding, 0, o.encoder);
  list->AddDense("start.w", annotation, o.decoder);
  list->Add("start.b", 1, o.decoder, 0.0);
  list->AddGru("decoder", o.embedding, feeds_context ? context : o.decoder, o.decoder);
  AddAttention(o, annotation, list);
  list->AddDense("readout.context", context, o.decoder, context + o.decoder, o.decoder);
  list->AddDense("readout.state", o.decoder, o.decoder, context + o.decoder, o.decoder);
  list->Add("readout.b", 1, o.decoder, 0.0);
}

}  // namespace

std::string_view NameOf(Architecture architecture) {
  return kNames[static_cast<std::size_t>(architecture)];
}

std::span<const Architecture> Architectures() { return kArchitectures; }

std::string TextOf(const ModelOptions& o) {
  return fmt::format(
      "{} words {} {} embedding {} encoder {} decoder {} attention {} bidirectional {} reversed {} "
      "scaled {} kernel_scores {} half_width {} max_source {} heads {} layers {} feed_forward {} "
      "seed {}",
      NameOf(o.architecture), o.source_words, o.target_words, o.embedding, o.encoder, o.decoder,
      o.attention, o.bidirectional, o.reverse_source, o.scaled, o.kernel_scores, o.half_width,
      o.max_source, o.heads, o.layers, o.feed_forward, o.seed);
}

Status CheckModelOptions(const ModelOptions& o) {
  if (o.source_words <= kFirstWord || o.target_words <= kFirstWord) {
    return InvalidArgument("a vocabulary has no word beside the reserved ones");
  }
  for (const Index size : {o.embedding, o.encoder, o.decoder, o.attention, o.max_source, o.heads,
                           o.layers, o.feed_forward}) {
    if (size < 1 || size > 1 << 16) return InvalidArgument("a model's size must be 1 to 65536");
  }
  if (o.architecture == Architecture::kDot && o.decoder != (o.bidirectional ? 2 : 1) * o.encoder) {
    return InvalidArgument("dot: the decoder's states must be as wide as the annotations");
  }
  if (o.architecture == Architecture::kTransformer && o.decoder % o.heads != 0) {
    return InvalidArgument("transformer: the width must be a multiple of the number of heads");
  }
  if (!(o.half_width >= 0.5 && o.half_width <= 1e6)) {
    return InvalidArgument("half_width must be at least 0.5");
  }
  return Status();
}

std::vector<ParameterSpec> ParametersOf(const ModelOptions& o) {
  ParameterList list;
  const bool transformer = o.architecture == Architecture::kTransformer;
  const Index embedding = transformer ? o.decoder : o.embedding;
  list.Add("source.embedding", o.source_words, embedding, kEmbeddingRange);
  list.Add("target.embedding", o.target_words, embedding, kEmbeddingRange);
  if (transformer) {
    AddTransformer(o, &list);
  } else {
    AddRecurrent(o, &list);
  }
  list.AddDense("output.w", o.decoder, o.target_words);
  list.Add("output.b", 1, o.target_words, 0.0);
  return list.Take();
}

}  // namespace attest
