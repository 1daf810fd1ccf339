// SPDX-License-Identifier: Apache-2.0
#include "experiments/emulated_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "core/random.h"
#include "reference/certify.h"

namespace attest {
namespace {

using Row = std::span<const double>;

Row RowOf(const std::vector<double>& matrix, Index row, Index columns) {
  return Row(matrix).subspan(static_cast<std::size_t>(row * columns),
                             static_cast<std::size_t>(columns));
}

std::vector<double> ScoresOf(const AttentionProblem& problem, Index query,
                             const RoundingPoints& points) {
  const Rounder& round = points.operations;
  const Row q = RowOf(problem.q, query, problem.dim);
  std::vector<double> scores;
  for (Index j = 0; j < problem.keys; ++j) {
    const Row k = RowOf(problem.k, j, problem.dim);
    double dot = 0.0;
    for (std::size_t c = 0; c < q.size(); ++c) dot = round(dot + round(q[c] * k[c]));
    scores.push_back(points.scores(round(problem.scale * dot)));
  }
  return scores;
}

// P as stored.
double Stored(double weight, double scale, const RoundingPoints& points) {
  return points.weights(weight * scale) / scale;
}

// values += P v over the keys [begin, end), weights from `weights[0]` on.
void AddProducts(const AttentionProblem& problem, Index begin, Row weights, const Rounder& round,
                 std::vector<double>* values) {
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Row v = RowOf(problem.v, begin + static_cast<Index>(i), problem.v_dim);
    for (std::size_t c = 0; c < v.size(); ++c) {
      (*values)[c] = round((*values)[c] + round(weights[i] * v[c]));
    }
  }
}

std::vector<double> TiledRow(const AttentionProblem& problem, Index query,
                             const RoundingPoints& points, Index tile,
                             const std::vector<Index>& order) {
  const std::vector<double> scores = ScoresOf(problem, query, points);
  const std::size_t columns = static_cast<std::size_t>(problem.v_dim);
  std::vector<double> out(columns, 0.0);
  std::vector<double> weights, values;
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  for (const Index t : order) {
    const Index begin = t * tile;
    const Row s =
        Row(scores).subspan(static_cast<std::size_t>(begin),
                            static_cast<std::size_t>(std::min(tile, problem.keys - begin)));
    const double new_largest = std::max(largest, *std::max_element(s.begin(), s.end()));
    const double factor = points.accumulator(std::exp(points.shifted(largest - new_largest)));
    largest = new_largest;
    double tile_sum = 0.0;
    weights.clear();
    for (const double score : s) {
      const double e = points.exponentials(std::exp(points.shifted(score - largest)));
      weights.push_back(Stored(e, points.weight_scale, points));
      tile_sum = points.operations(tile_sum + (points.sum_of_weights ? weights.back() : e));
    }
    sum = points.sum(points.sum(sum * factor) + points.sum(tile_sum));
    values.assign(columns, 0.0);
    AddProducts(problem, begin, weights, points.operations, &values);
    for (std::size_t c = 0; c < columns; ++c) {
      out[c] =
          points.accumulator(points.accumulator(out[c] * factor) + points.accumulator(values[c]));
    }
  }
  for (double& o : out) o = points.output(o / sum);
  return out;
}

}  // namespace

std::vector<double> MaterialisedAttention(const AttentionProblem& problem,
                                          const RoundingPoints& points) {
  std::vector<double> out;
  std::vector<std::vector<double>> rows;
  double largest_weight = 0.0;
  for (Index i = 0; i < problem.queries; ++i) {
    std::vector<double> weights = ScoresOf(problem, i, points);
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0.0;
    for (double& w : weights) {
      w = points.exponentials(std::exp(points.shifted(w - largest)));
      sum = points.operations(sum + w);
    }
    sum = points.sum(sum);
    for (double& w : weights) {
      w = points.exponentials(w / sum);
      largest_weight = std::max(largest_weight, w);
    }
    rows.push_back(std::move(weights));
  }
  const double scale = points.largest_weight ? 448.0 / largest_weight : points.weight_scale;
  for (std::vector<double>& weights : rows) {
    for (double& w : weights) w = Stored(w, scale, points);
    std::vector<double> values(static_cast<std::size_t>(problem.v_dim), 0.0);
    AddProducts(problem, 0, weights, points.operations, &values);
    for (const double value : values) out.push_back(points.output(value));
  }
  return out;
}

std::vector<double> TiledAttention(const AttentionProblem& problem, const RoundingPoints& points,
                                   Index tile, TileOrder order) {
  std::vector<Index> tiles(static_cast<std::size_t>((problem.keys + tile - 1) / tile));
  std::iota(tiles.begin(), tiles.end(), Index{0});
  if (order == TileOrder::kBackward) std::reverse(tiles.begin(), tiles.end());
  if (order == TileOrder::kShuffled) {
    const RandomStream stream(0, "tiles", "order");
    for (std::size_t i = tiles.size(); i > 1; --i)
      std::swap(tiles[i - 1], tiles[stream.Below(i, i)]);
  }
  std::vector<double> out;
  for (Index i = 0; i < problem.queries; ++i) {
    const std::vector<double> row = TiledRow(problem, i, points, tile, tiles);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

Case NormalCase(const std::string& name, Index queries, Index keys, Index dim, DType dtype,
                bool outliers, std::uint64_t seed) {
  Case problem;
  problem.name = name;
  problem.contract.shape = {1, 1, 1, queries, keys, dim, dim, dim};
  problem.contract.dtype = dtype;
  problem.contract.out_dtype = dtype;
  problem.contract.outputs = {"out"};
  problem.contract.arithmetic.profile = DefaultProfile(dtype);
  for (const auto& [tensor_name, rows] : {std::pair{"q", queries}, {"k", keys}, {"v", keys}}) {
    Tensor tensor(dtype, {1, 1, rows, dim});
    const RandomStream stream(seed, name, tensor_name);
    const RandomStream rare(seed, name, std::string(tensor_name) + " outliers");
    for (Index i = 0; i < tensor.size(); ++i) {
      const std::uint64_t index = static_cast<std::uint64_t>(i);
      double value = stream.Normal(index);
      if (outliers && rare.Uniform(2 * index) < 0.001) value += 10.0 * rare.Normal(2 * index + 1);
      tensor.Set(i, value);
    }
    problem.tensors[tensor_name] = std::move(tensor);
  }
  return problem;
}

AttentionProblem ProblemOf(const Case& problem) {
  const Dimensions& shape = problem.contract.shape;
  AttentionProblem result{shape.q_len, shape.kv_len, shape.qk_dim, shape.v_dim, 1.0, {}, {}, {}};
  const Scale& scale = problem.contract.scale;
  result.scale =
      scale.rsqrt_dk
          ? Rounder(NumberFormat::kF32)(1.0 / std::sqrt(static_cast<double>(shape.qk_dim)))
          : scale.value;
  result.q = ToDoubles(problem.tensors.at("q"));
  result.k = ToDoubles(problem.tensors.at("k"));
  result.v = ToDoubles(problem.tensors.at("v"));
  return result;
}

StatusOr<std::vector<double>> ExactOutputs(const Case& problem, int threads) {
  CertifyOptions options;
  options.threads = threads;
  StatusOr<Certified> certified = Certify(problem, options);
  if (!certified.ok()) return certified.status();
  const std::vector<CertifiedValue>& values = certified->outputs.at("out").values;
  double largest = 0.0;
  for (const CertifiedValue& value : values) largest = std::max(largest, std::fabs(value.hi));
  std::vector<double> exact;
  for (const CertifiedValue& value : values) {
    if (!(value.radius <= 0x1p-36 * largest)) {
      return Internal(fmt::format("{}: enclosures are too wide", problem.name));
    }
    exact.push_back(value.hi);
  }
  return exact;
}

Deviation DeviationOf(const std::vector<double>& got, const std::vector<double>& exact) {
  Deviation result;
  double squares = 0.0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = got[i] - exact[i];
    result.largest = std::max(result.largest, std::fabs(error));
    result.mean += error;
    squares += error * error;
  }
  const double count = static_cast<double>(got.size());
  result.mean /= count;
  result.rmse = std::sqrt(squares / count);
  result.deviation = std::sqrt(std::max(0.0, squares / count - result.mean * result.mean));
  return result;
}

}  // namespace attest
