// SPDX-License-Identifier: Apache-2.0
// Eigen: compiled in once for each instruction set (eigen_attention.cc); here one is chosen.
#include <Eigen/Core>

#include <fmt/format.h>

#include "bench/peers/eigen_attention.h"
#include "bench/peers/peer.h"

namespace attest {
namespace {

EigenAttentionFunction* BestForThisMachine(std::string* instructions) {
#ifdef ATTEST_EIGEN_X86
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
    *instructions = "AVX-512";
    return EigenAttentionAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    *instructions = "AVX2";
    return EigenAttentionAvx2;
  }
#endif
  *instructions = "the compiler's baseline";
  return EigenAttentionBaseline;
}

class EigenCall final : public AttentionCall {
 public:
  EigenCall(const AttentionProblem& problem, EigenAttentionFunction* function)
      : problem_(problem),
        function_(function),
        scores_(static_cast<std::size_t>(problem.shape.queries * problem.shape.keys)),
        out_(static_cast<std::size_t>(problem.q.size())) {}

  Status Run() override {
    const AttentionShape& s = problem_.shape;
    for (Index head = 0; head < s.heads; ++head) {
      function_({.queries = s.queries,
                 .keys = s.keys,
                 .dim = s.dim,
                 .causal = s.causal,
                 .scale = ScaleOf(s),
                 .q = problem_.q.data<float>() + head * s.queries * s.dim,
                 .k = problem_.k.data<float>() + head * s.keys * s.dim,
                 .v = problem_.v.data<float>() + head * s.keys * s.dim,
                 .scores = scores_.data(),
                 .out = out_.data() + head * s.queries * s.dim});
    }
    return Status();
  }

  std::vector<float> Output() const override { return out_; }

 private:
  const AttentionProblem& problem_;
  EigenAttentionFunction* function_;
  std::vector<float> scores_;
  std::vector<float> out_;
};

}  // namespace

PeerLibrary LoadEigen() {
  std::string instructions;
  EigenAttentionFunction* function = BestForThisMachine(&instructions);
  PeerLibrary peer{.name = "Eigen", .licence = "MPL-2.0"};
  peer.version = fmt::format("{}.{}.{}, {}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION,
                             EIGEN_MINOR_VERSION, instructions);
  peer.peers.push_back(
      {"eigen",
       [function](const AttentionProblem& problem) -> StatusOr<std::unique_ptr<AttentionCall>> {
         return std::unique_ptr<AttentionCall>(std::make_unique<EigenCall>(problem, function));
       }});
  return peer;
}

}  // namespace attest
