// SPDX-License-Identifier: Apache-2.0
// One NumPy array as a stream of bytes: what .npy files and the members of .npz archives share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// A file or an archive member that is read from its beginning to its end.
struct NpySource {
  std::string where;  // begins every message
  std::uint64_t size = 0;
  std::function<Status(std::span<std::byte>)> read;  // the next bytes, all of them or an error
};

// The array that fills the source exactly. The elements are allocated only after the header agrees
// with the source's size.
StatusOr<Tensor> ReadNpyArray(const NpySource& source);

// Magic, version 1.0 and the padded header, byte for byte as NumPy writes them. The tensor's bytes
// follow.
std::string NpyPrefix(const Tensor& tensor);

}  // namespace attest
