// SPDX-License-Identifier: Apache-2.0
// Blocks made so that a term of the SIMD rungs' bounds that is hardly ever needed is needed.
#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <vector>

#include "reference/ball.h"
#include "reference/gradient_block.h"
#include "reference/row_block.h"

namespace attest {
namespace {

constexpr std::size_t kLanes = 8;

hwy::AlignedFreeUniquePtr<double[]> Filled(std::size_t size, double value) {
  auto array = hwy::AllocateAligned<double>(size);
  std::fill_n(array.get(), size, value);
  return array;
}

bool Contains(const CertifiedValue& value, const Ball& exact) {
  const Ball distance = Ball(value.hi) + Ball(value.lo) - exact;
  const Ball magnitude = distance.Sign() < 0 ? -distance : distance;
  return (magnitude - Ball(value.radius)).Sign() <= 0;
}

// One key of head size 1, all scores 0; tiles as given.
struct OneKey {
  ColumnBlock block;
  hwy::AlignedFreeUniquePtr<double[]> zeros = Filled(kLanes, 0.0);
  CertifiedValue grad_k, grad_v;
  std::vector<RowTile> tiles;
  std::size_t next = 0;

  OneKey() {
    block.lanes = kLanes;
    block.keys = 1;
    block.k = block.v = zeros.get();
    block.k_dim = block.v_dim = 1;
    block.scale = {1.0, 0.0, 0.0};
    block.grad_k[0] = &grad_k;
    block.grad_v[0] = &grad_v;
    block.next = [this](RowTile* tile) {
      if (next == tiles.size()) return false;
      *tile = tiles[next++];
      return true;
    };
  }
};

// Each tile's sum is rounded away against what the first left: heads of 33 rows make twice as many
// tiles as their rows fill.
TEST(ColumnBound, CountsTilesThatAreNotFull) {
  const PrecisionScope precision(256);
  constexpr int kHeads = 64;
  const std::vector<double> ones(kKeyBlock, 1.0);
  const auto rows_of = [](std::size_t count, double weight) {
    RowStatistics row;
    row.valid = true;
    row.inverse_hi = weight;
    return std::vector<RowStatistics>(count, row);
  };
  std::vector<RowStatistics> first = rows_of(kKeyBlock, kRoundoff);
  first[0].inverse_hi = 1.0;
  const std::vector<RowStatistics> full = rows_of(kKeyBlock, kRoundoff / kKeyBlock);
  const std::vector<RowStatistics> single = rows_of(1, kRoundoff);
  OneKey key;
  for (int head = 0; head < kHeads; ++head) {
    for (const std::vector<RowStatistics>* rows : {head == 0 ? &first : &full, &single}) {
      RowTile tile;
      tile.rows = rows->size();
      tile.q = tile.grad_out = ones.data();
      tile.statistics = rows->data();
      key.tiles.push_back(tile);
    }
  }
  key.block.rows = static_cast<Index>(key.tiles.size() * kKeyBlock);
  RungWorkspace workspace;
  GradientColumnsInDouble(key.block, workspace);
  EXPECT_EQ(key.grad_v.hi, 1.0);
  EXPECT_TRUE(Contains(key.grad_v, Ball(1.0) + Ball((31.0 + 2.0 * kHeads - 1.0) * kRoundoff)))
      << key.grad_v.radius / kRoundoff;
}

// The product of a sum and a small scale is a subnormal number, which has no low part.
TEST(ColumnBound, CoversScalesThatUnderflow) {
  const PrecisionScope precision(256);
  OneKey key;
  key.block.scale = {0x1p-40, 0.0, 0.0};
  key.block.dtype = DType::kF64;
  key.block.rows = kKeyBlock;
  const double q = 0x1.4p-434;  // dR is 2^-600
  const double none = 0.0;
  RowStatistics row;
  row.valid = true;
  row.inverse_hi = 1.0;
  row.grad_lse = 0x1p-600;
  RowTile tile;
  tile.rows = 1;
  tile.q = &q;
  tile.grad_out = &none;
  tile.statistics = &row;
  key.tiles.push_back(tile);
  RungWorkspace workspace;
  GradientColumnsInDoubleDouble(key.block, workspace);
  EXPECT_TRUE(Contains(key.grad_k, Ball(1.25) * Ball::PowerOfTwo(-1074))) << key.grad_k.radius;
}

// Dropout that keeps hardly anything magnifies what products of weights and values lose.
TEST(RowBound, CoversUnderflowBeforeTheDivisionByKept) {
  const PrecisionScope precision(256);
  constexpr double kKept = 0x1p-40;
  const std::vector<double> k = {0.0, 0.0};
  const std::vector<double> v = {3.0 * 0x1p-1074, 0.0};
  HeadOperands head;
  head.k = k.data();
  head.v = v.data();
  head.keys = 2;
  head.k_dim = head.v_dim = 1;
  head.k_norm = {0.0, 0.0};
  head.v_norm = {0x1p-536, 0x1p-536};
  head.k_max = {0.0};
  head.v_max = {v[0]};
  const auto q = Filled(kLanes, 0.0);
  const auto keep = Filled(2 * kLanes, 1.0);
  const auto additive = Filled(2 * kLanes, 0.0);
  std::fill_n(additive.get(), kLanes, -1.0);
  RowBlock block;
  block.lanes = kLanes;
  block.rows = 1;
  block.last_key = 2;
  block.q = q.get();
  block.scale = {1.0, 0.0, 0.0};
  block.additive.hi = additive.get();
  std::fill_n(block.additive_magnitude, kLanes, 1.0);
  block.keep = keep.get();
  block.kept = {kKept, 0.0, 0.0};
  std::fill_n(block.sink, kLanes, kExcluded);
  CertifiedValue out;
  block.out[0] = &out;
  block.out_dtype = DType::kF64;
  RungWorkspace workspace;
  CertifyRowsInDoubleDouble(head, block, workspace);
  const Ball weight = Exp(Ball(-1.0));
  const Ball exact = weight * Ball(v[0]) / ((Ball(1.0) + weight) * Ball(kKept));
  EXPECT_TRUE(Contains(out, exact)) << out.hi << " +- " << out.radius;
}

}  // namespace
}  // namespace attest
