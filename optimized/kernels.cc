// SPDX-License-Identifier: Apache-2.0
// The table of attention kernels.
#include "optimized/kernels.h"

namespace attest {
namespace {

using Algorithm = AttentionAlgorithm;

constexpr KernelInfo kKernels[] = {
    {"tiled", "blocks of queries and keys, online softmax; no row of scores; forward and backward",
     Algorithm::kTiled, Mode::kFast, true},
    {"tiled-reproducible", "the same bits on every SIMD target, for any thread count and batch",
     Algorithm::kTiled, Mode::kReproducible, true},
    {"tiled-accurate", "scores, sums and differences in twice the precision", Algorithm::kTiled,
     Mode::kAccurate, true},
    {"decode", "few queries, keys split in blocks that are merged in order", Algorithm::kDecode,
     Mode::kFast},
    {"decode-reproducible", "the bits of tiled-reproducible", Algorithm::kDecode,
     Mode::kReproducible},
    {"decode-accurate", "scores and sums in twice the precision", Algorithm::kDecode,
     Mode::kAccurate},
    {"materialised", "a whole row of scores, softmax shifted by the row maximum, then times v",
     Algorithm::kMaterialised, Mode::kFast},
    {"materialised-reproducible", "the same bits on every SIMD target", Algorithm::kMaterialised,
     Mode::kReproducible},
    {"materialised-accurate", "a compensated softmax", Algorithm::kMaterialised, Mode::kAccurate},
    {"materialised-online", "a whole row of scores, one-pass softmax with rescaling, then times v",
     Algorithm::kMaterialisedOnline, Mode::kFast},
    {"materialised-two-pass", "a whole row of scores, softmax without a maximum, then times v",
     Algorithm::kMaterialisedTwoPass, Mode::kFast},
    {"materialised-unshifted", "a specimen: exp(s) as it is, which overflows from s = 88.7 on",
     Algorithm::kMaterialisedUnshifted, Mode::kFast, false, true},
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
