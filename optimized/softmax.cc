// SPDX-License-Identifier: Apache-2.0
// Checks the arguments of the row functions and dispatches them.
#include "optimized/softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "optimized/softmax.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "optimized/softmax-inl.h"

#ifndef ATTEST_OPTIMIZED_SOFTMAX_CC_
#define ATTEST_OPTIMIZED_SOFTMAX_CC_
namespace attest {

enum class RowFunction { kSoftmax, kLogSoftmax, kLogSumExp };

// One call, checked. y is null for kLogSumExp.
template <class T>
struct RowsCall {
  RowFunction function;
  Mode mode;
  SoftmaxAlgorithm algorithm;
  View<const T, 2> x;
  View<T, 2> y;
  LseOf<T>* lse;
};

}  // namespace attest
#endif

HWY_BEFORE_NAMESPACE();
namespace attest {
namespace HWY_NAMESPACE {

template <RowFunction kFunction, SoftmaxAlgorithm kAlgorithm, class Policy, class D, class T>
void Rows(Policy policy, D d, const RowsCall<T>& call) {
  const auto n = static_cast<std::size_t>(call.x.shape[1]);
  for (Index i = 0; i < call.x.shape[0]; ++i) {
    const T* x = call.x.data + i * call.x.strides[0];
    T* y = nullptr;
    NextRow next;
    const bool last = i + 1 == call.x.shape[0];
    if (!last) next.x = x + call.x.strides[0];
    if constexpr (kFunction != RowFunction::kLogSumExp) {
      y = call.y.data + i * call.y.strides[0];
      if (!last) next.y = y + call.y.strides[0];
    }
    double lse = 0.0;
    if constexpr (kFunction == RowFunction::kSoftmax) {
      lse = SoftmaxRow<kAlgorithm>(policy, d, x, n, y, next);
    } else if constexpr (kFunction == RowFunction::kLogSoftmax) {
      lse = LogSoftmaxRow<kAlgorithm>(policy, d, x, n, y, next);
    } else {
      lse = LogSumExpRow<kAlgorithm>(policy, d, x, n, next);
    }
    if (call.lse != nullptr) call.lse[i] = static_cast<LseOf<T>>(lse);
  }
}

template <RowFunction kFunction, class Policy, class D, class T>
void RowsByAlgorithm(Policy policy, D d, const RowsCall<T>& call) {
  switch (call.algorithm) {
    case SoftmaxAlgorithm::kUnshifted:
      return Rows<kFunction, SoftmaxAlgorithm::kUnshifted>(policy, d, call);
    case SoftmaxAlgorithm::kShifted:
      return Rows<kFunction, SoftmaxAlgorithm::kShifted>(policy, d, call);
    case SoftmaxAlgorithm::kOnline:
      return Rows<kFunction, SoftmaxAlgorithm::kOnline>(policy, d, call);
    case SoftmaxAlgorithm::kTwoPass:
      return Rows<kFunction, SoftmaxAlgorithm::kTwoPass>(policy, d, call);
  }
}

template <class Policy, class D, class T>
void RowsByFunction(Policy policy, D d, const RowsCall<T>& call) {
  switch (call.function) {
    case RowFunction::kSoftmax:
      return RowsByAlgorithm<RowFunction::kSoftmax>(policy, d, call);
    case RowFunction::kLogSoftmax:
      return RowsByAlgorithm<RowFunction::kLogSoftmax>(policy, d, call);
    case RowFunction::kLogSumExp:
      return RowsByAlgorithm<RowFunction::kLogSumExp>(policy, d, call);
  }
}

template <class T>
void RowsByMode(const RowsCall<T>& call) {
  using Arithmetic = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const hn::CappedTag<Arithmetic, kMaxLanes> d;
  switch (call.mode) {
    case Mode::kFast:
      return RowsByFunction(Fast(), d, call);
    case Mode::kReproducible:
      return RowsByFunction(Reproducible(), d, call);
    case Mode::kAccurate:
      if constexpr (std::is_same_v<T, float>) {
        return RowsByFunction(Fast(), hn::CappedTag<double, kMaxLanes>(), call);
      } else {
        return RowsByFunction(Accurate(), d, call);
      }
  }
}

void RowsF32(const RowsCall<float>& call) { RowsByMode(call); }
void RowsF64(const RowsCall<double>& call) { RowsByMode(call); }
void RowsBF16(const RowsCall<BFloat16>& call) { RowsByMode(call); }
void RowsF16(const RowsCall<Float16>& call) { RowsByMode(call); }

}  // namespace HWY_NAMESPACE
}  // namespace attest
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attest {
namespace {

HWY_EXPORT(RowsF32);
HWY_EXPORT(RowsF64);
HWY_EXPORT(RowsBF16);
HWY_EXPORT(RowsF16);

void Dispatch(const RowsCall<float>& call) { HWY_DYNAMIC_DISPATCH(RowsF32)(call); }
void Dispatch(const RowsCall<double>& call) { HWY_DYNAMIC_DISPATCH(RowsF64)(call); }
void Dispatch(const RowsCall<BFloat16>& call) { HWY_DYNAMIC_DISPATCH(RowsBF16)(call); }
void Dispatch(const RowsCall<Float16>& call) { HWY_DYNAMIC_DISPATCH(RowsF16)(call); }

template <class T>
Status CheckInput(View<const T, 2> x) {
  const auto [rows, n] = x.shape;
  if (rows < 0 || n < 0) return InvalidArgument("softmax: negative extent");
  if (n > 1 && x.strides[1] != 1) {
    return InvalidArgument("softmax: the last axis of x must have stride 1");
  }
  if (rows > 0 && n > 0 && x.data == nullptr) return InvalidArgument("softmax: x has no data");
  return Status();
}

template <class T>
Status CheckOutput(View<const T, 2> x, View<T, 2> y) {
  if (x.shape != y.shape) return InvalidArgument("softmax: x and y differ in shape");
  const auto [rows, n] = x.shape;
  if (n > 1 && y.strides[1] != 1) {
    return InvalidArgument("softmax: the last axis of y must have stride 1");
  }
  if (rows > 1 && n > 0 && y.strides[0] == 0) {
    return InvalidArgument("softmax: the rows of y coincide (stride 0)");
  }
  if (rows > 0 && n > 0 && y.data == nullptr) return InvalidArgument("softmax: y has no data");
  return Status();
}

template <class T>
Status CheckAndRun(const RowsCall<T>& call) {
  if (Status status = CheckInput(call.x); !status.ok()) return status;
  if (call.function == RowFunction::kLogSumExp) {
    if (call.x.shape[0] > 0 && call.lse == nullptr) {
      return InvalidArgument("log-sum-exp: lse is null");
    }
  } else if (Status status = CheckOutput(call.x, call.y); !status.ok()) {
    return status;
  }
  Dispatch(call);
  return Status();
}

}  // namespace

template <class Policy, class T>
Status RowSoftmax(Policy /*policy*/, SoftmaxAlgorithm algorithm, View<const T, 2> x, View<T, 2> y,
                  LseOf<T>* lse) {
  return CheckAndRun<T>({RowFunction::kSoftmax, kModeOf<Policy>, algorithm, x, y, lse});
}

template <class Policy, class T>
Status RowLogSoftmax(Policy /*policy*/, SoftmaxAlgorithm algorithm, View<const T, 2> x,
                     View<T, 2> y, LseOf<T>* lse) {
  return CheckAndRun<T>({RowFunction::kLogSoftmax, kModeOf<Policy>, algorithm, x, y, lse});
}

template <class Policy, class T>
Status RowLogSumExp(Policy /*policy*/, SoftmaxAlgorithm algorithm, View<const T, 2> x,
                    LseOf<T>* lse) {
  return CheckAndRun<T>({RowFunction::kLogSumExp, kModeOf<Policy>, algorithm, x, {}, lse});
}

#define ATTEST_INSTANTIATE(Policy, T)                                                            \
  template Status RowSoftmax(Policy, SoftmaxAlgorithm, View<const T, 2>, View<T, 2>, LseOf<T>*); \
  template Status RowLogSoftmax(Policy, SoftmaxAlgorithm, View<const T, 2>, View<T, 2>,          \
                                LseOf<T>*);                                                      \
  template Status RowLogSumExp(Policy, SoftmaxAlgorithm, View<const T, 2>, LseOf<T>*)
#define ATTEST_INSTANTIATE_ALL(T)      \
  ATTEST_INSTANTIATE(Fast, T);         \
  ATTEST_INSTANTIATE(Reproducible, T); \
  ATTEST_INSTANTIATE(Accurate, T)
ATTEST_INSTANTIATE_ALL(float);
ATTEST_INSTANTIATE_ALL(double);
ATTEST_INSTANTIATE_ALL(BFloat16);
ATTEST_INSTANTIATE_ALL(Float16);
#undef ATTEST_INSTANTIATE_ALL
#undef ATTEST_INSTANTIATE

}  // namespace attest
#endif  // HWY_ONCE
