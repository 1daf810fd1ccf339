// SPDX-License-Identifier: Apache-2.0
// Emulated formats and attention in them: against their definitions, and the experiments on them
// against numbers known by other means.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "experiments/emulated_attention.h"
#include "experiments/experiment.h"
#include "experiments/rounded_arithmetic.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

ordered_json RecordOf(const std::string& name, int threads = 1) {
  ExperimentOptions options;
  options.threads = threads;
  StatusOr<ordered_json> record = RunExperiment(name, options);
  EXPECT_TRUE(record.ok()) << record.status().message();
  return *std::move(record);
}

// The first row of a table whose leading entries are these.
ordered_json RowOf(const ordered_json& table, const std::vector<ordered_json>& leading) {
  for (const ordered_json& row : table["rows"]) {
    if (std::equal(leading.begin(), leading.end(), row.begin())) return row;
  }
  ADD_FAILURE() << "no such row in " << table["title"];
  return {};
}

// The 127 finite non-negative numbers of OFP8 E4M3 by their codes: S EEEE MMM, bias 7.
double E4M3(int code) {
  const int exponent = code >> 3;
  const int mantissa = code & 7;
  if (exponent == 0) return mantissa / 8.0 * 0x1p-6;
  return (1.0 + mantissa / 8.0) * std::ldexp(1.0, exponent - 7);
}

TEST(Rounder, E4M3IsItsDefinitionBetweenAnyTwoNeighbours) {
  const Rounder round = NumberFormat::kE4M3;
  EXPECT_EQ(E4M3(1), 0x1p-9);
  EXPECT_EQ(E4M3(126), 448.0);
  for (int code = 0; code < 126; ++code) {
    const double low = E4M3(code);
    const double high = E4M3(code + 1);
    const double middle = (low + high) / 2;
    const double even = code % 2 == 0 ? low : high;
    for (const double sign : {1.0, -1.0}) {
      EXPECT_EQ(round(sign * low), sign * low);
      EXPECT_EQ(round(sign * std::nextafter(low, high)), sign * low);
      EXPECT_EQ(round(sign * std::nextafter(middle, low)), sign * low) << code;
      EXPECT_EQ(round(sign * middle), sign * even) << code;
      EXPECT_EQ(round(sign * std::nextafter(middle, high)), sign * high) << code;
      EXPECT_EQ(std::signbit(round(sign * low)), sign < 0);
    }
  }
  for (const double beyond :
       {449.0, 464.0, 479.0, 480.0, 512.0, 1e300, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(round(beyond), 448.0);
    EXPECT_EQ(round(-beyond), -448.0);
  }
  EXPECT_TRUE(std::isnan(round(std::numeric_limits<double>::quiet_NaN())));
}

// RoundToDType works on integers; nothing of it is in Rounder.
TEST(Rounder, AgreesWithTheElementTypesOfTheContract) {
  const RandomStream stream(0, "rounder", "bits");
  for (const auto& pair :
       {std::pair{NumberFormat::kF32, DType::kF32}, std::pair{NumberFormat::kBF16, DType::kBF16},
        std::pair{NumberFormat::kF16, DType::kF16}}) {
    const Rounder round = pair.first;
    const auto check = [&](double x) {
      const double expected = RoundToDType(x, pair.second);
      const double got = round(x);
      EXPECT_TRUE(std::bit_cast<std::uint64_t>(got) == std::bit_cast<std::uint64_t>(expected) ||
                  (std::isnan(got) && std::isnan(expected)))
          << x << " in " << NameOf(pair.first) << ": " << got;
    };
    for (std::uint64_t i = 0; i < 20000; ++i) {
      const std::uint64_t bits = stream.Bits(i);
      check(std::bit_cast<double>(bits));
      // Short significands near the formats' exponents: ties, subnormals, the largest numbers.
      const double x = static_cast<double>(static_cast<std::int64_t>(bits) >> 50);
      check(std::ldexp(x, static_cast<int>(i % 340) - 170));
      check(std::ldexp(x, static_cast<int>(i % 48) - 36));
    }
    for (const double x : {65504.0, 65519.0, 65520.0, 0x1.fep127, 0x1.ffp127, 0x1.feffp127}) {
      check(x);
      check(-x);
    }
  }
}

// Two keys in tiles of one: s = 0, 1; P = 1, 1; factor e^-1 = 0.3678... -> 0.3672 (94/256) in bf16.
TEST(EmulatedAttention, RoundsWhereItSays) {
  AttentionProblem problem{1, 2, 1, 1, 1.0, {1.0}, {0.0, 1.0}, {1.0, 3.0}};
  RoundingPoints points;
  points.accumulator = NumberFormat::kBF16;
  const double factor = 94.0 / 256.0;
  EXPECT_EQ(Rounder(NumberFormat::kBF16)(std::exp(-1.0)), factor);
  const Rounder f32 = NumberFormat::kF32;
  const double o = 862.0 / 256.0;  // 3 + 94/256 = 862/256 -> a multiple of 4/256 (ties to even)
  EXPECT_EQ(TiledAttention(problem, points, 1)[0],
            f32(Rounder(NumberFormat::kBF16)(o) / (1 + factor)));
  // One tile of all keys rescales nothing: 3 + e^-1, then one rounding to bf16.
  const double e = f32(std::exp(-1.0));
  EXPECT_EQ(TiledAttention(problem, points, 2)[0],
            f32(Rounder(NumberFormat::kBF16)(f32(3.0 + e)) / f32(1.0 + e)));
}

TEST(EmulatedAttention, WithoutRoundingGivesTheCertifiedResult) {
  const Case drawn = NormalCase("emulation", 4, 100, 16, DType::kF32, true, 0);
  const StatusOr<std::vector<double>> exact = ExactOutputs(drawn, 1);
  ASSERT_TRUE(exact.ok()) << exact.status().message();
  const AttentionProblem problem = ProblemOf(drawn);
  RoundingPoints points;
  points.operations = points.scores = points.shifted = points.exponentials = NumberFormat::kF64;
  points.weights = points.sum = points.accumulator = points.output = NumberFormat::kF64;
  EXPECT_LT(DeviationOf(MaterialisedAttention(problem, points), *exact).largest, 1e-12);
  for (const TileOrder order : {TileOrder::kForward, TileOrder::kBackward, TileOrder::kShuffled}) {
    for (const Index tile : {1, 7, 32, 100, 200}) {
      EXPECT_LT(DeviationOf(TiledAttention(problem, points, tile, order), *exact).largest, 1e-12);
    }
  }
}

TEST(FlashStability, OneRoundingOfTheOutputIsHalfAnUlpAndTheAccumulatorIsTheCause) {
  const ordered_json record = RecordOf("flash-stability");
  EXPECT_EQ(record["verdict"], "reproduced with limits") << record["summary"];
  const ordered_json& points = record["tables"][2];
  for (const char* format : {"bf16", "f16"}) {
    // The same rounding of almost the same numbers; below 2^-9 (2^-12) of the largest output, 1/2.
    const ordered_json output = RowOf(points, {format, "output alone"});
    EXPECT_NEAR(output[4].get<double>(), 1.0, 0.05);
    EXPECT_LT(output[3].get<double>(), std::string(format) == "bf16" ? 0x1p-10 : 0x1p-13);
    // Nothing is stored in the materialised algorithm's accumulator.
    const ordered_json accumulator = RowOf(points, {format, "accumulator alone"});
    EXPECT_GT(accumulator[3].get<double>(), 2.0 * output[3].get<double>());
    EXPECT_GT(accumulator[4].get<double>(), 100.0);
  }
  EXPECT_EQ(record["tables"], RecordOf("flash-stability", 3)["tables"]);
}

TEST(Fp8Attention, GivesThePublishedFp8FiguresAndHidesTheF16GainInInputRounding) {
  const ordered_json record = RecordOf("fp8-attention");
  const ordered_json& table = record["tables"][0];
  const auto median = [&](const char* reference, const char* method) {
    return RowOf(table, {1024, 64, reference, method})[6].get<double>();
  };
  // Table 3 of FlashAttention-3.
  for (const auto& [method, published] : {std::pair{"fp8 standard, a scale per tensor", 2.4e-2},
                                          std::pair{"fp8 tiled, blocks and Hadamard", 9.1e-3},
                                          std::pair{"fp8 tiled, Hadamard, no blocks", 9.3e-3},
                                          std::pair{"fp8 tiled, blocks, no Hadamard", 2.4e-2}}) {
    EXPECT_GT(median("as drawn", method), published / 2) << method;
    EXPECT_LT(median("as drawn", method), published * 2) << method;
  }
  const double drawn = median("as drawn", "f16 standard") / median("as drawn", "f16 tiled");
  const double rounded =
      median("rounded to f16", "f16 standard") / median("rounded to f16", "f16 tiled");
  EXPECT_GT(drawn, 1.2);
  EXPECT_GT(rounded, 1.3 * drawn);
  EXPECT_EQ(record["tables"], RecordOf("fp8-attention", 3)["tables"]);
}

// -4.703990459442139 -> -4.71875 and its error are printed in Qiu and Yao 2025. Without a rest the
// bits below the last place of a sum of two are 0 or 1/2, which always goes away: -1/4 on average,
// less the dropped rest; of four 0, 1/4, 1/2, 3/4: -1/8.
TEST(BiasedRounding, FollowsTheTiedMaximaAndIsCured) {
  const ordered_json record = RecordOf("biased-rounding");
  EXPECT_EQ(record["verdict"], "reproduced") << record["summary"];
  EXPECT_EQ(record["tables"][0]["rows"][0],
            ordered_json({-4.703990459442139, -4.71875, -0.014759540557861328}));
  EXPECT_EQ(record["tables"][0]["rows"][1], ordered_json({-4.703125, -4.6875, 0.015625}));
  const ordered_json& table = record["tables"][1];
  EXPECT_NEAR(RowOf(table, {"negative", "m = r", 2})[3].get<double>(), -0.25, 0.02);
  EXPECT_NEAR(RowOf(table, {"negative", "m = r", 4})[3].get<double>(), -0.125, 0.02);
  for (int ties = 2; ties <= 8; ++ties) {
    EXPECT_NEAR(RowOf(table, {"negative", "m = 7 r", ties})[3].get<double>(), 0.0, 0.012);
    EXPECT_NEAR(RowOf(table, {"both", "m = r", ties})[3].get<double>(), 0.0, 0.012);
  }
  EXPECT_EQ(record["tables"], RecordOf("biased-rounding", 3)["tables"]);
}

// A row of zeros costs exactly its share of the squares.
TEST(ErrorMetrics, CosineHidesALostRow) {
  const ordered_json record = RecordOf("error-metrics");
  EXPECT_EQ(record["verdict"], "refuted") << record["summary"];
  const ordered_json zero = RowOf(record["tables"][0], {"f16, one row zero"});
  EXPECT_GT(zero[1].get<double>(), 0.999);
  EXPECT_EQ(zero[4].get<double>(), 1.0);
  const ordered_json opposite = RowOf(record["tables"][0], {"f16, one row of the opposite sign"});
  EXPECT_NEAR(opposite[4].get<double>(), 2.0, 1e-3);
  for (const ordered_json& row : record["tables"][1]["rows"]) {
    EXPECT_NEAR(row[1].get<double>(), row[2].get<double>(), 1e-6);
  }
  EXPECT_EQ(record["tables"], RecordOf("error-metrics", 3)["tables"]);
}

// 10 ln 2 and 18 ln 2, to the next 1/64.
TEST(WeightUnderflow, BeginsAtHalfTheSmallestNumber) {
  const ordered_json record = RecordOf("weight-underflow");
  EXPECT_EQ(record["verdict"], "reproduced") << record["summary"];
  EXPECT_EQ(RowOf(record["tables"][0], {1.0})[2], 444.0 / 64.0);
  EXPECT_EQ(RowOf(record["tables"][0], {256.0})[2], 799.0 / 64.0);
  // Backward, seven of eight tiles never meet the sink: about an eighth of the error is left.
  EXPECT_GT(RowOf(record["tables"][1], {14})[7].get<double>(), 7.0);
  EXPECT_EQ(record["tables"], RecordOf("weight-underflow", 3)["tables"]);
}

TEST(LongRows, SumsStopAtTwoToThePrecision) {
  const ordered_json record = RecordOf("long-rows");
  EXPECT_EQ(record["verdict"], "reproduced") << record["summary"];
  const ordered_json& ones = record["tables"][1];
  EXPECT_EQ(RowOf(ones, {"bf16", 65536}), ordered_json({"bf16", 65536, 256.0, 65536.0, 512.0}));
  EXPECT_EQ(RowOf(ones, {"f16", 4096}), ordered_json({"f16", 4096, 2048.0, 4096.0, 4096.0}));
  EXPECT_EQ(RowOf(ones, {"f16", 65536})[3], "infinity");
  EXPECT_EQ(RowOf(ones, {"f32", 65536}), ordered_json({"f32", 65536, 65536.0, 65536.0, 65536.0}));
  // 255 / 512 before the sink; beside it 2^-9 is less than half of 2^-7.
  EXPECT_EQ(RowOf(record["tables"][2], {"bf16", 65536}),
            ordered_json({"bf16", 65536, 1.0 + 65535.0 / 512.0, 1.0, 1.5}));
  for (const ordered_json& row : record["tables"][0]["rows"]) {
    EXPECT_LE(row[6].get<double>(), 1.0) << row;
  }
  EXPECT_EQ(record["tables"], RecordOf("long-rows", 3)["tables"]);
}

// e^g / (e^g + n - 1), with e^4 more for the sink, and n^(s g) / (n^(s g) + n - 1).
TEST(Dilution, FollowsTheClosedForms) {
  const ordered_json record = RecordOf("dilution");
  EXPECT_EQ(record["verdict"], "reproduced") << record["summary"];
  const ordered_json& table = record["tables"][0];
  for (const double n : {16.0, 1024.0, 65536.0}) {
    const auto weight = [&](const char* row) {
      return RowOf(table, {row, static_cast<Index>(n)})[3].get<double>();
    };
    const double e4 = std::exp(4.0);
    EXPECT_NEAR(weight("gap 4") * (e4 + n - 1) / e4, 1.0, 1e-13);
    EXPECT_NEAR(weight("gap 4, sink 4") * (2 * e4 + n - 1) / e4, 1.0, 1e-13);
    // The score is rounded to f32.
    const double power = std::pow(n, 1.2);
    EXPECT_NEAR(weight("gap 2, s = 0.6") * (power + n - 1) / power, 1.0, 1e-6);
  }
  EXPECT_EQ(record["tables"], RecordOf("dilution", 3)["tables"]);
}

}  // namespace
}  // namespace attest
