// SPDX-License-Identifier: Apache-2.0
// What the plug-ins of other libraries share: a call of attest/plugin.h as a case, its masks and
// biases put together, and tensors in the orders that libraries take.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/case.h"
#include "core/status.h"

namespace attest {

// An entry point of a library. What `supports` does not list, the plug-in answers with
// "unsupported".
struct PeerInfo {
  std::string name;
  std::string version;
  nlohmann::ordered_json supports;
  nlohmann::ordered_json arithmetic;
};

// The JSON text of an info.
std::string InfoText(const PeerInfo& info);

// What a plug-in defines; peer_call.cc exports the functions of attest/plugin.h over it.
const std::string& PeerInfoText();

// Gives the outputs that the contract asks for, in any floating-point type: they are rounded to the
// outputs' types. It is not called for what the info does not list. Unsupported where the library
// has no such attention or refuses the case.
StatusOr<TensorMap> PeerAttention(const Case& problem, int threads);

// Element [b, h, i, j] of a tensor of rank 4 that is broadcast to larger axes.
double BroadcastAt(const Tensor& tensor, Index b, Index h, Index i, Index j);

// BOOL [B, Hq, Tq, Tk]: the keys that mask, causal rule, window, lengths, documents and local
// window allow; a bias of -infinity excludes further ones.
Tensor AllowedKeys(const Case& problem);

// A mask or bias with its axes of queries and keys, though not the others, at full length.
Tensor WithFullRows(const Tensor& tensor, const Dimensions& shape);

// [B, Hq, Tq, Tk] in `dtype`, rounded: what is added to scores. The bias, -infinity for keys that
// are not allowed, and nothing of ALiBi.
Tensor Additions(const Case& problem, DType dtype);

// The tensor in another type; nothing where an element is no number of it.
std::optional<Tensor> ConvertedExactly(const Tensor& tensor, DType dtype);

// [B, H, T, D] as [B, T, H, D], or the other way round.
Tensor WithAxesSwapped(const Tensor& tensor);

// Rows [first, first + count) of the axis of keys of [B, H, T, D].
Tensor RowsOf(const Tensor& tensor, Index first, Index count);

// The contract's scale, 1/sqrt(D_k) rounded to double.
double ScaleOf(const Contract& contract);

bool IsFinite(const Tensor& tensor);

}  // namespace attest
