// SPDX-License-Identifier: Apache-2.0
// Any bytes as a .npy file and as a .npz archive.
#include <string>

#include "core/npy.h"
#include "properties/fuzz/fuzz_file.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace attest;
  static FuzzFile file("npy");
  const std::filesystem::path name = file.Hold(data, size);
  const StatusOr<Tensor> array = ReadNpy(name);
  if (!array.ok()) Require(array.status().message().find('\n') == std::string::npos);
  const StatusOr<TensorMap> archive = ReadNpz(name);
  if (!archive.ok()) Require(archive.status().message().find('\n') == std::string::npos);
  return 0;
}
