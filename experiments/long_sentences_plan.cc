// SPDX-License-Identifier: Apache-2.0
// Which models are trained, on what and for how long.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "experiments/long_sentences.h"

namespace attest {
namespace {

constexpr std::uint64_t kSeeds = 5;
constexpr std::uint64_t kFewerSeeds = 3;  // of the parts beside the curves

}  // namespace

std::string TrainingJob::Title() const {
  std::string title = model;
  if (task != "synthetic") title += " on " + task;
  if (part == "width") title += fmt::format(", width {}", decoder);
  if (part == "scaling") {
    title += fmt::format(", D_k = {}, {} 1/sqrt(D_k)", attention, scaled ? "with" : "without");
  }
  return title + fmt::format(", seed {}", seed);
}

nlohmann::ordered_json TrainingJob::ToJson() const {
  return {{"part", part},       {"task", task},           {"model", model},
          {"scaled", scaled},   {"embedding", embedding}, {"encoder", encoder},
          {"decoder", decoder}, {"attention", attention}, {"batch", batch},
          {"steps", steps},     {"warm_up", warm_up},     {"learning_rate", learning_rate},
          {"seed", seed}};
}

std::vector<TrainingJob> PlanTrainings(const ExperimentOptions& options,
                                       std::span<const std::string> models) {
  std::vector<TrainingJob> jobs;
  const auto has = [&](const char* model) {
    return std::find(models.begin(), models.end(), model) != models.end();
  };
  TrainingJob usual{.part = "curves", .task = "synthetic", .model = ""};
  if (options.quick) {
    usual.steps = 800;
    usual.warm_up = 100;
  }
  const std::uint64_t seeds = options.quick ? 1 : kSeeds;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    for (const std::string& model : models) {
      if (options.quick && model != "fixed" && model != "bahdanau") continue;
      jobs.push_back(usual);
      jobs.back().model = model;
      jobs.back().seed = options.seed + seed;
    }
  }
  if (options.quick) return jobs;

  for (std::uint64_t seed = 1; seed <= kFewerSeeds; ++seed) {
    // The width of the part "curves" is the first of three; nothing but widths differs, and the
    // learning rate, which wide models need lower.
    for (const int width : {192, 384}) {
      if (!has("fixed")) continue;
      TrainingJob job = usual;
      job.part = "width";
      job.model = "fixed";
      job.embedding = width / 3;
      job.encoder = width / 2;
      job.decoder = width;
      job.learning_rate = width == 192 ? 3e-3 : 2e-3;
      job.seed = options.seed + seed;
      jobs.push_back(job);
    }
    for (const int dim : {16, 32, 64, 128, 256, 512}) {
      for (const bool scaled : {true, false}) {
        if (!has("qkv")) continue;
        TrainingJob job = usual;
        job.part = "scaling";
        job.model = "qkv";
        job.attention = dim;
        job.scaled = scaled;
        job.seed = options.seed + seed;
        jobs.push_back(job);
      }
    }
    for (const char* task : {"kjv-web", "web-rv"}) {
      for (const char* model : {"fixed", "bahdanau", kCopyModel}) {
        const bool copies = model == std::string_view(kCopyModel);
        if (copies ? seed > 1 : !has(model)) continue;
        TrainingJob job = usual;
        job.part = "text";
        job.task = task;
        job.model = model;
        job.embedding = 64;
        job.encoder = 64;
        job.decoder = 128;
        job.steps = 1500;
        job.learning_rate = 3e-3;
        job.seed = options.seed + seed;
        jobs.push_back(job);
      }
    }
  }
  return jobs;
}

}  // namespace attest
