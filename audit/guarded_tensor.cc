// SPDX-License-Identifier: Apache-2.0
#include "audit/guarded_tensor.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <utility>

namespace attest {
namespace {

constexpr std::size_t kGuard = 256;  // bytes on each side of a tensor, or of a sparse row
constexpr std::align_val_t kAlignment{64};
constexpr Index kFar = (Index{1} << 31) + 16;  // elements; more than 32 bits can count

// Strides of a layout, in elements.
std::vector<Index> StridesOf(const Shape& shape, Layout layout) {
  const std::size_t rank = shape.size();
  std::vector<Index> strides(rank, 1);
  // Axes from the one that moves fastest through memory.
  std::vector<std::size_t> order(rank);
  for (std::size_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  if (layout == Layout::kTransposed && rank >= 3) std::swap(order[rank - 3], order[rank - 2]);
  const bool gaps = layout == Layout::kPadded || layout == Layout::kSpread;
  Index step = layout == Layout::kSpread ? 2 : 1;
  for (std::size_t i = 0; i < rank; ++i) {
    strides[order[i]] = step;
    step *= std::max<Index>(shape[order[i]], 1);
    // An odd gap, so that the rows after it have every alignment.
    if (gaps) step += 2 * static_cast<Index>(i) + 3;
    // The last of two or more rows lies beyond 2^31 elements, and so does every later head.
    if (layout == Layout::kSparse && i == 0 && rank > 1) {
      step = kFar / std::max<Index>(shape[order[1]] - 1, 1) + step + 16;
    }
  }
  return strides;
}

}  // namespace

const char* NameOf(Layout layout) {
  switch (layout) {
    case Layout::kDense:
      return "dense";
    case Layout::kPadded:
      return "padded";
    case Layout::kTransposed:
      return "transposed";
    case Layout::kSpread:
      return "spread";
    case Layout::kSparse:
      return "sparse";
  }
  return "";
}

void GuardedTensor::Release::operator()(std::byte* memory) const {
  if (mapped > 0) {
    munmap(memory, mapped);
  } else {
    ::operator delete(memory, kAlignment);
  }
}

GuardedTensor::GuardedTensor(DType dtype, const Shape& shape, Junk junk, Layout layout)
    : dtype_(dtype),
      shape_(shape),
      strides_(StridesOf(shape, layout)),
      dense_(layout == Layout::kDense),
      sparse_(layout == Layout::kSparse),
      fill_(static_cast<std::byte>(junk)) {
  const std::size_t width = SizeOf(dtype);
  const bool misaligned = layout == Layout::kPadded || layout == Layout::kSpread;
  offset_ = kGuard + (misaligned ? width : 0);
  std::size_t last = 0;  // the largest offset of an element
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    last += static_cast<std::size_t>(std::max<Index>(shape[axis] - 1, 0) * strides_[axis]);
  }
  size_ = offset_ + (ElementCount(shape) == 0 ? 0 : (last + 1) * width) + kGuard;
  if (!sparse_) {
    memory_ = {static_cast<std::byte*>(::operator new(size_, kAlignment)), Release{}};
    std::memset(memory_.get(), static_cast<int>(fill_), size_);
    return;
  }
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return;
  memory_ = {static_cast<std::byte*>(memory), Release{size_}};
  for (const std::size_t row : RowStarts()) {
    std::memset(memory_.get() + row - kGuard, static_cast<int>(fill_), RowBytes() + 2 * kGuard);
  }
}

GuardedTensor::GuardedTensor(const Tensor& tensor, Junk junk, Layout layout)
    : GuardedTensor(tensor.dtype(), tensor.shape(), junk, layout) {
  if (!valid()) return;
  const std::byte* from = tensor.bytes();
  VisitElements([&](std::size_t at, std::size_t bytes) {
    std::memcpy(memory_.get() + at, from, bytes);
    from += bytes;
  });
}

std::vector<std::size_t> GuardedTensor::RowStarts() const {
  std::vector<std::size_t> starts;
  if (ElementCount(shape_) == 0) return starts;
  starts.push_back(offset_);
  // From the outermost axis inwards, every row so far becomes one for each index of the axis.
  for (std::size_t axis = 0; axis + 1 < shape_.size(); ++axis) {
    const std::size_t step = static_cast<std::size_t>(strides_[axis]) * SizeOf(dtype_);
    std::vector<std::size_t> next;
    next.reserve(starts.size() * static_cast<std::size_t>(shape_[axis]));
    for (const std::size_t start : starts) {
      for (std::size_t i = 0; i < static_cast<std::size_t>(shape_[axis]); ++i) {
        next.push_back(start + i * step);
      }
    }
    starts = std::move(next);
  }
  return starts;
}

std::size_t GuardedTensor::RowBytes() const {
  return (shape_.empty() ? 1 : static_cast<std::size_t>(shape_.back())) * SizeOf(dtype_);
}

template <class Visit>
void GuardedTensor::VisitElements(const Visit& visit) const {
  if (dense_) {
    const std::size_t bytes = static_cast<std::size_t>(ElementCount(shape_)) * SizeOf(dtype_);
    if (bytes > 0) visit(offset_, bytes);
    return;
  }
  const std::size_t step =
      static_cast<std::size_t>(strides_.empty() ? 1 : strides_.back()) * SizeOf(dtype_);
  for (const std::size_t row : RowStarts()) {
    if (step == SizeOf(dtype_)) {
      visit(row, RowBytes());
    } else {
      for (Index c = 0; c < shape_.back(); ++c) {
        visit(row + static_cast<std::size_t>(c) * step, SizeOf(dtype_));
      }
    }
  }
}

bool GuardedTensor::GuardsIntact() const {
  const auto is_junk = [&](std::size_t first, std::size_t last) {
    const std::byte* const memory = memory_.get();
    return std::all_of(memory + first, memory + last, [&](std::byte b) { return b == fill_; });
  };
  if (sparse_) {
    for (const std::size_t row : RowStarts()) {
      const std::size_t end = row + RowBytes();
      if (!is_junk(row - kGuard, row) || !is_junk(end, end + kGuard)) return false;
    }
    return true;
  }
  std::vector<std::pair<std::size_t, std::size_t>> runs;
  VisitElements([&](std::size_t at, std::size_t bytes) { runs.emplace_back(at, at + bytes); });
  std::sort(runs.begin(), runs.end());
  std::size_t end = 0;
  for (const auto& [first, last] : runs) {
    if (!is_junk(end, first)) return false;
    end = last;
  }
  return is_junk(end, size_);
}

bool GuardedTensor::Holds(const Tensor& tensor) const {
  const std::byte* expected = tensor.bytes();
  bool same = true;
  VisitElements([&](std::size_t at, std::size_t bytes) {
    same = same && std::memcmp(memory_.get() + at, expected, bytes) == 0;
    expected += bytes;
  });
  return same;
}

Tensor GuardedTensor::Copy() const {
  Tensor tensor(dtype_, shape_);
  std::byte* to = tensor.bytes();
  VisitElements([&](std::size_t at, std::size_t bytes) {
    std::memcpy(to, memory_.get() + at, bytes);
    to += bytes;
  });
  return tensor;
}

}  // namespace attest
