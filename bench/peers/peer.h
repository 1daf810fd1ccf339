// SPDX-License-Identifier: Apache-2.0
// Other implementations of attention, timed beside ours: each optional, found when the benchmark
// runs and loaded into its process. `make peers` installs them; no build or test needs one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/attention_problem.h"
#include "core/status.h"

namespace attest {

// One way to compute attention with a library. All of them use one thread.
struct Peer {
  std::string name;  // "onednn sgemm", "ggml flash"
  // Unsupported: the peer has no such problem (causal only, square only, ...).
  std::function<StatusOr<std::unique_ptr<AttentionCall>>(const AttentionProblem& problem)> prepare;
};

// A library that was looked for.
struct PeerLibrary {
  std::string name;       // "OpenBLAS"
  std::string version{};  // as it says itself
  std::string licence;
  std::string missing{};  // why there is nothing to time; empty where there is
  std::vector<Peer> peers{};
  bool changed_fp_state = false;  // loading it set flush-to-zero or another rounding; undone
};

// Every library, loaded where it was found. Changes this process: OpenMP and OpenBLAS are held to
// one thread, OPENBLAS_CORETYPE is set to the best kernels for this machine and OPENBLAS_L2_SIZE
// removed before OpenBLAS is loaded, and freed memory is kept. Call it once, before other threads
// run.
std::vector<PeerLibrary> LoadPeers();

// One function for each library, in a file of its own.
PeerLibrary LoadEigen();        // Eigen 3.4, compiled in: three statements, whole score matrices
PeerLibrary LoadOpenBlas();     // sgemm on blocks of 128 queries, our exponentials
PeerLibrary LoadOneDnn();       // the same with its sgemm; and its matmul and softmax primitives
PeerLibrary LoadOnnxRuntime();  // MultiHeadAttention, GroupQueryAttention, Attention
PeerLibrary LoadGgml();         // flash_attn_ext with keys and values in f32

}  // namespace attest
