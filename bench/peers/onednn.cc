// SPDX-License-Identifier: Apache-2.0
// oneDNN 2: sgemm on blocks of queries, and its matmul and softmax primitives on whole heads.
#include "audit/peers/onednn.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "bench/peers/blocked_attention.h"

namespace attest {
namespace {

// Head by head, each through the same three primitives and one score matrix.
class PrimitivesCall final : public AttentionCall {
 public:
  PrimitivesCall(const AttentionProblem& problem, const OneDnn& dnnl)
      : problem_(problem), head_(dnnl), out_(static_cast<std::size_t>(problem.q.size())) {}

  Status Prepare() {
    const AttentionShape& s = problem_.shape;
    return head_.Prepare({s.queries, s.keys, s.dim, s.dim, ScaleOf(s)});
  }

  Status Run() override {
    const AttentionShape& s = problem_.shape;
    std::function<void(float*)> mask;
    if (s.causal) mask = [this](float* scores) { Mask(scores); };
    for (Index head = 0; head < s.heads; ++head) {
      const Status status = head_.Run(problem_.q.data<float>() + head * s.queries * s.dim,
                                      problem_.k.data<float>() + head * s.keys * s.dim,
                                      problem_.v.data<float>() + head * s.keys * s.dim,
                                      out_.data() + head * s.queries * s.dim, mask);
      if (!status.ok()) return status;
    }
    return Status();
  }

  std::vector<float> Output() const override { return out_; }

 private:
  // Its primitives have no causal rule, and a mask as their own post-operation is far slower.
  void Mask(float* scores) const {
    const AttentionShape& s = problem_.shape;
    for (Index i = 0; i < s.queries; ++i) {
      float* row = scores + i * s.keys;
      std::fill(row + (s.keys - s.queries + i + 1), row + s.keys,
                -std::numeric_limits<float>::infinity());
    }
  }

  const AttentionProblem& problem_;
  DnnlHead head_;
  std::vector<float> out_;
};

}  // namespace

PeerLibrary LoadOneDnn() {
  PeerLibrary peer{.name = "oneDNN", .licence = "Apache-2.0"};
  const StatusOr<std::shared_ptr<OneDnn>> loaded = OneDnn::Load();
  if (!loaded.ok()) {
    peer.missing = loaded.status().message();
    return peer;
  }
  const std::shared_ptr<OneDnn> dnnl = *loaded;
  peer.version = dnnl->version;
  peer.changed_fp_state = dnnl->changed_fp_state;
  peer.peers.push_back(BlockedAttention("onednn sgemm", [dnnl](const Product& p) {
    return FromDnnl(dnnl->f.sgemm('N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, p.alpha, p.a,
                                  p.a_stride, p.b, p.b_stride, 0.0f, p.c, p.c_stride));
  }));
  peer.peers.push_back(
      {"onednn primitives",
       [dnnl](const AttentionProblem& problem) -> StatusOr<std::unique_ptr<AttentionCall>> {
         auto call = std::make_unique<PrimitivesCall>(problem, *dnnl);
         if (Status s = call->Prepare(); !s.ok()) return s;
         return std::unique_ptr<AttentionCall>(std::move(call));
       }});
  return peer;
}

}  // namespace attest
