#include "compiler/onnx/content_hash.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "runtime/base/philox.h"

namespace gradloom {

void ContentHash::Mix(uint64_t word) {
  a_ = Mix64(a_ ^ word);
  b_ = Mix64(b_ + word);
}

void ContentHash::Append(const void* data, size_t bytes) {
  if (bytes == 0) return;
  const auto* at = static_cast<const unsigned char*>(data);
  const size_t held = length_ % sizeof(uint64_t);
  length_ += bytes;
  uint64_t word;
  if (held > 0) {
    const size_t taken = std::min(bytes, sizeof word - held);
    std::memcpy(rest_ + held, at, taken);
    if (held + taken < sizeof word) return;
    std::memcpy(&word, rest_, sizeof word);
    Mix(word);
    at += taken;
    bytes -= taken;
  }
  for (; bytes >= sizeof word; bytes -= sizeof word, at += sizeof word) {
    std::memcpy(&word, at, sizeof word);
    Mix(word);
  }
  std::memcpy(rest_, at, bytes);
}

void ContentHash::EndPiece() {
  uint64_t word = 0;
  std::memcpy(&word, rest_, length_ % sizeof word);
  Mix(word);
  // The length, so that pieces and zeros at the end count.
  Mix(length_);
  length_ = 0;
}

std::string ContentHash::Hex() const {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(Mix64(a_)),
                static_cast<unsigned long long>(Mix64(b_)));
  return text;
}

}  // namespace gradloom
