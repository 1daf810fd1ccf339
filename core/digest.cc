// SPDX-License-Identifier: Apache-2.0
#include "core/digest.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <array>
#include <string_view>
#include <vector>

namespace attest {

std::string Sha256(std::span<const std::byte> bytes) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hexadecimal;
  for (const unsigned char byte : digest) {
    hexadecimal += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return hexadecimal;
}

std::string Sha256(const TensorMap& tensors) {
  std::string listing;  // one line a tensor; the digest of this text identifies the whole set
  for (const auto& [name, tensor] : tensors) {
    listing += fmt::format("{} {} {} {}\n", name, NameOf(tensor.dtype()), ToString(tensor.shape()),
                           Sha256({tensor.bytes(), tensor.byte_size()}));
  }
  return Sha256(std::as_bytes(std::span(listing)));
}

}  // namespace attest
