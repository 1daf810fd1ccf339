// SPDX-License-Identifier: Apache-2.0
#include "experiments/quantised_attention.h"

#include <algorithm>
#include <cmath>

namespace attest {
namespace {

constexpr Rounder kF32 = NumberFormat::kF32;

// A matrix of codes, row-major, with the scales of its rows or columns.
struct Codes {
  std::vector<double> values;
  std::vector<double> scales;
};

// `by_column`: scales belong to columns.
Codes Encode(CodeFormat format, const std::vector<double>& matrix, Index columns, bool by_column) {
  const auto width = static_cast<std::size_t>(columns);
  const auto slot = [&](std::size_t i) { return by_column ? i % width : i / width; };
  Codes codes{matrix, std::vector<double>(by_column ? width : matrix.size() / width, 0.0)};
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    double& scale = codes.scales[slot(i)];
    scale = std::max(scale, std::fabs(matrix[i]));
  }
  for (double& scale : codes.scales) {
    const bool scaled = format != CodeFormat::kF16 && scale > 0.0;
    scale = scaled ? kF32(scale / LargestOf(format)) : 1.0;
  }
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    codes.values[i] = RoundToCode(format, kF32(matrix[i] / codes.scales[slot(i)]));
  }
  return codes;
}

// Each column less its mean, in f32.
std::vector<double> Smooth(const std::vector<double>& matrix, Index columns) {
  const auto width = static_cast<std::size_t>(columns);
  std::vector<double> mean(width, 0.0);
  const double rows = static_cast<double>(matrix.size() / width);
  for (std::size_t i = 0; i < matrix.size(); ++i) mean[i % width] += matrix[i] / rows;
  std::vector<double> smooth = matrix;
  for (std::size_t i = 0; i < matrix.size(); ++i)
    smooth[i] = kF32(matrix[i] - kF32(mean[i % width]));
  return smooth;
}

}  // namespace

const char* NameOf(CodeFormat format) {
  constexpr const char* kNames[] = {"f16", "e4m3", "e5m2", "INT8"};
  return kNames[static_cast<int>(format)];
}

double LargestOf(CodeFormat format) {
  constexpr double kLargest[] = {1.0, 448.0, 57344.0, 127.0};
  return kLargest[static_cast<int>(format)];
}

double RoundToCode(CodeFormat format, double x) {
  switch (format) {
    case CodeFormat::kF16:
      return Rounder(NumberFormat::kF16)(x);
    case CodeFormat::kE4M3:
      return Rounder(NumberFormat::kE4M3)(x);
    case CodeFormat::kE5M2: {
      if (x == 0.0 || x != x) return x;
      const double spacing = std::ldexp(1.0, std::max(std::ilogb(x), -14) - 2);
      return std::clamp(std::nearbyint(x / spacing) * spacing, -57344.0, 57344.0);
    }
    case CodeFormat::kInt8:
      return std::clamp(std::nearbyint(x), -127.0, 127.0);
  }
  return x;
}

std::vector<double> QuantisedAttention(const AttentionProblem& problem,
                                       const Quantisation& quantisation) {
  const Codes q = Encode(quantisation.qk, problem.q, problem.dim, false);
  const Codes k =
      Encode(quantisation.qk, quantisation.smooth_keys ? Smooth(problem.k, problem.dim) : problem.k,
             problem.dim, false);
  const Codes v = Encode(quantisation.pv, problem.v, problem.v_dim, true);
  const double one = LargestOf(quantisation.pv);
  const auto keys = static_cast<std::size_t>(problem.keys);
  const auto dim = static_cast<std::size_t>(problem.dim);
  const auto v_dim = static_cast<std::size_t>(problem.v_dim);
  std::vector<double> out;
  std::vector<double> scores(keys);
  for (std::size_t i = 0; i < static_cast<std::size_t>(problem.queries); ++i) {
    for (std::size_t j = 0; j < keys; ++j) {
      double dot = 0.0;
      for (std::size_t c = 0; c < dim; ++c) {
        dot = kF32(dot + kF32(q.values[i * dim + c] * k.values[j * dim + c]));
      }
      const double scale = kF32(kF32(q.scales[i] * k.scales[j]) * problem.scale);
      scores[j] = kF32(dot * scale);
    }
    const double largest = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    std::vector<double> values(v_dim, 0.0);
    for (std::size_t j = 0; j < keys; ++j) {
      const double p = kF32(std::exp(kF32(scores[j] - largest)));
      sum = kF32(sum + p);
      const double code = RoundToCode(quantisation.pv, kF32(p * one));
      for (std::size_t c = 0; c < v_dim; ++c) {
        values[c] = kF32(values[c] + kF32(code * v.values[j * v_dim + c]));
      }
    }
    for (std::size_t c = 0; c < v_dim; ++c) {
      const double scaled = kF32(values[c] * kF32(v.scales[c] / one));
      out.push_back(Rounder(NumberFormat::kF16)(kF32(scaled / sum)));
    }
  }
  return out;
}

}  // namespace attest
