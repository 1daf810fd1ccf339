// SPDX-License-Identifier: Apache-2.0
// Training with Adam, and checkpoints from which it goes on with the same bits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/status.h"
#include "experiments/seq2seq/model.h"
#include "experiments/seq2seq/sentences.h"

namespace attest {

struct TrainOptions {
  std::int64_t steps = 1200;
  // The rate rises linearly for so many steps, then falls along a cosine to last_share of itself.
  std::int64_t warm_up = 200;
  double learning_rate = 4e-3;
  double last_share = 0.05;
  double clip = 1.0;       // largest Euclidean norm of a step's gradient
  int batch = 64;          // sentences
  int pool = 20;           // batches that are cut from one draw sorted by length
  std::uint64_t seed = 0;  // of the order of batches

  bool operator==(const TrainOptions&) const = default;
};

// Sentences first, ..., first + count - 1 of an endless series; a pure function of its arguments.
using DrawSentences =
    std::function<std::vector<SentencePair>(std::int64_t first, std::int64_t count)>;

struct TrainProgress {
  std::int64_t step = 0;  // done
  BatchResult batch;      // of the last step
};

// Everything that training changes, besides the model's values: Adam's moments (Kingma and Ba 2015;
// 0.9, 0.999, 1e-8) and the number of steps done. Sentences and their order follow from that
// number.
class Trainer {
 public:
  // The model must outlive it.
  Trainer(Model<float>* model, const TrainOptions& options, DrawSentences draw);

  std::int64_t step() const { return step_; }
  bool done() const { return step_ >= options_.steps; }

  // One step.
  StatusOr<BatchResult> Step();
  // Steps until `last` are done, or all of them; calls `progress` after each.
  Status Run(std::int64_t last, const std::function<void(const TrainProgress&)>& progress = {});

  // Values, moments and step, all or nothing: a process that is killed leaves the old file or the
  // new one.
  Status Save(const std::filesystem::path& file) const;
  // InvalidArgument for a checkpoint of other options; then nothing has changed.
  Status Load(const std::filesystem::path& file);

 private:
  std::string Fingerprint() const;
  double Rate() const;  // of the step to come
  void Update(double rate);

  Model<float>* model_;
  TrainOptions options_;
  DrawSentences draw_;
  std::int64_t step_ = 0;
  std::vector<float> first_moment_;
  std::vector<float> second_moment_;
  std::int64_t pool_number_ = -1;  // of pool_
  std::vector<std::vector<SentencePair>> pool_;
};

}  // namespace attest
