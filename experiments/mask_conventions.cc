// SPDX-License-Identifier: Apache-2.0
#include "experiments/mask_conventions.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

namespace attest {
namespace {

using Hidden = std::vector<std::vector<int>>;
using Bits = std::vector<double>;

const double kLargest = kFormatF32.largest_finite();

Tensor Filled(DType dtype, const Shape& shape, const std::vector<double>& elements) {
  Tensor tensor(dtype, shape);
  for (Index i = 0; i < tensor.size(); ++i) {
    tensor.Set(i, elements[static_cast<std::size_t>(i) % elements.size()]);
  }
  return tensor;
}

// The call without a mask. A larger batch repeats the input.
Case Unmasked(const MaskInput& input, Index batch = 1) {
  const auto tq = static_cast<Index>(input.q.size());
  const auto tk = static_cast<Index>(input.k.size());
  Case problem;
  problem.contract.shape = {batch, 1, 1, tq, tk, 1, 1, 1};
  problem.contract.scale = {false, 1.0};
  problem.contract.outputs = {"out"};
  problem.tensors["q"] = Filled(DType::kF32, {batch, 1, tq, 1}, input.q);
  problem.tensors["k"] = Filled(DType::kF32, {batch, 1, tk, 1}, input.k);
  problem.tensors["v"] = Filled(DType::kF32, {batch, 1, tk, 1}, input.v);
  return problem;
}

// Scores given one by one, [Tq][Tk] row-major, in the place of q.k.
Case FromScores(const MaskInput& input, const std::vector<double>& scores) {
  Case problem = Unmasked(input);
  problem.tensors["q"] = Filled(DType::kF32, problem.tensors.at("q").shape(), {0.0});
  problem.tensors["bias"] = Filled(
      DType::kF32, {1, 1, problem.contract.shape.q_len, problem.contract.shape.kv_len}, scores);
  return problem;
}

Case With(Case problem, const std::function<void(Case*)>& change) {
  change(&problem);
  return problem;
}

// A boolean mask of `bits`, which repeat row by row where there are fewer.
Case Masked(const MaskInput& input, const Bits& bits, EmptyRow empty_row = EmptyRow::kZero) {
  Case problem = Unmasked(input);
  const Dimensions& s = problem.contract.shape;
  problem.tensors["mask"] = Filled(DType::kBool, {1, 1, s.q_len, s.kv_len}, bits);
  problem.contract.empty_row = empty_row;
  return problem;
}

Case CausalCase(const MaskInput& input, Causal causal, EmptyRow empty_row = EmptyRow::kZero) {
  Case problem = Unmasked(input);
  problem.contract.causal = causal;
  problem.contract.empty_row = empty_row;
  return problem;
}

Case WindowCase(const MaskInput& input, Index left, Index right) {
  Case problem = Unmasked(input);
  problem.contract.window = {left, right};
  return problem;
}

Hidden NoneHidden(const MaskInput& input) {
  return Hidden(input.q.size(), std::vector<int>(input.k.size(), 0));
}

// The finite numbers that stand for -infinity.
void AddSentinels(const MaskInput& input, const Hidden& hidden,
                  std::vector<MaskReading>* readings) {
  struct Sentinel {
    const char* name;
    double value;
    DType dtype;
    const char* source;
  };
  const char* const bert = "google-research/bert, modeling.py";
  const char* const billion = "TensorFlow tutorial on the transformer";
  const char* const lowest = "huggingface/transformers, finfo(dtype).min";
  for (const Sentinel& s :
       {Sentinel{"-1e4", -1e4, DType::kF32, bert}, Sentinel{"-1e4", -1e4, DType::kBF16, bert},
        Sentinel{"-1e4", -1e4, DType::kF16, bert}, Sentinel{"-1e9", -1e9, DType::kF32, billion},
        Sentinel{"-1e9", -1e9, DType::kBF16, billion},
        Sentinel{"-1e9 (-infinity)", -1e9, DType::kF16, billion},
        Sentinel{"lowest", -kLargest, DType::kF32, lowest},
        Sentinel{"lowest", -kFormatBF16.largest_finite(), DType::kBF16, lowest},
        Sentinel{"lowest", -kFormatF16.largest_finite(), DType::kF16, lowest},
        Sentinel{"lowest of f32 (-infinity)", -kLargest, DType::kBF16,
                 "a mask made in f32, then cast"}}) {
    readings->push_back({fmt::format("{} in {}", s.name, NameOf(s.dtype)), s.source,
                         SentinelCase(input, hidden, s.value, s.dtype)});
  }
}

MaskQuestion Polarity() {
  const MaskInput input{{1, 2}, {0.5, -1, 1, 0.25, -0.5}, {1, 2, 4, 8, 16}};
  std::vector<double> added;
  std::vector<double> multiplied;
  const Bits bits{1, 0, 1, 1, 0};
  for (const double q : input.q) {
    for (std::size_t j = 0; j < bits.size(); ++j) {
      added.push_back(q * input.k[j] + bits[j]);
      multiplied.push_back(q * input.k[j] * bits[j]);
    }
  }
  return {
      "boolean mask",
      "mask 1 0 1 1 0 for both queries",
      false,
      {{"true keeps", "PyTorch scaled_dot_product_attention", Masked(input, bits)},
       {"true drops", "PyTorch nn.MultiheadAttention", Masked(input, {0, 1, 0, 0, 1})},
       {"added as 0 or 1", "huggingface/transformers#41443", FromScores(input, added)},
       {"multiplies the scores", "georg-wolflein/good-features#1", FromScores(input, multiplied)}}};
}

std::vector<MaskQuestion> Corners() {
  const MaskInput wide{{1, 2}, {0.5, -1, 1, 0.25, -0.5}, {1, 2, 4, 8, 16}};
  const MaskInput tall{{1, 2, -1, 0.5, 1}, {0.5, -1}, {1, 2}};
  const MaskInput square{{1, 2, -1}, {0.5, -1, 1}, {1, 2, 4}};
  const char* const top = "PyTorch scaled_dot_product_attention(is_causal=True)";
  const char* const bottom = "FlashAttention from 2.1 on";
  return {{"causal, fewer queries than keys",
           "causal, Tq = 2, Tk = 5",
           false,
           {{"top-left", top, CausalCase(wide, Causal::kTopLeft)},
            {"bottom-right", bottom, CausalCase(wide, Causal::kBottomRight)}}},
          {"causal, more queries than keys",
           "causal, Tq = 5, Tk = 2",
           false,
           {{"top-left", top, CausalCase(tall, Causal::kTopLeft)},
            {"bottom-right, empty rows 0", bottom, CausalCase(tall, Causal::kBottomRight)},
            {"bottom-right, empty rows NaN", "a softmax of -infinities",
             CausalCase(tall, Causal::kBottomRight, EmptyRow::kNan)},
            {"bottom-right, empty rows the mean of v", "a finite sentinel",
             CausalCase(tall, Causal::kBottomRight, EmptyRow::kUniform)}}},
          {"causal, as many queries as keys",
           "causal, Tq = Tk = 3",
           true,
           {{"top-left", top, CausalCase(square, Causal::kTopLeft)},
            {"bottom-right", bottom, CausalCase(square, Causal::kBottomRight)}}}};
}

MaskQuestion Windows() {
  const MaskInput input{{1, 2, -1, 0.5, 1}, {0.5, -1, 1, 0.25, -0.5}, {1, 2, 4, 8, 16}};
  return {
      "sliding window",
      "window 2, Tq = Tk = 5",
      false,
      {{"two keys before the query and itself", "FlashAttention, window_size=(2, 0)",
        WindowCase(input, 2, 0)},
       {"two keys, the query's own included", "huggingface/transformers#39408",
        WindowCase(input, 1, 0)},
       {"one key on either side", "Longformer (Beltagy et al. 2020, section 3.1)",
        WindowCase(input, 1, 1)},
       {"two keys on either side", "FlashAttention, window_size=(2, 2)", WindowCase(input, 2, 2)}}};
}

MaskQuestion Lengths() {
  const MaskInput input{{1, 2}, {0.5, -1, 1, 0.25, -0.5}, {1, 2, 4, 8, 16}};
  const auto three = [](Case* problem) {
    problem->tensors["kv_lengths"] = Filled(DType::kI32, {1}, {3});
  };
  return {"key length with causal",
          "causal, Tq = 2, Tk = 5, length 3",
          false,
          {{"first 3 keys, the corner at their end", "FlashAttention, varlen and KV cache",
            With(CausalCase(input, Causal::kBottomRight), three)},
           {"first 3 keys, the corner at the buffer's end", "NVIDIA/TransformerEngine#1281",
            Masked(input, {1, 1, 1, 0, 0, 1, 1, 1, 0, 0})},
           {"first 3 keys, top-left", "PyTorch scaled_dot_product_attention with a padding mask",
            With(CausalCase(input, Causal::kTopLeft), three)},
           {"last 3 keys, the corner at the buffer's end", "left padding, as for generation",
            Masked(input, {0, 0, 1, 1, 0, 0, 0, 1, 1, 1})}}};
}

MaskQuestion BatchOrQuery() {
  const MaskInput input{{1, 2}, {0.5, -1, 1}, {1, 2, 4}};
  const Bits bits{1, 1, 0, 0, 1, 1};
  const auto mask = [&](const Shape& shape) {
    return With(Unmasked(input, 2), [&](Case* problem) {
      problem->tensors["mask"] = Filled(DType::kBool, shape, bits);
    });
  };
  return {"mask of two axes",
          "mask [2, Tk] with B = Tq = 2",
          false,
          {{"[Tq, Tk]", "PyTorch scaled_dot_product_attention (broadcasting)", mask({1, 1, 2, 3})},
           {"[B, Tk]", "PyTorch nn.MultiheadAttention, key_padding_mask", mask({2, 1, 1, 3})}}};
}

std::vector<MaskQuestion> Sentinels() {
  const MaskInput input{{1, 2}, {0.5, -1, 1, 0.25}, {1, 2, 4, 8}};
  Hidden partly = NoneHidden(input);
  partly[0] = {0, 1, 0, 1};
  partly[1] = {1, 0, 0, 0};
  MaskQuestion moderate{"sentinels, scores near 0",
                        "mask 1 0 1 0 and 0 1 1 1",
                        true,
                        {{"-infinity", "PyTorch", Masked(input, {1, 0, 1, 0, 0, 1, 1, 1})}}};
  AddSentinels(input, partly, &moderate.readings);

  // Multiples of 64: every type holds them.
  const MaskInput low{{1}, {-12032, -12096, 0}, {1, 2, 64}};
  Hidden last = NoneHidden(low);
  last[0] = {0, 0, 1};
  MaskQuestion far{"sentinels, scores near -12000",
                   "scores -12032 -12096 0, mask 1 1 0",
                   false,
                   {{"-infinity", "PyTorch", Masked(low, {1, 1, 0})}}};
  AddSentinels(low, last, &far.readings);

  Hidden row = NoneHidden(input);
  row[1] = {1, 1, 1, 1};
  const Bits empty{1, 1, 1, 1, 0, 0, 0, 0};
  MaskQuestion fully{"row without an allowed key",
                     "mask 1 1 1 1 and 0 0 0 0",
                     false,
                     {{"zero", "FlashAttention", Masked(input, empty)},
                      {"NaN", "a softmax of -infinities (pytorch/pytorch#131060)",
                       Masked(input, empty, EmptyRow::kNan)}}};
  AddSentinels(input, row, &fully.readings);

  // Query 0 sees key 0 alone by the causal rule; keys 0 and 1 are padding.
  Hidden both = NoneHidden(input);
  both[0] = {1, 2, 1, 1};
  both[1] = {1, 1, 1, 1};
  MaskQuestion sums{"two masks added",
                    "causal and padding of keys 0 and 1, each added to the scores",
                    false,
                    {{"zero", "a boolean and", Masked(input, {0, 0, 0, 0, 0, 0, 0, 0})}}};
  AddSentinels(input, both, &sums.readings);
  return {moderate, far, fully, sums};
}

}  // namespace

Case SentinelCase(const MaskInput& input, const Hidden& hidden, double sentinel, DType dtype) {
  std::vector<double> scores;
  for (std::size_t i = 0; i < input.q.size(); ++i) {
    for (std::size_t j = 0; j < input.k.size(); ++j) {
      double score = RoundToDType(input.q[i] * input.k[j], dtype);
      for (int masks = 0; masks < hidden[i][j]; ++masks) {
        score = RoundToDType(score + RoundToDType(sentinel, dtype), dtype);
      }
      scores.push_back(score);
    }
  }
  Case problem = FromScores(input, scores);
  problem.contract.empty_row = EmptyRow::kNan;
  return problem;
}

StatusOr<std::vector<MaskQuestion>> MaskQuestions() {
  std::vector<MaskQuestion> questions{Polarity(), Windows(), Lengths(), BatchOrQuery()};
  for (std::vector<MaskQuestion>& more : std::vector{Corners(), Sentinels()}) {
    for (MaskQuestion& question : more) questions.push_back(std::move(question));
  }
  for (MaskQuestion& question : questions) {
    for (MaskReading& reading : question.readings) {
      reading.problem.name = question.name + ": " + reading.name;
      if (Status s = FinishCase(&reading.problem); !s.ok()) return s;
    }
  }
  return questions;
}

}  // namespace attest
