// SPDX-License-Identifier: Apache-2.0
// A case: one contract with its tensors; and the files that cases and results live in.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/contract.h"
#include "core/file_io.h"
#include "core/status.h"
#include "core/tensor.h"

namespace attest {

struct Case {
  std::string name;
  Contract contract;
  TensorMap tensors;  // q, k, v, and whichever optional tensors of the contract exist

  // Null when the case has no such tensor.
  const Tensor* Find(const std::string& tensor) const;
};

// Fills in the default outputs (out, and the gradients of q, k and v where grad_out is present),
// then checks every tensor's presence, type, shape and values against the contract. One line names
// the tensor and what was expected.
Status FinishCase(Case* problem);

// Every output that the case allows: out, lse and weights, and, where grad_out or grad_lse is
// present, the gradient of every tensor that has one.
std::vector<std::string> AllowedOutputs(const Case& problem);

// Replaces what the contract asks for. Refuses an unknown or repeated name, an empty list, and a
// gradient that the case does not allow; then the case is left as it was.
Status SelectOutputs(const std::vector<std::string>& names, Case* problem);

// Shape and type of the output `name` of a case: "out", "lse", "weights", or "grad_X", which has
// those of the case's tensor X. Any other name, and the gradient of a tensor that the case lacks,
// is no output: it has the shape {0}, no elements.
Shape OutputShape(const Case& problem, const std::string& name);
DType OutputDType(const Case& problem, const std::string& name);

// Reads a case from a .safetensors file (contract in its metadata key `attest`), or from .npz,
// with the contract read from `contract_file`, which is an error for a file that has its own.
StatusOr<Case> ReadCase(const std::filesystem::path& file,
                        const std::optional<std::filesystem::path>& contract_file = std::nullopt);
Status WriteCase(const std::filesystem::path& file, const Case& problem,
                 Durability durability = Durability::kFlushed);

// Reads a result file (.safetensors, .npz, or .npy with `out` alone) and checks every output that
// the case asks for against it; outputs that are missing are simply absent from the map (a
// partial result), others are ignored.
StatusOr<TensorMap> ReadResult(const std::filesystem::path& file, const Case& problem);

}  // namespace attest
