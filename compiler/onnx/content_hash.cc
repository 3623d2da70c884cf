#include "compiler/onnx/content_hash.h"

#include <cstdio>
#include <cstring>

#include "runtime/base/philox.h"

namespace gradloom {

void ContentHash::Add(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  const auto mix = [&](uint64_t word) {
    a_ = Mix64(a_ ^ word);
    b_ = Mix64(b_ + word);
  };
  size_t left = bytes;
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    mix(word);
  }
  uint64_t word = 0;
  std::memcpy(&word, at, left);
  mix(word);
  // The length, so that pieces and zeros at the end count.
  mix(bytes);
}

std::string ContentHash::Hex() const {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(Mix64(a_)),
                static_cast<unsigned long long>(Mix64(b_)));
  return text;
}

}  // namespace gradloom
