// SPDX-License-Identifier: Apache-2.0
// SHA-256 digests of bytes and of sets of tensors.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "core/tensor.h"

namespace attest {

// 64 lower-case hexadecimal digits.
std::string Sha256(std::span<const std::byte> bytes);

// Digest over name, type, shape and bytes of every tensor, in the order of their names.
std::string Sha256(const TensorMap& tensors);

}  // namespace attest
