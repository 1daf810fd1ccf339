// SPDX-License-Identifier: Apache-2.0
// Softmax and LogSoftmax of ONNX as cases of the contract.
//
// A row x becomes the scores of one query, exactly: q = 1 and k_j = x_j, with scale 1; the weights
// are its softmax. ln p_j = -ln(sum over l of exp(x_l - x_j)), and with q_j = (1, -x_j) and
// k_l = (x_l, 1) that sum is the denominator of query j: its LSE is -ln p_j. Neither changes when
// the row's maximum is subtracted from x first; that is done where it is exact, so that the bound
// does not allow for errors of scores which are given, not computed.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "audit/judge.h"
#include "audit/onnx_layout.h"
#include "audit/onnx_suite.h"
#include "core/file_io.h"

namespace attest {
namespace {

// Rows of a tensor: entry (o, i) of [outer, inner] has `length` elements, `inner` apart.
struct Rows {
  Index outer = 1;
  Index length = 1;
  Index inner = 1;
};

// Since version 13 the softmax runs along `axis` (default -1); before, over all axes from `axis`
// (default 1) on.
StatusOr<Rows> RowsOf(const OnnxModel& model, const Shape& shape) {
  const bool along_axis = model.opset >= 13;
  const auto rank = static_cast<Index>(shape.size());
  Index axis = along_axis ? -1 : 1;
  for (const auto& [name, value] : model.attributes) {
    if (name != "axis") return Unsupported(fmt::format("the attribute {}", Quoted(name)));
    const std::int64_t* given = std::get_if<std::int64_t>(&value);
    if (given == nullptr) return InvalidArgument("attribute 'axis' has another type");
    axis = *given;
  }
  if (axis < -rank || axis >= rank) {
    return InvalidArgument(
        fmt::format("attribute 'axis' is {}, expected {} to {}", axis, -rank, rank - 1));
  }
  if (axis < 0) axis += rank;
  Rows rows;
  for (Index i = 0; i < rank; ++i) {
    const Index extent = shape[static_cast<std::size_t>(i)];
    if (i < axis) {
      rows.outer *= extent;
    } else if (i == axis || !along_axis) {
      rows.length *= extent;
    } else {
      rows.inner *= extent;
    }
  }
  return rows;
}

// The rows, one after the other.
Tensor TakeRows(const Tensor& from, const Rows& rows) {
  return Take(from,
              {{rows.outer, rows.length * rows.inner}, {rows.inner, 1}, {rows.length, rows.inner}},
              {from.size()});
}

// Subtracts the maximum from every row of `n` elements where no difference is rounded.
void SubtractMaxima(Index n, Tensor* flat) {
  for (Index start = 0; start < flat->size(); start += n) {
    double top = flat->At(start);
    for (Index i = start; i < start + n; ++i) top = std::max(top, flat->At(i));
    bool exact = true;
    for (Index i = start; exact && i < start + n; ++i) {
      const double shifted = RoundToDType(flat->At(i) - top, flat->dtype());
      exact = shifted + top == flat->At(i) && flat->At(i) - shifted == top;
    }
    for (Index i = start; exact && i < start + n; ++i) flat->Set(i, flat->At(i) - top);
  }
}

// `x` and `y`: the rows, one after the other.
void AddSoftmax(const Tensor& x, const Tensor& y, Index n, OnnxCase* result) {
  Case& problem = result->item.problem;
  const Index rows = x.size() / n;
  problem.contract.shape = {rows, 1, 1, 1, n, 1, 1, 1};
  problem.contract.outputs = {"weights"};
  Tensor q(x.dtype(), {rows, 1, 1, 1});
  for (Index i = 0; i < q.size(); ++i) q.Set(i, 1.0);
  problem.tensors = {{"q", std::move(q)},
                     {"k", Reshaped(x, {rows, 1, n, 1})},
                     {"v", Tensor(x.dtype(), {rows, 1, n, 1})}};
  result->stored["weights"] = Reshaped(y, {rows, 1, 1, n});
}

Status AddLogSoftmax(const Tensor& x, const Tensor& y, Index n, OnnxCase* result) {
  if (x.dtype() != DType::kF32 && x.dtype() != DType::kF64) {
    return Unsupported(
        fmt::format("LogSoftmax in {}: the contract's LSE is f32", NameOf(x.dtype())));
  }
  if (x.size() * n > kMostScores)
    return Unsupported(fmt::format("more than {} scores", kMostScores));
  Case& problem = result->item.problem;
  const Index rows = x.size() / n;
  problem.contract.shape = {rows, 1, 1, n, n, 2, 2, 1};
  problem.contract.outputs = {"lse"};
  Tensor q(x.dtype(), {rows, 1, n, 2});
  Tensor k(x.dtype(), {rows, 1, n, 2});
  Tensor negated(y.dtype(), {rows, 1, n});
  for (Index i = 0; i < x.size(); ++i) {
    const double value = x.At(i);
    if (!std::isfinite(value)) return Unsupported("LogSoftmax of numbers that are not finite");
    q.Set(2 * i, 1.0);
    q.Set(2 * i + 1, -value);
    k.Set(2 * i, value);
    k.Set(2 * i + 1, 1.0);
    negated.Set(i, -y.At(i));
  }
  problem.tensors = {
      {"q", std::move(q)}, {"k", std::move(k)}, {"v", Tensor(x.dtype(), {rows, 1, n, 1})}};
  result->stored["lse"] = std::move(negated);
  return Status();
}

}  // namespace

StatusOr<std::vector<OnnxCase>> SoftmaxCases(const std::string& name, const OnnxModel& model,
                                             const OnnxDataSet& data) {
  if (data.inputs.size() != 1 || data.outputs.size() != 1) {
    return InvalidArgument(fmt::format("{} takes one input and gives one output", model.op_type));
  }
  const Tensor& x = data.inputs.begin()->second;
  const Tensor& y = data.outputs.begin()->second;
  if (!IsFloat(x.dtype()) || y.dtype() != x.dtype() || y.shape() != x.shape()) {
    return InvalidArgument(fmt::format("expected an output like the input {} {}, found {} {}",
                                       NameOf(x.dtype()), ToString(x.shape()), NameOf(y.dtype()),
                                       ToString(y.shape())));
  }
  const StatusOr<Rows> rows = RowsOf(model, x.shape());
  if (!rows.ok()) return rows.status();
  if (x.size() == 0) return Unsupported("a tensor without elements");
  OnnxCase result{.item = {"onnx", model.op_type, {}}, .stored = {}};
  Case& problem = result.item.problem;
  problem.name = name;
  problem.contract.dtype = problem.contract.out_dtype = x.dtype();
  problem.contract.scale = {.rsqrt_dk = false, .value = 1.0};
  problem.contract.arithmetic.profile = DefaultProfile(x.dtype());
  Tensor flat = TakeRows(x, *rows);
  SubtractMaxima(rows->length, &flat);
  if (model.op_type == "Softmax") {
    AddSoftmax(flat, TakeRows(y, *rows), rows->length, &result);
  } else if (Status s = AddLogSoftmax(flat, TakeRows(y, *rows), rows->length, &result); !s.ok()) {
    return s;
  }
  if (Status s = FinishCase(&problem); !s.ok()) return s;
  return std::vector{std::move(result)};
}

}  // namespace attest
