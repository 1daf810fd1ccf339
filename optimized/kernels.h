// SPDX-License-Identifier: Apache-2.0
// The attention kernels by name: every algorithm in every mode.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "optimized/attention.h"

namespace attest {

struct KernelInfo {
  std::string_view name;         // "tiled", "tiled-reproducible", "tiled-accurate", ...
  std::string_view description;  // one line, for listings
  AttentionAlgorithm algorithm;
  Mode mode;
  bool gradients = false;  // AttentionBackward belongs to it
  bool specimen = false;   // known to fail, kept to be looked at
};

// All kernels, in a fixed order.
std::span<const KernelInfo> Kernels();

// The kernel of this name, or nothing.
std::optional<KernelInfo> FindKernel(std::string_view name);

}  // namespace attest
