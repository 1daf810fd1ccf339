// SPDX-License-Identifier: Apache-2.0
// One call of the project's own kernels, put together from a contract and named tensors.
#pragma once

#include <string>
#include <vector>

#include "core/case.h"
#include "optimized/attention.h"

namespace attest {

// Bind what there is, then Run. Neither the contract's tensors nor the outputs are copied: they
// must outlive the call.
class KernelCall {
 public:
  explicit KernelCall(const Contract& contract);

  // A tensor of the contract by its name; names that it does not know are ignored. `strides` in
  // elements, one an axis.
  void BindInput(const std::string& name, const void* data, DType dtype, const Shape& shape,
                 const std::vector<Index>& strides);
  void BindOutput(const std::string& name, void* data, DType dtype, const Shape& shape,
                  const std::vector<Index>& strides);
  // The same for dense tensors.
  void BindInput(const std::string& name, const void* data, DType dtype, const Shape& shape);
  void BindOutput(const std::string& name, void* data, DType dtype, const Shape& shape);

  AttentionArgs& args() { return args_; }
  AttentionOutputs& outputs() { return outputs_; }
  AttentionGradients& gradients() { return gradients_; }
  // Whether a gradient has been bound as an output.
  bool backward() const { return backward_; }

  // The forward pass for out, lse and weights, then the backward pass for gradients: from that out
  // and lse if both are bound.
  Status Run(Mode mode, AttentionAlgorithm algorithm, Execution& execution) const;

 private:
  std::array<Index, 4> scores_;  // the shape of masks and biases after broadcasting
  Alibi alibi_;
  AttentionArgs args_;
  AttentionOutputs outputs_;
  AttentionGradients gradients_;
  bool backward_ = false;
  std::vector<double> default_slopes_;     // of ALiBi, for f64
  std::vector<float> default_slopes_f32_;  // for the others
};

// Runs a case as a whole: its tensors in, those outputs that its contract asks for out.
StatusOr<TensorMap> RunKernel(const Case& problem, Mode mode, AttentionAlgorithm algorithm,
                              Execution& execution);

}  // namespace attest
