// SPDX-License-Identifier: Apache-2.0
// Checks of shapes, strides, lengths and scale before attention runs.
#include "optimized/attention_check.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

namespace attest {
namespace {

template <std::size_t Rank>
std::string Text(const std::array<Index, Rank>& shape) {
  return ToString(Shape(shape.begin(), shape.end()));
}

template <std::size_t Rank>
Index Elements(const std::array<Index, Rank>& shape) {
  return ElementCount(Shape(shape.begin(), shape.end()));
}

template <class T, std::size_t Rank>
Status CheckView(const char* name, const View<T, Rank>& view,
                 const std::array<Index, Rank>& expected) {
  if (view.shape != expected) {
    return InvalidArgument("attention: " + std::string(name) + " has shape " + Text(view.shape) +
                           ", expected " + Text(expected));
  }
  if (Elements(expected) > 0 && view.data == nullptr) {
    return InvalidArgument("attention: " + std::string(name) + " has no data");
  }
  return Status();
}

template <class T, std::size_t Rank>
Status CheckInput(const char* name, const View<T, Rank>& view,
                  const std::array<Index, Rank>& expected) {
  if (Status s = CheckView(name, view, expected); !s.ok()) return s;
  if (view.shape[Rank - 1] > 1 && view.strides[Rank - 1] != 1) {
    return InvalidArgument("attention: the last axis of " + std::string(name) +
                           " must have stride 1");
  }
  return Status();
}

template <std::size_t Rank>
Status CheckOutput(const char* name, const View<float, Rank>& view,
                   const std::array<Index, Rank>& expected) {
  if (Status s = CheckView(name, view, expected); !s.ok()) return s;
  if (Elements(expected) == 0) return Status();
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (view.shape[axis] > 1 && view.strides[axis] == 0) {
      return InvalidArgument("attention: elements of " + std::string(name) +
                             " coincide (stride 0 on axis " + std::to_string(axis) + ")");
    }
  }
  return Status();
}

Status CheckLengths(const char* name, const std::int32_t* lengths, Index batch, Index limit) {
  if (lengths == nullptr) return Status();
  for (Index b = 0; b < batch; ++b) {
    if (lengths[b] < 0 || lengths[b] > limit) {
      return InvalidArgument("attention: " + std::string(name) + "[" + std::to_string(b) +
                             "] = " + std::to_string(lengths[b]) + " is not in [0, " +
                             std::to_string(limit) + "]");
    }
  }
  return Status();
}

Status CheckScale(const std::optional<double>& scale) {
  if (!scale || *scale == 0.0) return Status();
  const double magnitude = std::fabs(*scale);
  if (!std::isfinite(magnitude)) return InvalidArgument("attention: the scale is not finite");
  if (magnitude < std::numeric_limits<float>::min() ||
      magnitude > std::numeric_limits<float>::max()) {
    return Unsupported("attention: the scale is not in the range of normal floats");
  }
  return Status();
}

}  // namespace

StatusOr<Dimensions> CheckAttention(const AttentionArgs& args, const AttentionOutputs& outputs) {
  Dimensions n;
  n.batch = args.q.shape[0];
  n.q_heads = args.q.shape[1];
  n.kv_heads = args.k.shape[1];
  n.q_len = args.q.shape[2];
  n.kv_len = args.k.shape[2];
  n.qk_dim = n.k_dim = args.q.shape[3];
  n.v_dim = args.v.shape[3];
  if (n.batch < 0 || n.q_heads < 0 || n.kv_heads < 0 || n.q_len < 0 || n.kv_len < 0) {
    return InvalidArgument("attention: negative extent");
  }
  if (n.qk_dim < 1 || n.v_dim < 1) {
    return InvalidArgument("attention: the last axes of q, k and v must not be empty");
  }
  if (n.q_heads > 0 && (n.kv_heads == 0 || n.q_heads % n.kv_heads != 0)) {
    return InvalidArgument("attention: " + std::to_string(n.q_heads) +
                           " query heads cannot share " + std::to_string(n.kv_heads) +
                           " key/value heads evenly");
  }

  const std::array<Index, 4> scores{n.batch, n.q_heads, n.q_len, n.kv_len};
  Status s = CheckInput("q", args.q, {n.batch, n.q_heads, n.q_len, n.qk_dim});
  if (s.ok()) s = CheckInput("k", args.k, {n.batch, n.kv_heads, n.kv_len, n.qk_dim});
  if (s.ok()) s = CheckInput("v", args.v, {n.batch, n.kv_heads, n.kv_len, n.v_dim});
  if (s.ok() && args.mask) s = CheckView("mask", *args.mask, scores);
  if (s.ok() && args.bias) s = CheckView("bias", *args.bias, scores);
  if (s.ok()) s = CheckOutput("out", outputs.out, {n.batch, n.q_heads, n.q_len, n.v_dim});
  if (s.ok() && outputs.lse) {
    s = CheckOutput("lse", *outputs.lse, {n.batch, n.q_heads, n.q_len});
  }
  if (s.ok() && outputs.weights) s = CheckOutput("weights", *outputs.weights, scores);
  if (s.ok()) s = CheckLengths("kv_lengths", args.kv_lengths, n.batch, n.kv_len);
  if (s.ok()) s = CheckLengths("q_lengths", args.q_lengths, n.batch, n.q_len);
  if (s.ok()) s = CheckScale(args.scale);
  if (!s.ok()) return s;
  return n;
}

}  // namespace attest
