// SPDX-License-Identifier: Apache-2.0
// The table of attention kernels.
#include "optimized/kernels.h"

namespace attest {
namespace {

constexpr KernelInfo kKernels[] = {
    {"materialised", "a whole row of scores, softmax shifted by the row maximum, then times v",
     AttentionAlgorithm::kMaterialised},
    {"materialised-online", "a whole row of scores, one-pass softmax with rescaling, then times v",
     AttentionAlgorithm::kMaterialisedOnline},
    {"tiled", "blocks of 64 keys with running maximum, sum and output; no row of scores",
     AttentionAlgorithm::kTiled},
};

}  // namespace

std::span<const KernelInfo> Kernels() { return kKernels; }

std::optional<KernelInfo> FindKernel(std::string_view name) {
  for (const KernelInfo& kernel : kKernels) {
    if (kernel.name == name) return kernel;
  }
  return std::nullopt;
}

}  // namespace attest
