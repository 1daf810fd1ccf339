// SPDX-License-Identifier: Apache-2.0
#include "audit/case_slice.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string>

namespace attest {
namespace {

// The axis of each tensor that runs over batch entries, query heads, ...
using AxisOf = std::map<std::string, std::size_t>;

const AxisOf kBatchAxis{{"q", 0},
                        {"k", 0},
                        {"v", 0},
                        {"mask", 0},
                        {"bias", 0},
                        {"keep", 0},
                        {"kv_lengths", 0},
                        {"q_lengths", 0},
                        {"q_documents", 0},
                        {"kv_documents", 0},
                        {"local_center", 0},
                        {"grad_out", 0},
                        {"grad_lse", 0}};
const AxisOf kKvHeadAxis{{"k", 1}, {"v", 1}};
const AxisOf kQueryHeadAxis{
    {"q", 1},     {"mask", 1},         {"bias", 1},     {"keep", 1},    {"alibi_slopes", 0},
    {"sinks", 0}, {"local_center", 1}, {"grad_out", 1}, {"grad_lse", 1}};
const AxisOf kQueryAxis{{"q", 2},           {"mask", 2},         {"bias", 2},     {"keep", 2},
                        {"q_documents", 1}, {"local_center", 2}, {"grad_out", 2}, {"grad_lse", 2}};
const AxisOf kKeyAxis{{"k", 2},    {"v", 2},    {"mask", 3},
                      {"bias", 3}, {"keep", 3}, {"kv_documents", 1}};
const AxisOf kQueryDimAxis{{"q", 3}, {"w", 0}, {"w_q", 1}};
const AxisOf kKeyDimAxis{{"k", 3}, {"w", 1}, {"w_k", 1}};
const AxisOf kValueDimAxis{{"v", 3}, {"grad_out", 3}};
const AxisOf kUnitAxis{{"w_q", 0}, {"w_k", 0}, {"b", 0}, {"v_a", 0}};

// An axis of length 1 beside a longer one of the problem is broadcast, and stays.
void Take(const AxisOf& axes, Index extent, const std::vector<Index>& entries, Case* problem) {
  for (const auto& [name, axis] : axes) {
    const auto found = problem->tensors.find(name);
    if (found == problem->tensors.end() || found->second.shape()[axis] != extent) continue;
    found->second = TakeEntries(found->second, axis, entries);
  }
}

// Each length becomes the number of entries below it.
void ShortenLengths(const char* name, const std::vector<Index>& entries, Case* problem) {
  const auto found = problem->tensors.find(name);
  if (found == problem->tensors.end()) return;
  Tensor& lengths = found->second;
  for (Index b = 0; b < lengths.size(); ++b) {
    const Index length = static_cast<Index>(lengths.At(b));
    const auto left = std::lower_bound(entries.begin(), entries.end(), length) - entries.begin();
    lengths.Set(b, static_cast<double>(left));
  }
}

}  // namespace

Tensor TakeEntries(const Tensor& tensor, std::size_t axis, const std::vector<Index>& entries) {
  Shape shape = tensor.shape();
  const Index extent = shape[axis];
  shape[axis] = static_cast<Index>(entries.size());
  Index outer = 1;
  std::size_t run = SizeOf(tensor.dtype());  // bytes of one entry
  for (std::size_t a = 0; a < shape.size(); ++a) {
    if (a < axis) outer *= shape[a];
    if (a > axis) run *= static_cast<std::size_t>(shape[a]);
  }
  Tensor result(tensor.dtype(), shape);
  if (run == 0) return result;
  std::byte* to = result.bytes();
  for (Index o = 0; o < outer; ++o) {
    for (const Index entry : entries) {
      const auto from = static_cast<std::size_t>(o * extent + std::max<Index>(entry, 0)) * run;
      if (entry >= 0) std::memcpy(to, tensor.bytes() + from, run);
      to += run;
    }
  }
  return result;
}

Index Extent(const Case& problem, CaseAxis axis) {
  const Dimensions& s = problem.contract.shape;
  switch (axis) {
    case CaseAxis::kBatch:
      return s.batch;
    case CaseAxis::kKvHeads:
      return s.kv_heads;
    case CaseAxis::kGroupMembers:
      return s.q_heads / s.kv_heads;
    case CaseAxis::kQueries:
      return s.q_len;
    case CaseAxis::kKeys:
      return s.kv_len;
    case CaseAxis::kQueryDims:
      return s.qk_dim;
    case CaseAxis::kKeyDims:
      return problem.contract.score == ScoreKind::kDot ? 0 : s.k_dim;
    case CaseAxis::kValueDims:
      return s.v_dim;
    case CaseAxis::kScoreUnits:
      return problem.Find("v_a") == nullptr ? 0 : problem.Find("v_a")->size();
  }
  return 0;
}

Case KeepEntries(const Case& problem, CaseAxis axis, const std::vector<Index>& entries) {
  Case part = problem;
  Dimensions& s = part.contract.shape;
  const Index count = static_cast<Index>(entries.size());
  const Index group = s.q_heads / s.kv_heads;
  std::vector<Index> heads;
  switch (axis) {
    case CaseAxis::kBatch:
      Take(kBatchAxis, s.batch, entries, &part);
      s.batch = count;
      break;
    case CaseAxis::kKvHeads:
      for (const Index g : entries) {
        for (Index member = 0; member < group; ++member) heads.push_back(g * group + member);
      }
      Take(kKvHeadAxis, s.kv_heads, entries, &part);
      Take(kQueryHeadAxis, s.q_heads, heads, &part);
      s.kv_heads = count;
      s.q_heads = count * group;
      break;
    case CaseAxis::kGroupMembers:
      for (Index g = 0; g < s.kv_heads; ++g) {
        for (const Index member : entries) heads.push_back(g * group + member);
      }
      Take(kQueryHeadAxis, s.q_heads, heads, &part);
      s.q_heads = count * s.kv_heads;
      break;
    case CaseAxis::kQueries:
      Take(kQueryAxis, s.q_len, entries, &part);
      ShortenLengths("q_lengths", entries, &part);
      s.q_len = count;
      break;
    case CaseAxis::kKeys:
      Take(kKeyAxis, s.kv_len, entries, &part);
      ShortenLengths("kv_lengths", entries, &part);
      s.kv_len = count;
      break;
    case CaseAxis::kQueryDims:
      Take(kQueryDimAxis, s.qk_dim, entries, &part);
      if (part.contract.score == ScoreKind::kDot) {
        Take(kKeyDimAxis, s.k_dim, entries, &part);
        s.k_dim = count;
      }
      s.qk_dim = count;
      break;
    case CaseAxis::kKeyDims:
      Take(kKeyDimAxis, s.k_dim, entries, &part);
      s.k_dim = count;
      break;
    case CaseAxis::kValueDims:
      Take(kValueDimAxis, s.v_dim, entries, &part);
      s.v_dim = count;
      break;
    case CaseAxis::kScoreUnits:
      Take(kUnitAxis, Extent(problem, axis), entries, &part);
      break;
  }
  return part;
}

}  // namespace attest
