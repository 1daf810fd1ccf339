// SPDX-License-Identifier: Apache-2.0
#include "optimized/execution.h"

#include <new>

namespace attest {

void Workspace::Free::operator()(std::byte* memory) const {
  ::operator delete(memory, std::align_val_t(Carver::kAlignment));
}

std::byte* Workspace::Reserve(std::size_t bytes) {
  if (bytes > capacity_ || !memory_) {
    memory_.reset();
    memory_.reset(
        static_cast<std::byte*>(::operator new(bytes, std::align_val_t(Carver::kAlignment))));
    capacity_ = bytes;
  }
  return memory_.get();
}

}  // namespace attest
