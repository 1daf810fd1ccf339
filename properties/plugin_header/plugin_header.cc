// SPDX-License-Identifier: Apache-2.0
// The plug-in interface as C++; its tensors have DLPack's layout, whoever declares them.
#ifdef ATTEST_AFTER_DLPACK
#include <dlpack/dlpack.h>
#endif
#include <attest/plugin.h>

#include <cstddef>

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 &&
              offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLDevice) == 8 && sizeof(DLDataType) == 4 && offsetof(DLDataType, lanes) == 2);
static_assert(offsetof(AttestCall, inputs) == 24 && offsetof(AttestCall, message_size) == 64);
#ifdef ATTEST_AFTER_DLPACK
static_assert(ATTEST_INT == static_cast<int>(kDLInt) &&
              ATTEST_FLOAT == static_cast<int>(kDLFloat) &&
              ATTEST_BFLOAT == static_cast<int>(kDLBfloat));
#endif
