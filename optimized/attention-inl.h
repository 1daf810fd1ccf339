// SPDX-License-Identifier: Apache-2.0
// The two inner products of attention over one block of 64 keys.
//
// Computes: s_j = post * sum_c q_c k_jc for 64 keys, and o_c = sum over allowed j of p_j v_jc.
// Shapes: see optimized/attention_head.h; all arrays are packed, aligned and padded, so that no
//   vector reads beyond its data.
// Rounding points: ScoreBlock: one MulAdd for each c, in the order of c, from 0; then the product
//   with post. ValueBlock: one MulAdd for each allowed j, in the order of j, from 0; the block's
//   sum is then added to the accumulator. An unfused MulAdd (SSE4, SSSE3, EMU128, SCALAR) rounds
//   twice. Keys (for scores) and columns (for outputs) lie in the lanes: no sum crosses lanes, and
//   the order is the same for every target.
// Bound: g_n = n u / (1 - n u), u = 2^-24: scores g_(Dk+2) |scale| sum |q_c k_jc| (scale is rounded
//   to float, and multiplied in, once); outputs g_(64 + ceil(Tk/64)) sum p_j |v_jc|; fused or not,
//   a term passes as many roundings.

#include "optimized/block.h"

// Highway's include guard: the header is compiled once per target.
#if defined(ATTEST_OPTIMIZED_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTEST_OPTIMIZED_ATTENTION_INL_H_
#undef ATTEST_OPTIMIZED_ATTENTION_INL_H_
#else
#define ATTEST_OPTIMIZED_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// scores[j] = post * sum_c q[c] keys[64 c + j], for 64 keys j.
template <class D>
HWY_INLINE void ScoreBlock(D d, const float* HWY_RESTRICT q, const float* HWY_RESTRICT keys,
                           std::size_t dim, float post, float* HWY_RESTRICT scores) {
  const std::size_t lanes = hn::Lanes(d);
  const hn::Vec<D> factor = hn::Set(d, post);
  for (std::size_t j = 0; j < kBlock; j += 4 * lanes) {
    hn::Vec<D> s0 = hn::Zero(d);
    hn::Vec<D> s1 = hn::Zero(d);
    hn::Vec<D> s2 = hn::Zero(d);
    hn::Vec<D> s3 = hn::Zero(d);
    const float* HWY_RESTRICT column = keys + j;
    for (std::size_t c = 0; c < dim; ++c, column += kBlock) {
      const hn::Vec<D> qc = hn::Set(d, q[c]);
      s0 = hn::MulAdd(qc, hn::Load(d, column), s0);
      s1 = hn::MulAdd(qc, hn::Load(d, column + lanes), s1);
      s2 = hn::MulAdd(qc, hn::Load(d, column + 2 * lanes), s2);
      s3 = hn::MulAdd(qc, hn::Load(d, column + 3 * lanes), s3);
    }
    hn::Store(hn::Mul(s0, factor), d, scores + j);
    hn::Store(hn::Mul(s1, factor), d, scores + j + lanes);
    hn::Store(hn::Mul(s2, factor), d, scores + j + 2 * lanes);
    hn::Store(hn::Mul(s3, factor), d, scores + j + 3 * lanes);
  }
}

// out[c] += sum over the allowed of 64 keys j of p[j] values[j * stride + c], for c < stride. What
// the others hold is not looked at: 0 * NaN does not arise.
template <class D>
HWY_INLINE void ValueBlock(D d, const float* HWY_RESTRICT p,
                           const std::uint8_t* HWY_RESTRICT allowed,
                           const float* HWY_RESTRICT values, std::size_t stride,
                           float* HWY_RESTRICT out) {
  const std::size_t lanes = hn::Lanes(d);
  std::size_t c = 0;
  for (; c + 4 * lanes <= stride; c += 4 * lanes) {
    hn::Vec<D> s0 = hn::Zero(d);
    hn::Vec<D> s1 = hn::Zero(d);
    hn::Vec<D> s2 = hn::Zero(d);
    hn::Vec<D> s3 = hn::Zero(d);
    for (std::size_t j = 0; j < kBlock; ++j) {
      if (allowed[j] == 0) continue;
      const hn::Vec<D> pj = hn::Set(d, p[j]);
      const float* HWY_RESTRICT v = values + j * stride + c;
      s0 = hn::MulAdd(pj, hn::Load(d, v), s0);
      s1 = hn::MulAdd(pj, hn::Load(d, v + lanes), s1);
      s2 = hn::MulAdd(pj, hn::Load(d, v + 2 * lanes), s2);
      s3 = hn::MulAdd(pj, hn::Load(d, v + 3 * lanes), s3);
    }
    hn::Store(hn::Add(hn::Load(d, out + c), s0), d, out + c);
    hn::Store(hn::Add(hn::Load(d, out + c + lanes), s1), d, out + c + lanes);
    hn::Store(hn::Add(hn::Load(d, out + c + 2 * lanes), s2), d, out + c + 2 * lanes);
    hn::Store(hn::Add(hn::Load(d, out + c + 3 * lanes), s3), d, out + c + 3 * lanes);
  }
  for (; c < stride; c += lanes) {
    hn::Vec<D> s = hn::Zero(d);
    for (std::size_t j = 0; j < kBlock; ++j) {
      if (allowed[j] == 0) continue;
      s = hn::MulAdd(hn::Set(d, p[j]), hn::Load(d, values + j * stride + c), s);
    }
    hn::Store(hn::Add(hn::Load(d, out + c), s), d, out + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#endif  // include guard
