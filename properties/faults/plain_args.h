// SPDX-License-Identifier: Apache-2.0
// What the plain implementation is called with: tensors of any type and layout, and its switches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "audit/guarded_tensor.h"
#include "core/contract.h"
#include "core/dtype.h"
#include "properties/faults/fault.h"

namespace attest {

// A tensor of up to four axes, read and written through its strides; absent when nothing was given.
// Missing trailing axes have length 1.
class PlainTensor {
 public:
  PlainTensor() = default;
  explicit PlainTensor(GuardedTensor& tensor);

  bool present() const { return data_ != nullptr; }
  const std::array<Index, 4>& shape() const { return shape_; }

  // An element, exactly. Along an axis of length 1 every index names the only element.
  double operator()(Index a, Index b = 0, Index c = 0, Index d = 0) const {
    return Read(Offset({a, b, c, d}));
  }
  // Stores `value` rounded to the tensor's type.
  void Set(double value, Index a, Index b = 0, Index c = 0, Index d = 0) const;

  // Faults in addressing. The first takes the elements to lie densely, in row-major order.
  void ForgetStrides();
  // The product of the index along `axis` with its stride is formed in 32 bits.
  void NarrowOffsets(std::size_t axis) { narrow_[axis] = true; }

 private:
  static constexpr Index kOutside = -1;

  Index Offset(const std::array<Index, 4>& at) const;
  double Read(Index offset) const;

  std::byte* data_ = nullptr;
  DType dtype_ = DType::kF32;
  std::array<Index, 4> shape_{1, 1, 1, 1};
  std::array<Index, 4> strides_{};
  std::array<bool, 4> narrow_{};
};

struct PlainInputs {
  PlainTensor q, k, v;
  PlainTensor mask, bias, keep;  // [B, Hq, Tq, Tk], any axis of length 1
  PlainTensor kv_lengths, q_lengths, q_documents, kv_documents;
  PlainTensor alibi_slopes, sinks, local_center;
  PlainTensor w, w_q, w_k, b, v_a;
  PlainTensor grad_out, grad_lse;

  // Null for a name that the contract does not have.
  PlainTensor* Find(std::string_view name);
};

struct PlainOutputs {
  PlainTensor out, lse, weights;
  PlainTensor grad_q, grad_k, grad_v, grad_bias, grad_sinks;
  PlainTensor grad_w, grad_w_q, grad_w_k, grad_b, grad_v_a;

  PlainTensor* Find(std::string_view name);
  bool AnyGradient() const;
};

// What a subject knows beside its arguments.
struct PlainState {
  std::uint64_t calls = 0;          // the present one included
  std::vector<double> accumulator;  // of the last row of the call before
  bool refused = false;             // a control met a row for which it does not claim to be right
};

struct PlainCall {
  const Contract* contract = nullptr;
  PlainInputs in;
  PlainOutputs out;
  int threads = 1;
  Fault fault = Fault::kNone;
  Control control = Control::kNone;
  PlainState* state = nullptr;

  const Dimensions& shape() const { return contract->shape; }
  bool Has(Fault other) const { return fault == other; }
  bool Has(Control other) const { return control == other; }
};

// One (batch, query head, query) and the key/value head of its group.
struct RowIndex {
  Index b = 0;
  Index h = 0;
  Index i = 0;
  Index g = 0;
};

}  // namespace attest
