// SPDX-License-Identifier: Apache-2.0
// Tensors, strided views, digests and manifests.
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <limits>
#include <span>

#include "core/digest.h"
#include "core/run_record.h"

namespace attest {
namespace {

TEST(Tensor, StoresEveryTypeRounded) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    Tensor tensor(dtype, {2, 3});
    EXPECT_EQ(tensor.byte_size(), 6 * SizeOf(dtype));
    EXPECT_EQ(tensor.At(5), 0.0);
    tensor.Set(4, 1.0 / 3.0);
    EXPECT_EQ(tensor.At(4), RoundToDType(1.0 / 3.0, dtype));
  }
  Tensor flags(DType::kBool, {2});
  flags.Set(1, 7.0);
  EXPECT_EQ(flags.At(1), 1.0);
  EXPECT_EQ(Tensor(DType::kF32, {}).size(), 1);
  EXPECT_EQ(Tensor(DType::kF32, {4, 0, 2}).size(), 0);
  EXPECT_EQ(ToString(Shape{2, 8}), "[2, 8]");
}

TEST(View, FollowsItsStrides) {
  Tensor tensor(DType::kF32, {2, 3});
  for (Index i = 0; i < 6; ++i) tensor.Set(i, static_cast<double>(i));
  const View<float, 2> rows = tensor.view<float, 2>();
  EXPECT_EQ(rows(1, 2), 5.0f);
  const View<float, 2> transposed{rows.data, {3, 2}, {1, 3}};
  EXPECT_EQ(transposed(2, 1), 5.0f);
  const View<float, 1> reversed{rows.data + 5, {6}, {-1}};
  EXPECT_EQ(reversed(1), 4.0f);
  const View<const float, 2> constant = rows;
  EXPECT_EQ(constant(0, 1), 1.0f);
}

TEST(View, BroadcastsAxesOfLengthOne) {
  Tensor tensor(DType::kF32, {1, 3});
  for (Index i = 0; i < 3; ++i) tensor.Set(i, static_cast<double>(i));
  const View<float, 2> wide = BroadcastTo(tensor.view<float, 2>(), {4, 3});
  EXPECT_EQ(wide(3, 2), 2.0f);
  EXPECT_EQ(wide.strides[0], 0);
}

// The digest of "abc" in FIPS 180-4.
TEST(Sha256, MatchesThePublishedExample) {
  const std::string text = "abc";
  EXPECT_EQ(Sha256(std::as_bytes(std::span(text))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256, OfTensorsSeesNameTypeShapeAndBytes) {
  TensorMap base;
  base["a"] = Tensor(DType::kF32, {2, 3});
  const std::string digest = Sha256(base);
  TensorMap renamed;
  renamed["b"] = base["a"];
  EXPECT_NE(Sha256(renamed), digest);
  TensorMap reshaped;
  reshaped["a"] = Tensor(DType::kF32, {3, 2});
  EXPECT_NE(Sha256(reshaped), digest);
  TensorMap retyped;
  retyped["a"] = Tensor(DType::kI32, {2, 3});
  EXPECT_NE(Sha256(retyped), digest);
  TensorMap changed = base;
  changed["a"].Set(5, -0.0);
  EXPECT_NE(Sha256(changed), digest);
}

TEST(Manifest, NamesWhatARunNeedsToBeRepeated) {
  Manifest manifest;
  manifest.command = "attest list kernels";
  manifest.seed = 7;
  manifest.libraries = {{"MPFR", "4.2.0"}};
  const nlohmann::ordered_json json = ToJson(manifest);
  for (const char* field : {"attest_version", "git", "compiler", "flags", "cpu"}) {
    EXPECT_FALSE(json[field].get<std::string>().empty()) << field;
  }
  EXPECT_NE(json["flags"].get<std::string>().find("-ffp-contract=off"), std::string::npos);
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["libraries"]["MPFR"], "4.2.0");
}

TEST(NumberToJson, SpellsOutWhatJsonCannotHold) {
  EXPECT_EQ(NumberToJson(0.1), 0.1);
  EXPECT_EQ(NumberToJson(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(NumberToJson(std::numeric_limits<double>::infinity()), "Infinity");
  EXPECT_EQ(NumberToJson(-std::numeric_limits<double>::infinity()), "-Infinity");
}

}  // namespace
}  // namespace attest
