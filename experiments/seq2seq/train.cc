// SPDX-License-Identifier: Apache-2.0
#include "experiments/seq2seq/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "core/random.h"
#include "core/safetensors.h"

namespace attest {
namespace {

constexpr double kDecay1 = 0.9;
constexpr double kDecay2 = 0.999;
constexpr double kEpsilon = 1e-8;

// What a checkpoint holds of each parameter, by the prefix of its tensors' names.
constexpr const char* kValues = "value/";
constexpr const char* kFirst = "first/";
constexpr const char* kSecond = "second/";

// The batches of a draw: sorted by length (Bahdanau et al. 2015, appendix B.1), cut, shuffled.
std::vector<std::vector<SentencePair>> CutBatches(std::vector<SentencePair> pairs, int batch,
                                                  std::uint64_t seed, std::int64_t pool) {
  std::vector<std::pair<std::size_t, std::size_t>> order;  // length, index
  for (std::size_t i = 0; i < pairs.size(); ++i) order.emplace_back(pairs[i].source.size(), i);
  std::sort(order.begin(), order.end());
  std::vector<std::vector<SentencePair>> batches;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i % static_cast<std::size_t>(batch) == 0) batches.emplace_back();
    batches.back().push_back(std::move(pairs[order[i].second]));
  }
  const RandomStream stream(seed, "seq2seq order", fmt::format("pool {}", pool));
  for (std::size_t i = batches.size(); i > 1; --i) {
    std::swap(batches[i - 1], batches[static_cast<std::size_t>(stream.Below(i, i))]);
  }
  return batches;
}

}  // namespace

Trainer::Trainer(Model<float>* model, const TrainOptions& options, DrawSentences draw)
    : model_(model),
      options_(options),
      draw_(std::move(draw)),
      first_moment_(model->values().size(), 0.0F),
      second_moment_(model->values().size(), 0.0F) {}

double Trainer::Rate() const {
  const auto step = static_cast<double>(step_ + 1);
  const auto warm_up = static_cast<double>(options_.warm_up);
  if (step < warm_up) return options_.learning_rate * step / warm_up;
  const double rest = std::max(1.0, static_cast<double>(options_.steps) - warm_up);
  const double share = std::min(1.0, (step - warm_up) / rest);
  const double cosine = 0.5 * (1.0 + std::cos(std::numbers::pi * share));
  return options_.learning_rate * (options_.last_share + (1.0 - options_.last_share) * cosine);
}

// Kingma and Ba 2015, algorithm 1 in the order of its section 2, after clipping (Pascanu et al.
// 2013).
void Trainer::Update(double rate) {
  const std::vector<float>& grads = model_->gradients();
  double squares = 0.0;
  for (const float g : grads) squares += static_cast<double>(g) * static_cast<double>(g);
  const double norm = std::sqrt(squares);
  const auto factor = static_cast<float>(norm > options_.clip ? options_.clip / norm : 1.0);
  const auto steps = static_cast<double>(step_ + 1);
  const auto size = static_cast<float>(rate * std::sqrt(1.0 - std::pow(kDecay2, steps)) /
                                       (1.0 - std::pow(kDecay1, steps)));
  constexpr auto kDecay1F = static_cast<float>(kDecay1);
  constexpr auto kDecay2F = static_cast<float>(kDecay2);
  constexpr auto kEpsilonF = static_cast<float>(kEpsilon);
  std::vector<float>& values = model_->values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float g = factor * grads[i];
    first_moment_[i] = kDecay1F * first_moment_[i] + (1.0F - kDecay1F) * g;
    second_moment_[i] = kDecay2F * second_moment_[i] + (1.0F - kDecay2F) * g * g;
    values[i] -= size * first_moment_[i] / (std::sqrt(second_moment_[i]) + kEpsilonF);
  }
}

StatusOr<BatchResult> Trainer::Step() {
  if (options_.batch < 1 || options_.pool < 1) {
    return InvalidArgument("batch and pool must be at least 1");
  }
  const std::int64_t number = step_ / options_.pool;
  if (number != pool_number_) {
    const std::int64_t count = std::int64_t{options_.pool} * options_.batch;
    pool_ = CutBatches(draw_(number * count, count), options_.batch, options_.seed, number);
    pool_number_ = number;
  }
  const auto at = static_cast<std::size_t>(step_ % options_.pool);
  if (at >= pool_.size()) return InvalidArgument("fewer sentences were drawn than asked for");
  StatusOr<BatchResult> result = model_->Run(pool_[at], true);
  if (!result.ok()) return result;
  Update(Rate());
  ++step_;
  return result;
}

Status Trainer::Run(std::int64_t last, const std::function<void(const TrainProgress&)>& progress) {
  while (step_ < std::min(last, options_.steps)) {
    const StatusOr<BatchResult> result = Step();
    if (!result.ok()) return result.status();
    if (progress) progress({step_, *result});
  }
  return Status();
}

std::string Trainer::Fingerprint() const {
  return fmt::format(
      "{} | steps {} warm_up {} rate {} last_share {} clip {} batch {} pool {} seed {}",
      TextOf(model_->options()), options_.steps, options_.warm_up, options_.learning_rate,
      options_.last_share, options_.clip, options_.batch, options_.pool, options_.seed);
}

Status Trainer::Save(const std::filesystem::path& file) const {
  TensorFile content;
  content.metadata["step"] = fmt::format("{}", step_);
  content.metadata["options"] = Fingerprint();
  for (const ParameterSpec& spec : model_->parameters()) {
    const auto add = [&](const char* prefix, const std::vector<float>& from) {
      Tensor tensor(DType::kF32, {spec.rows, spec.columns});
      std::memcpy(tensor.bytes(), from.data() + spec.offset, tensor.byte_size());
      content.tensors.emplace(prefix + spec.name, std::move(tensor));
    };
    add(kValues, model_->values());
    add(kFirst, first_moment_);
    add(kSecond, second_moment_);
  }
  return WriteSafetensors(file, content);
}

Status Trainer::Load(const std::filesystem::path& file) {
  const StatusOr<TensorFile> content = ReadSafetensors(file);
  if (!content.ok()) return content.status();
  const auto metadata = [&](const char* key) {
    const auto found = content->metadata.find(key);
    return found == content->metadata.end() ? std::string() : found->second;
  };
  if (metadata("options") != Fingerprint()) {
    return InvalidArgument(fmt::format("{}: a checkpoint of other options", file.native()));
  }
  const std::string text = metadata("step");
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < 0) {
    return InvalidArgument(fmt::format("{}: step is not a number", file.native()));
  }
  // Everything is checked before anything changes.
  for (const bool copy : {false, true}) {
    for (const ParameterSpec& spec : model_->parameters()) {
      for (const auto& [prefix, to] :
           {std::pair(kValues, &model_->values()), std::pair(kFirst, &first_moment_),
            std::pair(kSecond, &second_moment_)}) {
        const auto found = content->tensors.find(prefix + spec.name);
        if (found == content->tensors.end() || found->second.dtype() != DType::kF32 ||
            found->second.shape() != Shape{spec.rows, spec.columns}) {
          return InvalidArgument(
              fmt::format("{}: no right tensor {}{}", file.native(), prefix, spec.name));
        }
        if (copy) {
          std::memcpy(to->data() + spec.offset, found->second.bytes(), found->second.byte_size());
        }
      }
    }
  }
  step_ = step;
  return Status();
}

}  // namespace attest
