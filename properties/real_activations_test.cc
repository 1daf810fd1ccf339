// SPDX-License-Identifier: Apache-2.0
// The experiment "real-activations": its figures against independent ones, its 8-bit attention
// where closed forms are known, and the same tables at any number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "experiments/activation_heads.h"
#include "experiments/experiment.h"
#include "experiments/quantised_attention.h"
#include "experiments/tensor_metrics.h"

namespace attest {
namespace {

using Json = nlohmann::ordered_json;

TEST(ActivationHeads, AreTheShippedOnesWithoutPadding) {
  const StatusOr<std::vector<ActivationHead>> heads = ReadActivationHeads();
  ASSERT_TRUE(heads.ok()) << heads.status().message();
  ASSERT_EQ(heads->size(), 30U);
  const std::vector<Index> lengths{5, 8, 25, 52, 128};
  for (std::size_t i = 0; i < heads->size(); ++i) {
    const ActivationHead& head = (*heads)[i];
    const bool first = i < 20;
    EXPECT_EQ(head.layer, first ? 0 : 1);
    EXPECT_EQ(head.tokens, first ? lengths[i / 4] : lengths[(i - 20) / 2]);
    EXPECT_EQ(head.head, static_cast<Index>(first ? i % 4 : i % 2));
    const Shape shape{1, 1, head.tokens, first ? 64 : 128};
    for (const char* name : {"q", "k", "v"}) {
      EXPECT_EQ(head.problem.tensors.at(name).shape(), shape);
    }
    EXPECT_EQ(head.recorded.shape(), shape);
    EXPECT_EQ(head.problem.Find("bias"), nullptr);
  }
}

TEST(QuantisedAttention, CodesAreThoseOfTheirFormats) {
  const auto e5m2 = [](double x) { return RoundToCode(CodeFormat::kE5M2, x); };
  EXPECT_EQ(e5m2(1.1), 1.0);
  EXPECT_EQ(e5m2(1.125), 1.0);  // a tie, to even
  EXPECT_EQ(e5m2(-1.375), -1.5);
  EXPECT_EQ(e5m2(1e9), 57344.0);
  EXPECT_EQ(e5m2(0x1p-16), 0x1p-16);  // the smallest subnormal
  EXPECT_EQ(e5m2(0x1p-17), 0.0);
  EXPECT_EQ(e5m2(0x1.8p-17), 0x1p-16);
  EXPECT_EQ(RoundToCode(CodeFormat::kInt8, 2.5), 2.0);
  EXPECT_EQ(RoundToCode(CodeFormat::kInt8, -200.0), -127.0);
  EXPECT_EQ(RoundToCode(CodeFormat::kE4M3, 500.0), 448.0);
  EXPECT_EQ(RoundToCode(CodeFormat::kF16, 2049.0), 2048.0);
}

// Equal keys: weights 1/2. A column 1, 1/2 has the INT8 codes 127, 64 and so the mean 191/254; f16
// and the 8-bit floats have 3/4.
TEST(QuantisedAttention, OfEqualKeysIsTheMeanOfTheCodes) {
  const AttentionProblem problem{1, 2, 2, 1, 1.0, {1.0, -3.0}, {2.0, 1.0, 2.0, 1.0}, {1.0, 0.5}};
  for (const CodeFormat pv :
       {CodeFormat::kF16, CodeFormat::kE4M3, CodeFormat::kE5M2, CodeFormat::kInt8}) {
    const std::vector<double> out = QuantisedAttention(problem, {CodeFormat::kInt8, false, pv});
    ASSERT_EQ(out.size(), 1U);
    EXPECT_NEAR(out[0], pv == CodeFormat::kInt8 ? 191.0 / 254 : 0.75, 0x1p-12) << NameOf(pv);
  }
}

// Keys 1/8 and -1/8 beside a common part of 1024 both have the INT8 codes (127, 0); without the
// common part they differ, and softmax is what it was.
TEST(QuantisedAttention, SmoothKeysForgetTheirCommonPart) {
  const AttentionProblem plain{1, 2, 2, 1, 1.0, {0.0, 1.0}, {0.0, 0.125, 0.0, -0.125}, {1.0, 0.0}};
  AttentionProblem shifted = plain;
  shifted.k[0] = shifted.k[2] = 1024.0;
  const Quantisation smooth{CodeFormat::kInt8, true, CodeFormat::kF16};
  const Quantisation rough{CodeFormat::kInt8, false, CodeFormat::kF16};
  const double right = 1.0 / (1.0 + std::exp(-0.25));
  EXPECT_NEAR(QuantisedAttention(shifted, smooth)[0], right, 1e-3);
  EXPECT_EQ(QuantisedAttention(shifted, smooth), QuantisedAttention(plain, smooth));
  EXPECT_NEAR(QuantisedAttention(plain, rough)[0], right, 1e-3);
  EXPECT_EQ(QuantisedAttention(shifted, rough)[0], 0.5);
}

TEST(TensorMetrics, OfASmallExample) {
  const TensorMetrics m = MetricsOf({3.0, 4.0, 0.0, 0.0}, {3.0, 4.0, 0.0, 1.0}, 2);
  EXPECT_NEAR(m.cosine, 25.0 / (5.0 * std::sqrt(26.0)), 1e-15);
  EXPECT_NEAR(m.relative_l1, 1.0 / 8, 1e-15);
  EXPECT_NEAR(m.rmse, 0.5, 1e-15);
  EXPECT_EQ(m.worst_row, 1.0);
}

Json RecordOf(int threads) {
  ExperimentOptions options;
  options.threads = threads;
  StatusOr<Json> record = RunExperiment("real-activations", options);
  EXPECT_TRUE(record.ok()) << record.status().message();
  return record.ok() ? *std::move(record) : Json();
}

// The row of a layer, head and length; of the first type where there are several.
const Json& RowOf(const Json& table, int layer, int head, int tokens) {
  for (const Json& row : table["rows"]) {
    if (row[0] == layer && row[1] == head && row[2] == tokens) return row;
  }
  ADD_FAILURE() << "no such row";
  return table["rows"][0];
}

void ExpectNear(const Json& row, std::size_t from, const std::vector<double>& expected,
                double relative) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(row[from + i].get<double>(), expected[i], relative * std::fabs(expected[i]))
        << row << " at " << from + i;
  }
}

// Two heads were computed in Python's doubles from the files: loss by rounding, shape of the
// weights, error of TensorFlow.js.
TEST(RealActivations, GivesIndependentFiguresAndRepeats) {
  const Json record = RecordOf(2);
  const Json& losses = record["tables"][0];
  const Json& shapes = record["tables"][1];
  const Json& kernels = record["tables"][2];
  const Json& errors = record["tables"][3];
  ASSERT_EQ(losses["rows"].size(), 30U);
  ExpectNear(RowOf(losses, 0, 1, 128), 4, {0.008497373816208815}, 1e-9);
  ExpectNear(RowOf(losses, 0, 1, 128), 8, {0.0010734161158812983}, 1e-9);
  ExpectNear(RowOf(losses, 1, 0, 25), 4, {0.00164499227544692}, 1e-9);
  ExpectNear(RowOf(losses, 1, 0, 25), 8, {0.00019480328485394537}, 1e-9);
  ExpectNear(RowOf(shapes, 0, 1, 128), 4,
             {-30.419131619020884, 34.04845697227555, 49.26399619168994, 0.20850955189072187,
              0.00214494081363213, 0.6762027389040958, 3.806821051274383, 3.7375799204851248,
              4.529245327178172, 0.7722792517078845},
             1e-6);
  ExpectNear(RowOf(shapes, 0, 1, 128), 15, {3.894651610815269, 126}, 1e-6);
  ExpectNear(RowOf(shapes, 1, 0, 25), 4,
             {-3.8455046982220735, 5.231652602607817, 7.835144938316404, 0.7867848815254974,
              0.3787532575714084, 0.250011778301757, 3.904333068666654, 3.966268605942849,
              3.7075984323359217, 0.32826916787108695},
             1e-6);
  ExpectNear(RowOf(shapes, 1, 0, 25), 15, {4.4843965978207905, 3}, 1e-6);
  ExpectNear(RowOf(errors, 0, 1, 128), 10, {4.599823634837852e-07}, 1e-6);
  ExpectNear(RowOf(errors, 1, 0, 25), 10, {1.1465140539764738e-07}, 1e-6);

  // The verdict is what the rule makes of the first table.
  double factor = 0.0;
  for (const Json& row : losses["rows"]) {
    EXPECT_NEAR(row[7].get<double>(), row[4].get<double>() / row[5].get<double>(), 1e-12);
    if (row[4] > row[6]) factor = std::max(factor, row[7].get<double>());
  }
  EXPECT_EQ(record["verdict"], factor >= 5.0   ? "reproduced"
                               : factor >= 2.0 ? "reproduced with limits"
                                               : "not reproduced");
  // Every kernel keeps its bound, on both kinds of inputs.
  ASSERT_EQ(kernels["rows"].size(), 3U * 12 + 1);
  for (const Json& row : kernels["rows"]) {
    EXPECT_GT(row[2].get<double>(), 0.0) << row;
    EXPECT_LE(row[2].get<double>(), 1.0) << row;
    if (!row[4].is_null()) {
      EXPECT_LE(row[4].get<double>(), 1.0) << row;
    }
  }
  const Json& quantised = record["tables"][4]["rows"];
  ASSERT_EQ(quantised.size(), 32U);
  for (const Json& row : quantised) {
    EXPECT_GT(row[3].get<double>(), 0.99) << row;
    EXPECT_GE(row[3].get<double>(), row[4].get<double>()) << row;
    EXPECT_GT(row[9].get<double>(), row[6].get<double>()) << row;
  }
  // Heat maps: one list for each length, one value for each head.
  for (const std::size_t plot : {1U, 2U}) {
    const Json& map = record["plots"][plot];
    EXPECT_EQ(map["kind"], "heatmap");
    EXPECT_EQ(map["y"]["values"], Json({5, 8, 25, 52, 128}));
    ASSERT_EQ(map["x"]["values"].size(), 6U);
    EXPECT_EQ(map["x"]["values"][1], "L0 h1");
    for (const Json& row : map["z"]["values"]) EXPECT_EQ(row.size(), 6U);
  }
  EXPECT_EQ(record["plots"][1]["z"]["values"][4][1], RowOf(losses, 0, 1, 128)[7]);
  EXPECT_EQ(record["plots"][2]["z"]["values"][2][4], RowOf(shapes, 1, 0, 25)[7]);

  EXPECT_EQ(record["tables"], RecordOf(1)["tables"]);
}

}  // namespace
}  // namespace attest
