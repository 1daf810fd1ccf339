// SPDX-License-Identifier: Apache-2.0
// Strict reading and writing of NumPy's .npy and .npz files.
#pragma once

#include <filesystem>

#include "core/status.h"
#include "core/tensor.h"

namespace attest {

// Reads one array: format versions 1 to 3, C order, little endian f8, f4, f2, i4, b1, and V2, which
// is how ml_dtypes stores bfloat16. Anything else, and any length that does not match the header,
// is refused with one line.
StatusOr<Tensor> ReadNpy(const std::filesystem::path& file);
Status WriteNpy(const std::filesystem::path& file, const Tensor& tensor);

// Reads a .npz archive: every member NAME.npy becomes the tensor NAME. Written members are stored
// uncompressed with a fixed time stamp, so that the same content gives the same bytes.
StatusOr<TensorMap> ReadNpz(const std::filesystem::path& file);
Status WriteNpz(const std::filesystem::path& file, const TensorMap& tensors);

}  // namespace attest
