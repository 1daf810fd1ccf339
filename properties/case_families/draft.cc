// SPDX-License-Identifier: Apache-2.0
#include "properties/case_families/draft.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace attest {

Draft::Draft(Dice& dice_to_use, bool long_rows)
    : dice(dice_to_use), is_long(long_rows), contract(problem.contract), shape(contract.shape) {
  contract.dtype =
      dice.Pick({DType::kF32, DType::kF32, DType::kF32, DType::kBF16, DType::kF16, DType::kF64});
  contract.out_dtype = contract.dtype;
  contract.arithmetic.profile = DefaultProfile(contract.dtype);
  shape.batch = 1;
  shape.q_heads = shape.kv_heads = 1;
  if (is_long) {  // few rows of wide values: exponentials are what a long row costs
    shape.kv_len = dice.Between(1000, dice.Chance(0.25) ? 4096 : 2000);
    shape.q_len = dice.Between(2, 4);
    shape.qk_dim = dice.Pick<Index>({4, 8, 16, 32});
    shape.v_dim = dice.Between(128, 256);
  } else {
    shape.kv_len = dice.Pick<Index>(
        {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 100, 127, 130, 200, 256, 300});
    shape.q_len = dice.Between(1, 10);
    shape.qk_dim = dice.Pick<Index>({1, 2, 3, 4, 5, 8, 16, 31, 32, 64});
    shape.v_dim = shape.kv_len >= 48 ? dice.Between(32, 80) : dice.Between(1, 64);
  }
  shape.k_dim = shape.qk_dim;
  contract.outputs = {"out", "lse"};
  if (dice.Chance(is_long ? 0.01 : 0.15)) contract.outputs.emplace_back("weights");
}

Tensor& Draft::Fill(const std::string& name, const Shape& tensor_shape, DType dtype,
                    const std::function<double()>& draw) {
  Tensor tensor(dtype, tensor_shape);
  const double largest = IsFloat(dtype) ? FormatOf(dtype).largest_finite() : 1e9;
  for (Index i = 0; i < tensor.size(); ++i) {
    const double value = draw();
    tensor.Set(i, std::isinf(value) ? value : std::clamp(value, -largest, largest));
  }
  return problem.tensors[name] = std::move(tensor);
}

Tensor& Draft::FillNormal(const std::string& name, const Shape& tensor_shape, double factor) {
  return Fill(name, tensor_shape, contract.dtype, [&] { return factor * dice.Normal(); });
}

void Draft::FillQkv(double q_factor, double k_factor) {
  FillNormal("q", {shape.batch, shape.q_heads, shape.q_len, shape.qk_dim}, q_factor);
  FillNormal("k", {shape.batch, shape.kv_heads, shape.kv_len, shape.k_dim}, k_factor);
  FillV([&] { return dice.Normal(); });
}

Tensor& Draft::FillV(const std::function<double()>& draw) {
  return Fill("v", {shape.batch, shape.kv_heads, shape.kv_len, shape.v_dim}, contract.dtype, draw);
}

void Draft::Change(const std::string& name, const std::function<double(double, Index)>& change) {
  Tensor& tensor = problem.tensors.at(name);
  const double largest = FormatOf(tensor.dtype()).largest_finite();
  const Index columns = tensor.shape().back();
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, std::clamp(change(tensor.At(i), i % columns), -largest, largest));
  }
}

void Draft::AddMask(double share_allowed) {
  Fill("mask", {Axis(shape.batch), Axis(shape.q_heads), Axis(shape.q_len), shape.kv_len},
       DType::kBool, [&] { return dice.Chance(share_allowed) ? 1.0 : 0.0; });
  contract.empty_row = dice.Pick({EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform});
}

void Draft::AddBias() {
  Fill("bias", {Axis(shape.batch), Axis(shape.q_heads), Axis(shape.q_len), shape.kv_len},
       dice.Chance(0.5) ? contract.dtype : contract.wide_dtype(), [&] {
         if (dice.Chance(0.1)) return -std::numeric_limits<double>::infinity();
         return dice.Normal();
       });
}

void Draft::AddCausalOrWindow() {
  contract.causal = dice.Pick({Causal::kNone, Causal::kTopLeft, Causal::kBottomRight});
  if (contract.causal == Causal::kNone || dice.Chance(0.4)) {
    contract.window = {dice.Between(-1, shape.kv_len / 2), dice.Between(-1, shape.kv_len / 4)};
  }
  contract.empty_row = dice.Pick({EmptyRow::kZero, EmptyRow::kNan, EmptyRow::kUniform});
}

void Draft::AddLengths() {
  Fill("kv_lengths", {shape.batch}, DType::kI32,
       [&] { return static_cast<double>(dice.Between(0, shape.kv_len)); });
  if (dice.Chance(0.5)) {
    Fill("q_lengths", {shape.batch}, DType::kI32,
         [&] { return static_cast<double>(dice.Between(0, shape.q_len)); });
  }
}

void Draft::AddDocuments() {
  const auto document = [&] { return static_cast<double>(dice.Between(0, 2)); };
  Fill("q_documents", {shape.batch, shape.q_len}, DType::kI32, document);
  Fill("kv_documents", {shape.batch, shape.kv_len}, DType::kI32, document);
}

void Draft::AddAlibi() {
  contract.alibi = dice.Pick({Alibi::kDefault, Alibi::kTensor});
  if (contract.alibi == Alibi::kTensor) {
    Fill("alibi_slopes", {shape.q_heads}, contract.wide_dtype(),
         [&] { return 0.25 * dice.Normal(); });
  }
}

void Draft::AddSinks() {
  Fill("sinks", {shape.q_heads}, contract.wide_dtype(), [&] {
    if (dice.Chance(0.1)) return -std::numeric_limits<double>::infinity();
    return 2.0 * dice.Normal();
  });
}

void Draft::AddSoftcap() { contract.softcap = dice.Pick({0.5, 1.0, 2.5, 30.0}); }

void Draft::AddLocal() {
  contract.local =
      LocalWindow{0.5 * static_cast<double>(dice.Between(1, shape.kv_len)), dice.Chance(0.7)};
  const double last = static_cast<double>(shape.kv_len - 1);
  Fill("local_center", {shape.batch, shape.q_heads, shape.q_len}, contract.wide_dtype(),
       [&] { return 0.5 * last + 0.3 * last * dice.Normal(); });
}

void Draft::AddDropout() {
  contract.dropout_rate = dice.Pick({0.0, 0.1, 0.25, 0.5});
  Fill("keep", {shape.batch, Axis(shape.q_heads), shape.q_len, shape.kv_len}, DType::kBool,
       [&] { return dice.Chance(0.75) ? 1.0 : 0.0; });
}

void Draft::AddSome(double chance) {
  if (dice.Chance(chance)) AddMask(0.6);
  for (const auto add : {&Draft::AddCausalOrWindow, &Draft::AddLengths, &Draft::AddDocuments,
                         &Draft::AddBias, &Draft::AddAlibi, &Draft::AddSinks, &Draft::AddSoftcap,
                         &Draft::AddLocal, &Draft::AddDropout}) {
    if (dice.Chance(chance)) (this->*add)();
  }
}

void Draft::AskForGradients() {
  const Index which = dice.Between(0, 5);
  if (which != 0) {
    FillNormal("grad_out", {shape.batch, shape.q_heads, shape.q_len, shape.v_dim});
  }
  if (which < 3) FillNormal("grad_lse", {shape.batch, shape.q_heads, shape.q_len});
  contract.outputs = {"lse"};
  if (dice.Chance(0.3)) contract.outputs.emplace_back("out");
  for (const char* name : {"q", "k", "v", "bias", "sinks", "w", "w_q", "w_k", "v_a", "b"}) {
    if (problem.Find(name) != nullptr) contract.outputs.push_back(std::string("grad_") + name);
  }
}

double Draft::AboveOne(Index ulps) const {
  return 1.0 + std::ldexp(static_cast<double>(ulps), 1 - format().precision);
}

}  // namespace attest
