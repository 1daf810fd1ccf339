// SPDX-License-Identifier: Apache-2.0
// A case under construction: sizes and types drawn at random, for a family to change and fill.
#pragma once

#include <functional>
#include <string>

#include "core/case.h"
#include "properties/case_families/dice.h"

namespace attest {

struct Draft {
  // Draws types and sizes; 1 to 300 keys, or 1000 to 4096 where `long_rows`.
  Draft(Dice& dice_to_use, bool long_rows);

  // Gives a tensor of this shape with elements drawn one after another. What the type cannot hold
  // becomes its largest finite number.
  Tensor& Fill(const std::string& name, const Shape& tensor_shape, DType dtype,
               const std::function<double()>& draw);
  // The same for a tensor of the contract's type, with normal numbers times `factor`.
  Tensor& FillNormal(const std::string& name, const Shape& tensor_shape, double factor = 1.0);

  // q, k and v of the shape as it is now, all normal, or by a draw of their own.
  void FillQkv(double q_factor = 1.0, double k_factor = 1.0);
  Tensor& FillV(const std::function<double()>& draw);
  // Replaces every element by a function of (element, column).
  void Change(const std::string& name, const std::function<double(double, Index)>& change);

  // Optional parts of the contract, each with random tensors.
  void AddMask(double share_allowed);
  void AddBias();
  void AddCausalOrWindow();
  void AddLengths();
  void AddDocuments();
  void AddAlibi();
  void AddSinks();
  void AddSoftcap();
  void AddLocal();
  void AddDropout();
  // Each of the masks, biases, sinks and so on above by a chance of its own.
  void AddSome(double chance);

  // What flows back, grad_out, grad_lse or both, and as outputs every gradient that there is a
  // tensor for, the LSE and sometimes out.
  void AskForGradients();

  // 1 + i ulps of the contract's type.
  double AboveOne(Index ulps) const;
  const FloatFormat& format() const { return FormatOf(contract.dtype); }

  Dice& dice;
  bool is_long;
  Case problem;
  Contract& contract;
  Dimensions& shape;

 private:
  // An axis of a mask or bias: whole, or rarely of length 1.
  Index Axis(Index length) { return dice.Chance(0.2) ? 1 : length; }
};

}  // namespace attest
