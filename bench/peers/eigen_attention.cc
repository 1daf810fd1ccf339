// SPDX-License-Identifier: Apache-2.0
// Compiled several times by bench/CMakeLists.txt with other instruction sets, each time with
// another name for the function (ATTEST_EIGEN_ATTENTION) and, as its templates are inline, for the
// namespace Eigen, so that the linker cannot give one instruction set the code of another.
#include "bench/peers/eigen_attention.h"

#include <Eigen/Core>

namespace attest {

void ATTEST_EIGEN_ATTENTION(const EigenAttentionArgs& args) {
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using ConstMap = Eigen::Map<const Matrix>;
  const ConstMap q(args.q, args.queries, args.dim);
  const ConstMap k(args.k, args.keys, args.dim);
  const ConstMap v(args.v, args.keys, args.dim);
  Eigen::Map<Matrix> scores(args.scores, args.queries, args.keys);
  Eigen::Map<Matrix> out(args.out, args.queries, args.dim);
  // Not (q * k^T) * scale: Eigen 3.4 then multiplies coefficient by coefficient, 30 times slower.
  scores.noalias() = q * k.transpose();
  for (Eigen::Index i = 0; i < args.queries; ++i) {
    const Eigen::Index seen = args.causal ? args.keys - args.queries + i + 1 : args.keys;
    auto row = scores.row(i).head(seen);
    const float max = row.maxCoeff();
    row = ((row.array() - max) * args.scale).exp();
    row /= row.sum();
    scores.row(i).tail(args.keys - seen).setZero();
  }
  out.noalias() = scores * v;
}

}  // namespace attest
