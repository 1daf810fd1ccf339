// SPDX-License-Identifier: Apache-2.0
// Every layout gives each element a place of its own and notices writes everywhere else.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "audit/guarded_tensor.h"

namespace attest {
namespace {

Tensor Counting(const Shape& shape) {
  Tensor tensor(DType::kF32, shape);
  for (Index i = 0; i < tensor.size(); ++i) tensor.Set(i, static_cast<double>(i));
  return tensor;
}

class Layouts : public ::testing::TestWithParam<Layout> {};

INSTANTIATE_TEST_SUITE_P(All, Layouts, ::testing::ValuesIn(kLayouts),
                         [](const auto& layout) { return std::string(NameOf(layout.param)); });

TEST_P(Layouts, HoldTheElementsAtTheirStrides) {
  for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{2, 1, 17, 1}, Shape{1, 3, 2}, Shape{2, 3},
                             Shape{7}, Shape{1, 1, 1, 1}, Shape{2, 0, 3, 4}}) {
    const Tensor tensor = Counting(shape);
    GuardedTensor guarded(tensor, Junk::kNaN, GetParam());
    ASSERT_TRUE(guarded.valid());
    EXPECT_TRUE(guarded.GuardsIntact());
    EXPECT_TRUE(guarded.Holds(tensor));
    std::set<Index> places;
    for (Index i = 0; i < tensor.size(); ++i) {
      const std::vector<Index> index = Unflatten(i, shape);
      Index at = 0;
      for (std::size_t axis = 0; axis < index.size(); ++axis) {
        at += index[axis] * guarded.strides()[axis];
      }
      places.insert(at);
      EXPECT_EQ(guarded.data<float>()[at], static_cast<float>(i));
    }
    EXPECT_EQ(static_cast<Index>(places.size()), tensor.size());
    const Tensor copy = guarded.Copy();
    for (Index i = 0; i < tensor.size(); ++i) EXPECT_EQ(copy.At(i), tensor.At(i));
  }
}

TEST_P(Layouts, NoticeWrites) {
  const Tensor tensor = Counting({2, 3, 4, 5});
  GuardedTensor guarded(tensor, Junk::kHuge, GetParam());
  ASSERT_TRUE(guarded.valid());
  const auto last = guarded.strides()[0] + 2 * guarded.strides()[1] + 3 * guarded.strides()[2] +
                    4 * guarded.strides()[3];
  for (const Index outside : {Index{-1}, last + 1}) {
    float& place = guarded.data<float>()[outside];
    const float junk = place;
    place = 1.0f;
    EXPECT_FALSE(guarded.GuardsIntact());
    place = junk;
    EXPECT_TRUE(guarded.GuardsIntact());
  }
  // Between two rows, where there is room.
  if (guarded.strides()[2] > 5 * guarded.strides()[3] && GetParam() != Layout::kTransposed) {
    guarded.data<float>()[4 * guarded.strides()[3] + 1] = 1.0f;
    EXPECT_FALSE(guarded.GuardsIntact());
  }
  guarded.data<float>()[last] = -1.0f;
  EXPECT_FALSE(guarded.Holds(tensor));
}

TEST(SparseLayout, PutsRowsBeyondThirtyTwoBits) {
  GuardedTensor guarded(DType::kF32, {2, 1, 17, 4}, Junk::kNaN, Layout::kSparse);
  ASSERT_TRUE(guarded.valid());
  EXPECT_GT(16 * guarded.strides()[2], Index{1} << 31);
  EXPECT_GT(guarded.strides()[0], Index{1} << 31);
}

}  // namespace
}  // namespace attest
