// SPDX-License-Identifier: Apache-2.0
#include "experiments/tolerance_rules.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace attest {
namespace {

// |got - exact| <= absolute + relative |exact| everywhere.
bool AllClose(const RuleInput& input, double absolute, double relative) {
  for (std::size_t i = 0; i < input.got.size(); ++i) {
    const double error = std::fabs(input.got[i] - input.exact[i]);
    if (!(error <= absolute + relative * std::fabs(input.exact[i]))) return false;
  }
  return true;
}

double LargestError(std::span<const double> got, std::span<const double> exact) {
  double largest = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::fabs(got[i] - exact[i]));
  }
  return largest;
}

// Without elements, and where both are zero, the quotient is NaN, which is not above the limit.
bool Ggml(const RuleInput& input) {
  double error = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < input.got.size(); ++i) {
    error += (input.got[i] - input.exact[i]) * (input.got[i] - input.exact[i]);
    size += input.exact[i] * input.exact[i];
  }
  return !(error / size > 5e-4);
}

bool Onnx(const RuleInput& input) { return AllClose(input, 1e-7, 1e-3); }

bool PyTorch(const RuleInput& input) {
  switch (input.dtype) {
    case DType::kF64:
      return AllClose(input, 1e-7, 1e-7);
    case DType::kBF16:
      return AllClose(input, 1e-5, 1.6e-2);
    case DType::kF16:
      return AllClose(input, 1e-5, 1e-3);
    default:
      return AllClose(input, 1e-5, 1.3e-6);
  }
}

bool FlashAttention2(const RuleInput& input) {
  return LargestError(input.got, input.exact) <= 2.0 * LargestError(input.plain, input.exact);
}

// What adding and taking away 0.3 changes, in the output's type: about one unit in its last place.
double RoundTrip(const RuleInput& input) {
  double largest = 0.0;
  for (const double exact : input.exact) {
    const double value = RoundToDType(exact, input.dtype);
    const double sum = RoundToDType(value + 0.3, input.dtype);
    largest = std::max(largest, std::fabs(RoundToDType(sum - 0.3, input.dtype) - value));
  }
  return largest;
}

bool FlashAttention3(const RuleInput& input) {
  const double factor = input.softcap ? 3.0 : 2.0;
  return LargestError(input.got, input.exact) <=
         factor * LargestError(input.plain, input.exact) + 2.0 * RoundTrip(input);
}

bool Mlx(const RuleInput& input) {
  const double tolerance =
      input.dtype == DType::kBF16 ? 5e-3 : (input.dtype == DType::kF16 ? 3e-4 : 1e-5);
  return AllClose(input, tolerance, tolerance);
}

bool Jax(const RuleInput& input) { return AllClose(input, 1e-2, 1e-2); }

bool TransformerEngine(const RuleInput& input) {
  const double tolerance = input.dtype == DType::kBF16 ? 1.5e-2 : 1e-3;
  return AllClose(input, tolerance, tolerance);
}

bool TransformerEngineFp8(const RuleInput& input) { return AllClose(input, 0.5, 0.0); }

bool OneDnn(const RuleInput& input) {
  const double threshold = input.dtype == DType::kF16 ? 0.001466 : 0.0079;
  std::size_t mismatches = 0;
  for (std::size_t i = 0; i < input.got.size(); ++i) {
    const double error = std::fabs(input.got[i] - input.exact[i]);
    if (error > threshold * std::max(1.0, std::fabs(input.exact[i]))) ++mismatches;
  }
  return mismatches <= static_cast<std::size_t>(static_cast<double>(input.got.size()) * 0.0006);
}

}  // namespace

const std::vector<PassRule>& PassRules() {
  static const std::vector<PassRule> rules{
      {"ggml", "sum (got - ref)^2 / sum ref^2 <= 5e-4",
       "ggml-org/llama.cpp, tests/test-backend-ops.cpp, test_flash_attn_ext", Ggml},
      {"ONNX", "|got - ref| <= 1e-7 + 1e-3 |ref|",
       "onnx/onnx, onnx/backend/test/runner, default rtol and atol of a backend test", Onnx},
      {"PyTorch",
       "atol 1e-5 (f64: 1e-7), rtol 1.3e-6 for f32, 1e-7 for f64, 1e-3 for f16, 1.6e-2 for bf16",
       "torch.testing.assert_close, documented defaults by type", PyTorch},
      {"FlashAttention-2", "max |got - ref| <= 2 max |plain - ref|",
       "Dao-AILab/flash-attention, tests/test_flash_attn.py", FlashAttention2},
      {"FlashAttention-3",
       "max |got - ref| <= 2 (soft cap: 3) max |plain - ref| + 2 max |(ref + 0.3 - 0.3) - ref|",
       "Dao-AILab/flash-attention, hopper/test_flash_attn.py", FlashAttention3},
      {"MLX", "atol = rtol = 1e-5 for f32, 3e-4 for f16, 5e-3 for bf16",
       "ml-explore/mlx, python/tests/test_fast_sdpa.py", Mlx},
      {"JAX", "atol = rtol = 1e-2", "jax-ml/jax, tests/nn_test.py", Jax},
      {"TransformerEngine", "atol = rtol = 1e-3, 1.5e-2 for bf16",
       "NVIDIA/TransformerEngine, tests/pytorch/attention/test_attention.py", TransformerEngine},
      {"TransformerEngine FP8", "|got - ref| <= 0.5",
       "NVIDIA/TransformerEngine, tests/pytorch/attention/test_attention.py, FP8 cases",
       TransformerEngineFp8},
      {"oneDNN",
       "|got - ref| <= 0.001466 (f16) or 0.0079 (others) times max(1, |ref|), but for 0.06% of "
       "the elements",
       "oneapi-src/oneDNN, tests/gtests/internals/test_sdpa.cpp at 2afd384", OneDnn},
  };
  return rules;
}

}  // namespace attest
