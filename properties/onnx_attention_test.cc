// SPDX-License-Identifier: Apache-2.0
// ONNX's Attention, written down a second time, against the cases that node tests become: every
// combination of inputs and attributes, mistakes that must be found, and what is declined.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "audit/audit.h"
#include "audit/onnx_suite.h"
#include "properties/plain_onnx_attention.h"

namespace attest {
namespace {

using nlohmann::ordered_json;

ordered_json AuditOf(const PlainCall& call, const std::string& name) {
  OnnxSuite suite;
  StatusOr<std::vector<OnnxCase>> cases =
      AttentionCases(name, call.model(), call.data(), &suite.declined);
  EXPECT_TRUE(cases.ok()) << name << ": " << cases.status().message();
  if (!cases.ok()) return {{"verdict", "none"}, {"findings", ordered_json::array()}};
  EXPECT_TRUE(suite.declined.empty());
  EXPECT_EQ(cases->size(), call.has_scores() ? 2u : 1u);
  suite.cases = *std::move(cases);
  Auditor auditor(CasesOf(suite), {});
  return *auditor.Audit(*MakeStoredSubject(suite, "plain"), "test");
}

constexpr std::uint64_t kSeeds = 400;

TEST(OnnxAttention, IsTheFunctionOfItsDefinition) {
  Index elements = 0;
  Index rounded_otherwise = 0;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const ordered_json record =
        AuditOf(PlainCall(seed, Mistake::kNone), "seed " + std::to_string(seed));
    ASSERT_EQ(record["verdict"], "conforms") << "seed " << seed << record["findings"].dump(2);
    elements += record["elements"]["compared"].get<Index>();
    rounded_otherwise += record["elements"]["not_correctly_rounded"].get<Index>();
  }
  std::printf("  %lld elements, %lld not the correctly rounded value\n",
              static_cast<long long>(elements), static_cast<long long>(rounded_otherwise));
  // Double arithmetic errs by some 2^-50, so that one f32 in millions is another.
  EXPECT_LE(rounded_otherwise * 10000, elements);
}

TEST(OnnxAttention, TellsEveryMistake) {
  for (const Mistake mistake :
       {Mistake::kCausalByOne, Mistake::kPastIgnored, Mistake::kLengthsIgnored,
        Mistake::kShortMaskAllows, Mistake::kHeadsInTurn, Mistake::kCapAfterMask}) {
    bool found = false;
    for (std::uint64_t seed = 0; seed < kSeeds && !found; ++seed) {
      found = AuditOf(PlainCall(seed, mistake), "call")["verdict"] == "findings";
    }
    EXPECT_TRUE(found) << "mistake " << static_cast<int>(mistake);
  }
}

// A call of a seed with a change to its model and data.
Status StatusOf(std::uint64_t seed, const std::function<void(OnnxModel*, OnnxDataSet*)>& change) {
  const PlainCall call(seed, Mistake::kNone);
  OnnxModel model = call.model();
  OnnxDataSet data = call.data();
  change(&model, &data);
  std::vector<OnnxDeclined> declined;
  return AttentionCases("call", model, data, &declined).status();
}

TEST(OnnxAttention, SaysWhatItDoesNotTake) {
  using Change = std::function<void(OnnxModel*, OnnxDataSet*)>;
  const auto attribute = [](const std::string& name, OnnxAttribute value) -> Change {
    return [name, value](OnnxModel* model, OnnxDataSet*) { model->attributes[name] = value; };
  };
  const auto resize = [](const std::string& name, const Shape& shape) -> Change {
    return [name, shape](OnnxModel* model, OnnxDataSet* data) {
      TensorMap& tensors = name == "Y" ? data->outputs : data->inputs;
      tensors[name] = Tensor(DType::kF32, shape);
      if (name == "mask") model->inputs[3] = "mask";
    };
  };
  struct Row {
    Change change;
    StatusCode code;
    std::string message;
  };
  const std::vector<Row> rows{
      {[](OnnxModel* m, OnnxDataSet*) { m->opset = 22; }, StatusCode::kUnsupported, "version 22"},
      {[](OnnxModel* m, OnnxDataSet*) { m->opset = 25; }, StatusCode::kUnsupported, "version 25"},
      {attribute("left_window_size", std::int64_t{2}), StatusCode::kUnsupported,
       "\"left_window_size\""},
      {attribute("softmax_precision", std::int64_t{10}), StatusCode::kUnsupported,
       "a softmax in f16"},
      {attribute("softmax_precision", std::int64_t{11}), StatusCode::kOk, ""},
      {attribute("softmax_precision", std::int64_t{7}), StatusCode::kInvalidArgument,
       "no floating-point type"},
      {attribute("is_causal", std::int64_t{2}), StatusCode::kInvalidArgument, "'is_causal'"},
      {attribute("is_causal", 1.0), StatusCode::kInvalidArgument, "another type"},
      {attribute("qk_matmul_output_mode", std::int64_t{4}), StatusCode::kInvalidArgument,
       "not 0 to 3"},
      {attribute("scale", kInfinity), StatusCode::kInvalidArgument, "not finite"},
      {attribute("softcap", -1.0), StatusCode::kInvalidArgument, "negative"},
      {attribute("q_num_heads", std::int64_t{77}), StatusCode::kInvalidArgument, "77"},
      {resize("Q", {1, 2}), StatusCode::kInvalidArgument, "expected rank 4, or"},
      {resize("K", {1, 2}), StatusCode::kInvalidArgument, "K and V have different ranks"},
      {resize("mask", {99}), StatusCode::kInvalidArgument, "broadcasts"},
      {resize("mask", {}), StatusCode::kInvalidArgument, "rank 1 to 4"},
      {resize("Y", {1}), StatusCode::kInvalidArgument, "Y: expected f32"},
      {[](OnnxModel*, OnnxDataSet* d) {
         d->inputs["K"] = Tensor(DType::kF16, d->inputs["K"].shape());
       },
       StatusCode::kUnsupported, "K in f16"},
      {[](OnnxModel* m, OnnxDataSet*) { m->inputs[1] = ""; }, StatusCode::kInvalidArgument,
       "the input K"},
      {[](OnnxModel* m, OnnxDataSet*) { m->inputs.resize(9); }, StatusCode::kInvalidArgument,
       "more inputs"},
  };
  for (const Row& row : rows) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const Status status = StatusOf(seed, row.change);
      EXPECT_EQ(status.code(), row.code) << row.message << ": " << status.message();
      EXPECT_NE(status.message().find(row.message), std::string::npos)
          << row.message << ": " << status.message();
    }
  }
  // Only calls with key lengths or a past.
  bool too_long = false;
  bool half_a_past = false;
  bool both = false;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const OnnxModel model = PlainCall(seed, Mistake::kNone).model();
    const auto refused = [&](const Change& change, const std::string& message) {
      const Status status = StatusOf(seed, change);
      EXPECT_NE(status.message().find(message), std::string::npos) << status.message();
      return !status.ok();
    };
    if (!model.inputs[6].empty()) {
      too_long = refused([](OnnxModel*, OnnxDataSet* d) { d->inputs["lengths"].Set(0, 99); },
                         "kv_lengths");
    }
    if (model.inputs[4].empty()) continue;
    half_a_past = refused([](OnnxModel* m, OnnxDataSet*) { m->inputs[5] = ""; }, "only one of");
    both = refused(
        [](OnnxModel* m, OnnxDataSet* d) {
          m->inputs[6] = "lengths";
          d->inputs["lengths"] = Tensor(DType::kI32, {1});
        },
        "nonpad_kv_seqlen beside past_key");
  }
  EXPECT_TRUE(too_long && half_a_past && both);
}

// The LSE of the contract has no 16-bit type, so scores in one are declined, and the rest is not.
TEST(OnnxAttention, DeclinesScoresInSixteenBits) {
  Index declined_scores = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const PlainCall call(seed, Mistake::kNone);
    OnnxDataSet data;
    const auto narrow = [](const TensorMap& from, TensorMap* to) {
      for (const auto& [name, tensor] : from) {
        Tensor& narrowed = (*to)[name] = tensor;
        if (tensor.dtype() != DType::kF32) continue;
        narrowed = Tensor(DType::kF16, tensor.shape());
        for (Index i = 0; i < tensor.size(); ++i) narrowed.Set(i, tensor.At(i));
      }
    };
    narrow(call.data().inputs, &data.inputs);
    narrow(call.data().outputs, &data.outputs);
    std::vector<OnnxDeclined> declined;
    const StatusOr<std::vector<OnnxCase>> cases =
        AttentionCases("call", call.model(), data, &declined);
    ASSERT_TRUE(cases.ok()) << cases.status().message();
    EXPECT_EQ(cases->size(), 1u);
    EXPECT_EQ(declined.size(), call.has_scores() ? 1u : 0u);
    declined_scores += static_cast<Index>(declined.size());
  }
  EXPECT_GT(declined_scores, 0);
}

}  // namespace
}  // namespace attest
