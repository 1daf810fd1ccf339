// SPDX-License-Identifier: Apache-2.0
// Dispatches the SIMD rungs for gradients.
#include "reference/gradient_block.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/gradient_block.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "reference/gradient_columns-inl.h"
#include "reference/gradient_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

using Tag = hn::CappedTag<double, 8>;
using Double = DoubleArithmetic<Tag>;
using Pair = DoubleDoubleArithmetic<Tag>;

std::uint32_t RowsInDouble(const HeadOperands& head, const RowBlock& block,
                           const GradientRows& gradients, RungWorkspace& workspace) {
  return RowGradients<Double, true, Tag>(head, block, gradients, workspace).Run();
}

std::uint32_t RowsInDoubleDouble(const HeadOperands& head, const RowBlock& block,
                                 const GradientRows& gradients, RungWorkspace& workspace) {
  if (head.exact_products) {
    return RowGradients<Pair, true, Tag>(head, block, gradients, workspace).Run();
  }
  return RowGradients<Pair, false, Tag>(head, block, gradients, workspace).Run();
}

std::uint32_t ColumnsInDouble(const ColumnBlock& block, RungWorkspace& workspace) {
  return ColumnGradients<Double, true, Tag>(block, workspace).Run();
}

std::uint32_t ColumnsInDoubleDouble(const ColumnBlock& block, RungWorkspace& workspace) {
  if (block.exact_products) return ColumnGradients<Pair, true, Tag>(block, workspace).Run();
  return ColumnGradients<Pair, false, Tag>(block, workspace).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(RowsInDouble);
HWY_EXPORT(RowsInDoubleDouble);
HWY_EXPORT(ColumnsInDouble);
HWY_EXPORT(ColumnsInDoubleDouble);

std::uint32_t GradientRowsInDouble(const HeadOperands& head, const RowBlock& block,
                                   const GradientRows& gradients, RungWorkspace& workspace) {
  return HWY_DYNAMIC_DISPATCH(RowsInDouble)(head, block, gradients, workspace);
}

std::uint32_t GradientRowsInDoubleDouble(const HeadOperands& head, const RowBlock& block,
                                         const GradientRows& gradients, RungWorkspace& workspace) {
  return HWY_DYNAMIC_DISPATCH(RowsInDoubleDouble)(head, block, gradients, workspace);
}

std::uint32_t GradientColumnsInDouble(const ColumnBlock& block, RungWorkspace& workspace) {
  return HWY_DYNAMIC_DISPATCH(ColumnsInDouble)(block, workspace);
}

std::uint32_t GradientColumnsInDoubleDouble(const ColumnBlock& block, RungWorkspace& workspace) {
  return HWY_DYNAMIC_DISPATCH(ColumnsInDoubleDouble)(block, workspace);
}

}  // namespace attest
#endif
