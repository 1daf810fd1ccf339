// SPDX-License-Identifier: Apache-2.0
// Dispatches the SIMD rungs.
#include "reference/row_block.h"

#include <hwy/aligned_allocator.h>

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reference/row_block.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "reference/row_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

// Vectors of at most 8 lanes: a block has 8 or a multiple.
using Tag = hn::CappedTag<double, 8>;

std::uint32_t RowsInDouble(const HeadOperands& head, const RowBlock& block,
                           RungWorkspace& workspace) {
  return RowOutputs<DoubleArithmetic<Tag>, true, Tag>(head, block, workspace).Run();
}

std::uint32_t RowsInDoubleDouble(const HeadOperands& head, const RowBlock& block,
                                 RungWorkspace& workspace) {
  if (head.exact_products) {
    return RowOutputs<DoubleDoubleArithmetic<Tag>, true, Tag>(head, block, workspace).Run();
  }
  return RowOutputs<DoubleDoubleArithmetic<Tag>, false, Tag>(head, block, workspace).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {

HWY_EXPORT(RowsInDouble);
HWY_EXPORT(RowsInDoubleDouble);

double BiasFor(double bound) {
  // A sum of zeros needs some binade; a bound that is not finite gives no numbers, and no decision.
  if (!(bound > 0x1p-900)) return std::isnan(bound) ? bound : 0x1.8p-897;
  return std::isfinite(bound) ? std::ldexp(1.5, std::ilogb(bound) + 3) : bound;
}

struct RungWorkspace::Buffer {
  hwy::AlignedFreeUniquePtr<double[]> hi, lo;
  std::size_t capacity = 0;
};

RungWorkspace::RungWorkspace() : buffers_(new Buffer[kSlots]) {}
RungWorkspace::~RungWorkspace() = default;

Plane RungWorkspace::Get(std::size_t slot, std::size_t size) {
  Buffer& buffer = buffers_[slot];
  if (buffer.capacity < size) {
    buffer.hi = hwy::AllocateAligned<double>(size);
    buffer.lo = hwy::AllocateAligned<double>(size);
    buffer.capacity = size;
  }
  return {buffer.hi.get(), buffer.lo.get()};
}

std::uint32_t CertifyRowsInDouble(const HeadOperands& head, const RowBlock& block,
                                  RungWorkspace& workspace) {
  return HWY_DYNAMIC_DISPATCH(RowsInDouble)(head, block, workspace);
}

std::uint32_t CertifyRowsInDoubleDouble(const HeadOperands& head, const RowBlock& block,
                                        RungWorkspace& workspace) {
  return HWY_DYNAMIC_DISPATCH(RowsInDoubleDouble)(head, block, workspace);
}

}  // namespace attest
#endif
