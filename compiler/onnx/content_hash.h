// Tells files apart: the same bytes give the same 128 bits. No defence against someone who wants two files to
// collide. Private to this room.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

// Fewer are hashed sooner than another thread has begun.
inline constexpr int64_t kBytesWorthAThread = 256 << 10;

class ContentHash {
 public:
  // A piece: other pieces of the same bytes together count as other content.
  void Add(const void* data, size_t bytes) {
    Append(data, bytes);
    EndPiece();
  }
  void Add(std::string_view text) { Add(text.data(), text.size()); }

  // A piece that comes in parts, wherever it is cut.
  void Append(const void* data, size_t bytes);
  void EndPiece();

  // 32 hexadecimal digits of all that was added.
  std::string Hex() const;

 private:
  void Mix(uint64_t word);

  uint64_t a_ = 0x243F6A8885A308D3, b_ = 0x13198A2E03707344;  // the digits of pi
  uint64_t length_ = 0;                                       // of the piece so far
  unsigned char rest_[8] = {};                                // its last bytes, fewer than a word
};

}  // namespace gradloom
