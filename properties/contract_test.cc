// SPDX-License-Identifier: Apache-2.0
// Reading contracts: what is accepted, and the one line that every refusal gives.
#include "core/contract.h"

#include <gtest/gtest.h>

#include <string>

namespace attest {
namespace {

const std::string kShape = R"("shape":{"q_len":4,"kv_len":6,"qk_dim":8,"v_dim":8})";

std::string ErrorOf(const std::string& text) {
  const StatusOr<Contract> contract = ParseContract(text);
  return contract.ok() ? "accepted" : contract.status().message();
}

TEST(ParseContract, FillsInTheDefaults) {
  const StatusOr<Contract> contract = ParseContract("{" + kShape + R"(,"dtype":"f32"})");
  ASSERT_TRUE(contract.ok()) << contract.status().message();
  EXPECT_EQ(contract->shape.batch, 1);
  EXPECT_EQ(contract->shape.kv_heads, 1);
  EXPECT_EQ(contract->shape.k_dim, 8);
  EXPECT_EQ(contract->out_dtype, DType::kF32);
  EXPECT_TRUE(contract->scale.rsqrt_dk);
  EXPECT_EQ(contract->causal, Causal::kNone);
  EXPECT_EQ(contract->empty_row, EmptyRow::kZero);
  EXPECT_EQ(contract->arithmetic.profile, "f32");
}

TEST(ParseContract, ReadsTheWholeExampleAndWritesItBack) {
  const std::string text = R"({"attest_contract": 1,
    "shape": {"batch":1, "q_heads":8, "kv_heads":2, "q_len":128, "kv_len":256, "qk_dim":64, "v_dim":64},
    "dtype": "bf16", "out_dtype": "bf16",
    "score": {"kind":"dot", "scale":0.125, "softcap": 30},
    "mask": {"causal":"bottom_right", "window":[16,0], "alibi": "default"},
    "empty_row": "nan", "dropout": {"rate": 0.1}, "local": {"half_width": 10, "gaussian": true},
    "outputs": ["out","lse","weights","grad_q","grad_k","grad_v"],
    "arithmetic": {"profile":"bf16-flash", "accumulate":"f32", "probabilities":"bf16",
                   "exp_ulp": 1, "deterministic": true, "batch_invariant": false}})";
  const StatusOr<Contract> contract = ParseContract(text);
  ASSERT_TRUE(contract.ok()) << contract.status().message();
  EXPECT_EQ(contract->shape.kv_heads, 2);
  EXPECT_FALSE(contract->scale.rsqrt_dk);
  EXPECT_EQ(contract->scale.value, 0.125);
  EXPECT_EQ(contract->softcap, 30);
  EXPECT_EQ(contract->window.left, 16);
  EXPECT_EQ(contract->window.right, 0);
  EXPECT_EQ(contract->alibi, Alibi::kDefault);
  EXPECT_EQ(contract->empty_row, EmptyRow::kNan);
  EXPECT_EQ(contract->local->half_width, 10);
  EXPECT_EQ(contract->arithmetic.exp_ulp, 1);
  EXPECT_TRUE(contract->Wants("grad_k"));

  const std::string written = ContractToJson(*contract);
  const StatusOr<Contract> again = ParseContract(written);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(ContractToJson(*again), written);
}

struct Refusal {
  const char* text;     // after the shape and before the closing brace
  const char* message;  // how the error begins
};

class RefusedContract : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedContract, NamesTheFieldInOneLine) {
  const std::string error = ErrorOf("{" + kShape + "," + GetParam().text + "}");
  EXPECT_TRUE(error.starts_with(GetParam().message)) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

INSTANTIATE_TEST_SUITE_P(
    Fields, RefusedContract,
    ::testing::Values(
        Refusal{R"("dtype":"f32","colour":1)", "colour: unknown field"},
        Refusal{R"("dtype":"f32","mask":{"casual":"none"})", "mask.casual: unknown field"},
        Refusal{R"("dtype":"f32","dtype":"f32")", "contract: JSON: field 'dtype' appears twice"},
        Refusal{R"("dtype":"f32","mask":{"causal":"none","causal":"none"})",
                "contract: JSON: field 'causal' appears twice"},
        Refusal{R"("dtype":"f32","a\nb":1)", "a\\x0ab: unknown field"},
        Refusal{R"("dtype":"f32","a\nb":1,"a\nb":1)",
                "contract: JSON: field 'a\\x0ab' appears twice"},
        Refusal{R"("dtype":"fp32")", "dtype: expected one of f64, f32, bf16, f16, found 'fp32'"},
        Refusal{R"("dtype":"i32")", "dtype: expected one of"},
        Refusal{R"("dtype":32)", "dtype: expected a text, found 32"},
        Refusal{R"("score":{})", "dtype: missing"},
        Refusal{R"("dtype":"f32","attest_contract":2)", "attest_contract: unknown version 2"},
        Refusal{R"("dtype":"f32","mask":{"causal":"bottomright"})", "mask.causal: expected one of"},
        Refusal{R"("dtype":"f32","mask":{"window":[1]})", "mask.window: expected [left, right]"},
        Refusal{R"("dtype":"f32","mask":{"window":[-2,0]})", "mask.window: expected two integers"},
        Refusal{R"("dtype":"f32","mask":{"window":[1.5,0]})", "mask.window: expected two integers"},
        Refusal{R"("dtype":"f32","mask":{"alibi":"yes"})", "mask.alibi: expected one of"},
        Refusal{R"("dtype":"f32","mask":[])", "mask: expected an object, found array"},
        Refusal{R"("dtype":"f32","score":{"kind":"cosine"})", "score.kind: expected one of"},
        Refusal{R"("dtype":"f32","score":{"scale":"sqrt"})", "score.scale: expected"},
        Refusal{R"("dtype":"f32","score":{"softcap":-1})", "score.softcap: expected a number >= 0"},
        Refusal{R"("dtype":"f32","dropout":{"rate":1})", "dropout.rate: expected 0 <= rate < 1"},
        Refusal{R"("dtype":"f32","local":{"half_width":0})", "local.half_width: expected a finite"},
        Refusal{R"("dtype":"f32","empty_row":"keep")", "empty_row: expected one of"},
        Refusal{R"("dtype":"f32","outputs":[])", "outputs: expected a non-empty list"},
        Refusal{R"("dtype":"f32","outputs":["o"])", "outputs: unknown output 'o'"},
        Refusal{R"("dtype":"f32","outputs":["out","out"])", "outputs: 'out' appears twice"},
        Refusal{R"("dtype":"f32","arithmetic":{"profile":"fast"})",
                "arithmetic.profile: unknown profile 'fast'"},
        Refusal{R"("dtype":"f32","arithmetic":{"profile":"bf16-flash"})",
                "arithmetic.profile: 'bf16-flash' is for bf16 tensors"},
        Refusal{R"("dtype":"f32","arithmetic":{"profile":"f32","accumulate":"f16"})",
                "arithmetic.accumulate: f16 contradicts profile 'f32'"},
        Refusal{R"("dtype":"bf16","arithmetic":{"profile":"bf16-flash","probabilities":"f32"})",
                "arithmetic.probabilities: f32 contradicts profile 'bf16-flash'"},
        Refusal{R"("dtype":"f32","arithmetic":{"profile":"f32","exp_ulp":0.1})",
                "arithmetic.exp_ulp: expected 0.5"}));

TEST(ParseContract, RefusesContradictoryShapes) {
  const auto with_shape = [](const std::string& shape) {
    return ErrorOf(R"({"dtype":"f32","shape":{)" + shape + "}}");
  };
  EXPECT_EQ(with_shape(R"("q_len":4,"kv_len":6,"qk_dim":8)"), "shape.v_dim: missing");
  EXPECT_EQ(with_shape(R"("q_len":4,"kv_len":6,"qk_dim":0,"v_dim":1)"),
            "shape.qk_dim: expected at least 1");
  EXPECT_TRUE(with_shape(R"("q_len":-1,"kv_len":6,"qk_dim":8,"v_dim":8)")
                  .starts_with("shape.q_len: expected an integer"));
  EXPECT_TRUE(with_shape(R"("q_len":1.5,"kv_len":6,"qk_dim":8,"v_dim":8)")
                  .starts_with("shape.q_len: expected an integer"));
  EXPECT_EQ(with_shape(R"("q_heads":6,"kv_heads":4,"q_len":1,"kv_len":1,"qk_dim":8,"v_dim":8)"),
            "shape.kv_heads: 4 does not divide q_heads = 6");
  EXPECT_TRUE(with_shape(R"("q_len":1,"kv_len":1,"qk_dim":8,"k_dim":4,"v_dim":8)")
                  .starts_with("shape.k_dim: 4 contradicts qk_dim = 8"));
  EXPECT_TRUE(with_shape(R"("batch":1000000000000,"q_heads":1000000000000,"q_len":1,"kv_len":1,)"
                         R"("qk_dim":1,"v_dim":1)")
                  .starts_with("shape.batch: the extents multiply"));
}

TEST(ParseContract, RefusesWhatIsNoJson) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]x"), std::string("\xef\xbb\xbf{}"),
        std::string("{}\0", 3), std::string(1000, '[')}) {
    EXPECT_TRUE(ErrorOf(text).starts_with("contract: ")) << ErrorOf(text);
  }
  EXPECT_EQ(ErrorOf("[]"), "contract: expected an object, found array");
  const std::string deep = std::string(40, '[') + std::string(40, ']');
  EXPECT_EQ(ErrorOf(R"({"dtype":)" + deep + "}"), "contract: JSON: nested deeper than 16");
}

}  // namespace
}  // namespace attest
