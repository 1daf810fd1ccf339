// SPDX-License-Identifier: Apache-2.0
#include "optimized/attention_check.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <string>

#include "optimized/rows.h"

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

Status Wrong(const std::string& what) { return InvalidArgument("attention: " + what); }

template <class Data, std::size_t Rank>
Status CheckShape(const char* name, const TensorRef<Data, Rank>& tensor,
                  const std::array<Index, Rank>& expected) {
  if (tensor.shape != expected) {
    return Wrong(std::string(name) + " has shape " + Text(tensor.shape) + ", expected " +
                 Text(expected));
  }
  if (Elements(expected) > 0 && tensor.data == nullptr) {
    return Wrong(std::string(name) + " has no data");
  }
  return Status();
}

enum class TypeRule { kDType, kDTypeOrWide, kI32, kBool };

// Checks optional inputs one after the other; the first error stays.
class InputChecker {
 public:
  explicit InputChecker(DType dtype)
      : dtype_(dtype), wide_(dtype == DType::kF64 ? DType::kF64 : DType::kF32) {}

  template <std::size_t Rank>
  void Check(const char* name, const std::optional<Input<Rank>>& tensor,
             const std::array<Index, Rank>& expected, TypeRule rule) {
    if (!status_.ok() || !tensor) return;
    status_ = CheckShape(name, *tensor, expected);
    const DType type = tensor->dtype;
    bool fits = type == dtype_;
    std::string wanted(NameOf(dtype_));
    if (rule == TypeRule::kDTypeOrWide) {
      fits = fits || type == wide_;
      if (wide_ != dtype_) wanted += " or " + std::string(NameOf(wide_));
    } else if (rule == TypeRule::kI32) {
      fits = type == DType::kI32;
      wanted = "i32";
    } else if (rule == TypeRule::kBool) {
      fits = type == DType::kBool;
      wanted = "bool";
    }
    if (status_.ok() && !fits) {
      status_ = Wrong(std::string(name) + " has element type " + std::string(NameOf(type)) +
                      ", expected " + wanted);
    }
  }
  void Require(const char* name, bool present, const char* by) {
    if (status_.ok() && !present) {
      status_ = Wrong(std::string(name) + " is missing, which " + by + " needs");
    }
  }
  void Lengths(const char* name, const std::optional<Input<1>>& lengths, Index limit) {
    if (!status_.ok() || !lengths) return;
    for (Index b = 0; b < lengths->shape[0]; ++b) {
      const auto length = static_cast<Index>(ReadElement(DType::kI32, At(*lengths, b)));
      if (length < 0 || length > limit) {
        status_ =
            Wrong(std::string(name) + "[" + std::to_string(b) + "] = " + std::to_string(length) +
                  " is not in [0, " + std::to_string(limit) + "]");
        return;
      }
    }
  }

  Status& status() { return status_; }

 private:
  DType dtype_;
  DType wide_;
  Status status_;
};

Status CheckNumbers(const AttentionArgs& args) {
  if (args.scale && !std::isfinite(*args.scale)) return Wrong("the scale is not finite");
  if (!(args.softcap >= 0.0) || !std::isfinite(args.softcap)) {
    return Wrong("the soft cap must be 0 (none) or positive and finite");
  }
  if (args.window.left < -1 || args.window.right < -1) {
    return Wrong("a side of the window is below -1 (unbounded)");
  }
  if (args.keep && !(args.dropout_rate >= 0.0 && args.dropout_rate < 1.0)) {
    return Wrong("the dropout rate is not in [0, 1)");
  }
  if (args.local && !(args.local->half_width > 0.0 && std::isfinite(args.local->half_width))) {
    return Wrong("the half width of the local window must be positive and finite");
  }
  return Status();
}

}  // namespace

double ScaleOf(const AttentionArgs& args) {
  if (args.scale) return *args.scale;
  return args.score == ScoreKind::kDot ? 1.0 / std::sqrt(static_cast<double>(args.k.shape[3]))
                                       : 1.0;
}

StatusOr<Dimensions> CheckInputs(const AttentionArgs& args) {
  Dimensions n;
  n.batch = args.q.shape[0];
  n.q_heads = args.q.shape[1];
  n.kv_heads = args.k.shape[1];
  n.q_len = args.q.shape[2];
  n.kv_len = args.k.shape[2];
  n.qk_dim = args.q.shape[3];
  n.k_dim = args.k.shape[3];
  n.v_dim = args.v.shape[3];
  if (n.batch < 0 || n.q_heads < 0 || n.kv_heads < 0 || n.q_len < 0 || n.kv_len < 0) {
    return Wrong("negative extent");
  }
  if (n.qk_dim < 1 || n.k_dim < 1 || n.v_dim < 1) {
    return Wrong("the last axes of q, k and v must not be empty");
  }
  if (n.q_heads > 0 && (n.kv_heads == 0 || n.q_heads % n.kv_heads != 0)) {
    return Wrong(std::to_string(n.q_heads) + " query heads cannot share " +
                 std::to_string(n.kv_heads) + " key/value heads evenly");
  }
  if (args.score == ScoreKind::kDot) n.k_dim = n.qk_dim;
  if (!IsFloat(args.q.dtype)) return Wrong("q is not of a floating type");

  const std::array<Index, 4> scores{n.batch, n.q_heads, n.q_len, n.kv_len};
  InputChecker checker(args.q.dtype);
  const auto check = [&](const char* name, const auto& tensor, const auto& shape, TypeRule rule) {
    checker.Check(name, tensor, shape, rule);
  };
  using Shape1 = std::array<Index, 1>;
  using Shape2 = std::array<Index, 2>;
  using Shape3 = std::array<Index, 3>;
  using Shape4 = std::array<Index, 4>;
  check("q", std::optional(args.q), Shape4{n.batch, n.q_heads, n.q_len, n.qk_dim},
        TypeRule::kDType);
  check("k", std::optional(args.k), Shape4{n.batch, n.kv_heads, n.kv_len, n.k_dim},
        TypeRule::kDType);
  check("v", std::optional(args.v), Shape4{n.batch, n.kv_heads, n.kv_len, n.v_dim},
        TypeRule::kDType);
  if (args.score == ScoreKind::kGeneral) {
    checker.Require("w", args.w.has_value(), "the score 'general'");
    check("w", args.w, Shape2{n.qk_dim, n.k_dim}, TypeRule::kDType);
  }
  if (args.score == ScoreKind::kAdditive) {
    checker.Require("w_q", args.w_q.has_value(), "the score 'additive'");
    checker.Require("w_k", args.w_k.has_value(), "the score 'additive'");
    checker.Require("v_a", args.v_a.has_value(), "the score 'additive'");
    const Index width = args.w_q ? args.w_q->shape[0] : 0;
    check("w_q", args.w_q, Shape2{width, n.qk_dim}, TypeRule::kDType);
    check("w_k", args.w_k, Shape2{width, n.k_dim}, TypeRule::kDType);
    check("b", args.b, Shape1{width}, TypeRule::kDType);
    check("v_a", args.v_a, Shape1{width}, TypeRule::kDType);
  }
  check("mask", args.mask, scores, TypeRule::kBool);
  check("bias", args.bias, scores, TypeRule::kDTypeOrWide);
  check("alibi_slopes", args.alibi_slopes, Shape1{n.q_heads}, TypeRule::kDTypeOrWide);
  check("sinks", args.sinks, Shape1{n.q_heads}, TypeRule::kDTypeOrWide);
  check("keep", args.keep, scores, TypeRule::kBool);
  check("kv_lengths", args.kv_lengths, Shape1{n.batch}, TypeRule::kI32);
  check("q_lengths", args.q_lengths, Shape1{n.batch}, TypeRule::kI32);
  checker.Lengths("kv_lengths", args.kv_lengths, n.kv_len);
  checker.Lengths("q_lengths", args.q_lengths, n.q_len);
  if (args.q_documents || args.kv_documents) {
    checker.Require("q_documents", args.q_documents.has_value(), "kv_documents");
    checker.Require("kv_documents", args.kv_documents.has_value(), "q_documents");
    check("q_documents", args.q_documents, Shape2{n.batch, n.q_len}, TypeRule::kI32);
    check("kv_documents", args.kv_documents, Shape2{n.batch, n.kv_len}, TypeRule::kI32);
  }
  if (args.local) {
    checker.Require("local_center", args.local_center.has_value(), "local attention");
    check("local_center", args.local_center, Shape3{n.batch, n.q_heads, n.q_len},
          TypeRule::kDTypeOrWide);
  }
  if (checker.status().ok()) checker.status() = CheckNumbers(args);
  if (!checker.status().ok()) return checker.status();
  return n;
}

template <std::size_t Rank>
Status CheckOutput(const char* name, const std::optional<Output<Rank>>& output,
                   const std::array<Index, Rank>& expected) {
  if (!output) return Status();
  if (Status s = CheckShape(name, *output, expected); !s.ok()) return s;
  if (!IsFloat(output->dtype)) return Wrong(std::string(name) + " is not of a floating type");
  if (Elements(expected) == 0) return Status();
  for (std::size_t axis = 0; axis < Rank; ++axis) {
    if (expected[axis] > 1 && output->strides[axis] == 0) {
      return Wrong("elements of " + std::string(name) + " coincide (stride 0 on axis " +
                   std::to_string(axis) + ")");
    }
  }
  return Status();
}

Status CheckOutputs(const AttentionArgs& args, const AttentionOutputs& outputs) {
  const Index batch = args.q.shape[0];
  const Index heads = args.q.shape[1];
  const Index q_len = args.q.shape[2];
  Status s = CheckOutput<4>("out", outputs.out, {batch, heads, q_len, args.v.shape[3]});
  if (s.ok()) s = CheckOutput<3>("lse", outputs.lse, {batch, heads, q_len});
  if (s.ok()) {
    s = CheckOutput<4>("weights", outputs.weights, {batch, heads, q_len, args.k.shape[2]});
  }
  return s;
}

template Status CheckOutput(const char*, const std::optional<Output<1>>&,
                            const std::array<Index, 1>&);
template Status CheckOutput(const char*, const std::optional<Output<2>>&,
                            const std::array<Index, 2>&);
template Status CheckOutput(const char*, const std::optional<Output<3>>&,
                            const std::array<Index, 3>&);
template Status CheckOutput(const char*, const std::optional<Output<4>>&,
                            const std::array<Index, 4>&);

}  // namespace attest
