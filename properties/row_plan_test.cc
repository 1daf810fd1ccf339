// SPDX-License-Identifier: Apache-2.0
// Which keys a row sees, against the contract's rules one by one; and what is added to scores,
// against balls.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"
#include "reference/ball.h"
#include "reference/row_inputs.h"
#include "reference/row_plan.h"

namespace attest {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Case EmptyCase(const Dimensions& shape) {
  Case problem;
  problem.contract.shape = shape;
  problem.contract.outputs = {"out"};
  const Dimensions& s = shape;
  problem.tensors["q"] = Tensor(DType::kF32, {s.batch, s.q_heads, s.q_len, s.qk_dim});
  problem.tensors["k"] = Tensor(DType::kF32, {s.batch, s.kv_heads, s.kv_len, s.k_dim});
  problem.tensors["v"] = Tensor(DType::kF32, {s.batch, s.kv_heads, s.kv_len, s.v_dim});
  return problem;
}

// docs/contract.md, "A key is allowed when all that is given agrees", rule by rule, for batch 0.
bool AllowedByContract(const Case& problem, Index query, Index key) {
  const Contract& contract = problem.contract;
  Index kv_length = contract.shape.kv_len;
  Index q_length = contract.shape.q_len;
  if (const Tensor* t = problem.Find("kv_lengths")) kv_length = static_cast<Index>(t->At(0));
  if (const Tensor* t = problem.Find("q_lengths")) q_length = static_cast<Index>(t->At(0));
  if (key >= kv_length || query >= q_length) return false;
  const Index offset = kv_length - q_length;
  if (contract.causal == Causal::kTopLeft && key > query) return false;
  if (contract.causal == Causal::kBottomRight && key > query + offset) return false;
  const Index from = key - (query + (contract.causal == Causal::kTopLeft ? 0 : offset));
  if (contract.window.left >= 0 && from < -contract.window.left) return false;
  if (contract.window.right >= 0 && from > contract.window.right) return false;
  if (const Tensor* t = problem.Find("q_documents")) {
    if (t->At(query) != problem.Find("kv_documents")->At(key)) return false;
  }
  if (const Tensor* t = problem.Find("mask"); t != nullptr && t->At(key) == 0.0) return false;
  if (contract.local) {
    const double center = problem.Find("local_center")->At(query);
    const double distance = std::fabs(static_cast<double>(key) - center);
    if (!(distance <= contract.local->half_width)) return false;
  }
  return true;
}

// Compares every row and key of the case; how many are allowed.
Index CompareRows(const Case& problem) {
  const StatusOr<CaseData> data = CaseData::Make(problem);
  EXPECT_TRUE(data.ok());
  Index allowed = 0;
  for (Index i = 0; i < problem.contract.shape.q_len; ++i) {
    const RowId row{0, 0, i};
    const KeyInterval range = data->RangeOf(row);
    EXPECT_TRUE(0 <= range.first && range.first <= range.last &&
                range.last <= problem.contract.shape.kv_len);
    for (Index j = 0; j < problem.contract.shape.kv_len; ++j) {
      const bool inside = range.first <= j && j < range.last;
      const bool got = inside && (!data->HasSelections() || data->Selected(row, j));
      const bool want = AllowedByContract(problem, i, j);
      EXPECT_EQ(got, want) << "query " << i << " key " << j;
      EXPECT_EQ(data->Allowed(row, j), want) << "query " << i << " key " << j;
      allowed += want ? 1 : 0;
    }
  }
  return allowed;
}

// Every combination of lengths (-1: not given), causal rule, window, documents and local window.
class RowRanges : public ::testing::TestWithParam<Dimensions> {};

TEST_P(RowRanges, FollowEveryRuleOfTheContract) {
  const Dimensions s = GetParam();
  const Index lefts[] = {-1, 0, 2};
  const Index rights[] = {-1, 0, 1};
  const double centers[] = {-0.5, 0.25, 1.0, 1.5, 2.75, kNaN};
  Index cases = 0;
  Index allowed = 0;
  for (Index kv_length = -1; kv_length <= s.kv_len; ++kv_length) {
    for (Index q_length = -1; q_length <= s.q_len; ++q_length) {
      for (int extras = 0; extras < 4 + 2 * 3 * 6; ++extras) {
        Case problem = EmptyCase(s);
        const auto give = [&](const char* name, Index value) {
          if (value < 0) return;
          problem.tensors[name] = Tensor(DType::kI32, {1});
          problem.tensors[name].Set(0, static_cast<double>(value));
        };
        give("kv_lengths", kv_length);
        give("q_lengths", q_length);
        if (extras % 2 == 1) {
          problem.tensors["q_documents"] = Tensor(DType::kI32, {1, s.q_len});
          problem.tensors["kv_documents"] = Tensor(DType::kI32, {1, s.kv_len});
          for (Index i = 1; i < s.q_len; i += 2) problem.tensors["q_documents"].Set(i, 1);
          for (Index j = 2; j < s.kv_len; ++j) problem.tensors["kv_documents"].Set(j, 1);
        }
        if (extras / 2 % 2 == 1) {
          problem.tensors["mask"] = Tensor(DType::kBool, {1, 1, 1, s.kv_len});
          for (Index j = 0; j < s.kv_len; j += 2) problem.tensors["mask"].Set(j, 1.0);
        }
        if (extras >= 4) {
          problem.contract.local = LocalWindow{0.75 * (extras / 2 % 3), false};
          problem.tensors["local_center"] = Tensor(DType::kF32, {1, 1, s.q_len});
          for (Index i = 0; i < s.q_len; ++i) {
            problem.tensors["local_center"].Set(i, centers[(extras / 6 + i) % 6]);
          }
        }
        for (int rules = 0; rules < 3 * 3 * 3; ++rules) {
          problem.contract.causal = static_cast<Causal>(rules % 3);
          problem.contract.window.left = lefts[rules / 3 % 3];
          problem.contract.window.right = rights[rules / 9];
          allowed += CompareRows(problem);
          ++cases;
          if (HasFailure()) {
            FAIL() << "lengths " << kv_length << " " << q_length << " extras " << extras
                   << " rules " << rules;
          }
        }
      }
    }
  }
  EXPECT_TRUE(s.kv_len == 0 || allowed > cases / 16);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RowRanges,
                         ::testing::Values(Dimensions{1, 1, 1, 3, 4, 1, 1, 1},
                                           Dimensions{1, 1, 1, 4, 1, 1, 1, 1},
                                           Dimensions{1, 1, 1, 1, 5, 1, 1, 1},
                                           Dimensions{1, 1, 1, 2, 0, 1, 1, 1}));

// A key whose distance from the centre is the half width only after rounding is outside.
TEST(RowRanges, DecideTheEdgeOfALocalWindowExactly) {
  Case problem = EmptyCase({1, 1, 1, 1, 4, 1, 1, 1});
  problem.contract.local = LocalWindow{1.0, false};
  problem.tensors["local_center"] = Tensor(DType::kF64, {1, 1, 1});
  const auto range = [&](double center) {
    problem.tensors["local_center"].Set(0, center);
    return CaseData::Make(problem)->RangeOf({0, 0, 0});
  };
  EXPECT_EQ(range(2.0).first, 1);
  EXPECT_EQ(range(1.0).last, 3);
  EXPECT_EQ(range(std::nextafter(2.0, 3.0)).first, 2);
  EXPECT_EQ(range(0x1p-60).first, 0);
  EXPECT_EQ(range(-0x1p-60).last, 1);  // |1 + 2^-60| rounds to 1
  EXPECT_EQ(range(0x1p-60).last, 2);
}

TEST(AdditiveAt, StaysWithinItsBoundOfTheExactSum) {
  const RandomStream stream(0, "row inputs", "additive");
  for (std::uint64_t draw = 0; draw < 2000; ++draw) {
    const bool given = draw % 3 != 0;
    Case problem = EmptyCase({1, 6, 1, 3, 5, 1, 1, 1});
    problem.contract.alibi = given ? Alibi::kTensor : Alibi::kDefault;
    const auto number = [&](std::uint64_t i) {
      return std::ldexp(stream.Normal(8 * draw + i), static_cast<int>(stream.Below(draw, 80)) - 40);
    };
    problem.tensors["bias"] = Tensor(DType::kF64, {1, 1, 1, 1});
    problem.tensors["bias"].Set(0, draw % 5 == 0 ? -1e9 : number(0));
    if (given) {
      problem.tensors["alibi_slopes"] = Tensor(DType::kF64, {6});
      for (Index h = 0; h < 6; ++h) problem.tensors["alibi_slopes"].Set(h, number(1));
    }
    const StatusOr<CaseData> data = CaseData::Make(problem);
    ASSERT_TRUE(data.ok());
    const RowInputs inputs(*data, false);
    const PrecisionScope scope(1024);
    for (const RowId row : {RowId{0, 0, 0}, RowId{0, 4, 2}}) {
      for (Index j = 0; j < 5; ++j) {
        const Additive additive = AdditiveAt(inputs, row, j);
        const Ball slope = given ? Ball(*data->GivenSlope(row.head))
                                 : Exp2(Ball(DefaultAlibiExponent(row.head, 6)));
        const auto distance = static_cast<double>(std::abs(row.query + 2 - j));
        const Ball exact = Ball(data->BiasAt(row, j)) - slope * Ball(distance);
        const double error = (exact - Ball(additive.hi) - Ball(additive.lo)).MagnitudeBound();
        ASSERT_LE(error, 0x1p-100 * additive.magnitude) << "draw " << draw << " key " << j;
        ASSERT_LE(std::fabs(additive.lo), 0x1p-52 * std::fabs(additive.hi));
        ASSERT_LE(std::fabs(additive.hi), additive.magnitude * (1.0 + 0x1p-50));
      }
    }
  }
}

}  // namespace
}  // namespace attest
