// Tells files apart: the same bytes give the same 128 bits. No defence against someone who wants two files to
// collide. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

class ContentHash {
 public:
  void Add(const void* data, size_t bytes);
  void Add(std::string_view text) { Add(text.data(), text.size()); }

  // 32 hexadecimal digits of all that was added.
  std::string Hex() const;

 private:
  uint64_t a_ = 0x243F6A8885A308D3, b_ = 0x13198A2E03707344;  // the digits of pi
};

}  // namespace gradloom
