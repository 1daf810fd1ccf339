// SPDX-License-Identifier: Apache-2.0
// Training: it lowers the loss, and gives the same bits again, on threads and after a kill.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "experiments/seq2seq/train.h"

namespace attest {
namespace {

ModelOptions Small(Architecture architecture, std::uint64_t seed) {
  return {.architecture = architecture,
          .source_words = 14,
          .target_words = 14,
          .embedding = 16,
          .encoder = 16,
          .decoder = 32,
          .attention = 16,
          .feed_forward = 48,
          .seed = seed};
}

// Copying with another alphabet; a sentence depends on its number alone.
std::vector<SentencePair> Draw(std::int64_t first, std::int64_t count) {
  std::vector<SentencePair> pairs;
  for (std::int64_t i = first; i < first + count; ++i) {
    const RandomStream stream(5, "copies", std::to_string(i));
    SentencePair pair;
    const auto length = 2 + static_cast<int>(stream.Below(0, 5));
    for (int j = 0; j < length; ++j) {
      const auto word = static_cast<int>(stream.Below(static_cast<std::uint64_t>(j + 1), 10));
      pair.source.push_back(kFirstWord + word);
      pair.target.push_back(kFirstWord + (word + 3) % 10);
    }
    pairs.push_back(pair);
  }
  return pairs;
}

TrainOptions Short() {
  return {.steps = 60, .warm_up = 10, .learning_rate = 1e-2, .batch = 16, .pool = 4, .seed = 2};
}

std::vector<float> Trained(Architecture architecture, std::uint64_t seed) {
  Model<float> model(Small(architecture, seed));
  Trainer trainer(&model, Short(), Draw);
  EXPECT_TRUE(trainer.Run(Short().steps).ok());
  return model.values();
}

TEST(Seq2seqTraining, LowersTheLossOfEveryArchitecture) {
  for (const Architecture architecture : Architectures()) {
    Model<float> model(Small(architecture, 1));
    TrainOptions options = Short();
    options.steps = 200;
    Trainer trainer(&model, options, Draw);
    const std::vector<SentencePair> held_out = Draw(1 << 20, 100);
    const double before = model.Run(held_out, false)->loss;
    std::int64_t last = 0;
    ASSERT_TRUE(trainer
                    .Run(options.steps,
                         [&](const TrainProgress& progress) {
                           EXPECT_EQ(progress.step, ++last);
                           EXPECT_GT(progress.batch.flops, 0.0);
                         })
                    .ok());
    EXPECT_TRUE(trainer.done());
    const double after = model.Run(held_out, false)->loss;
    EXPECT_LT(after, 0.75 * before) << NameOf(architecture);
  }
}

TEST(Seq2seqTraining, SameBitsOnAnyThread) {
  const std::vector<Architecture> kinds{Architecture::kBahdanau, Architecture::kQueryKeyValue};
  std::vector<std::vector<float>> alone;
  for (const Architecture kind : kinds) alone.push_back(Trained(kind, 4));
  std::vector<std::vector<float>> beside(kinds.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    threads.emplace_back([&, i] { beside[i] = Trained(kinds[i], 4); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, beside);
  EXPECT_NE(alone[0], Trained(kinds[0], 5));
}

// A process is killed at an arbitrary moment while it saves after every step; another goes on from
// what it left.
TEST(Seq2seqTraining, KilledAndResumedGivesTheSameBits) {
  const std::vector<float> whole = Trained(Architecture::kBahdanau, 4);
  const std::filesystem::path directory = testing::TempDir();
  for (const int patience : {0, 2, 20}) {  // ms after the first checkpoint
    const std::filesystem::path file =
        directory / ("seq2seq_" + std::to_string(::getpid()) + "_" + std::to_string(patience));
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Model<float> model(Small(Architecture::kBahdanau, 4));
      Trainer trainer(&model, Short(), Draw);
      while (!trainer.done()) {
        if (!trainer.Step().ok() || !trainer.Save(file).ok()) ::_exit(1);
      }
      for (;;) ::pause();
    }
    while (!std::filesystem::exists(file) && ::waitpid(child, nullptr, WNOHANG) == 0) {
      ::usleep(500);
    }
    ::usleep(static_cast<useconds_t>(1000 * patience));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));

    Model<float> model(Small(Architecture::kBahdanau, 4));
    Trainer trainer(&model, Short(), Draw);
    const Status loaded = trainer.Load(file);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_GE(trainer.step(), 1);
    ASSERT_TRUE(trainer.Run(Short().steps).ok());
    EXPECT_EQ(model.values(), whole) << "killed after " << trainer.step() << " steps";
    std::filesystem::remove(file);
  }
}

TEST(Seq2seqTraining, CheckpointsOfOtherOptionsAreRefused) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / ("seq2seq_other_" + std::to_string(::getpid()));
  Model<float> model(Small(Architecture::kDot, 4));
  Trainer trainer(&model, Short(), Draw);
  ASSERT_TRUE(trainer.Run(2).ok());
  ASSERT_TRUE(trainer.Save(file).ok());
  Model<float> other(Small(Architecture::kDot, 5));
  const std::vector<float> before = other.values();
  Trainer others(&other, Short(), Draw);
  EXPECT_EQ(others.Load(file).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(other.values(), before);
  EXPECT_EQ(others.step(), 0);
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace attest
