// Tells files apart: the same bytes give the same 128 bits. No defence against someone who wants two files to
// collide. Private to this directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/hash.h"

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
  void Append(const void* data, size_t bytes) {
    hash_.Add(data, static_cast<int64_t>(bytes));
    length_ += bytes;
  }
  void EndPiece() {
    hash_.Add(&length_, sizeof length_);
    length_ = 0;
  }

  // 32 hexadecimal digits of all that was added.
  std::string Hex() const { return hash_.text(); }

 private:
  WideHash hash_;
  uint64_t length_ = 0;  // of the piece so far
};

}  // namespace gradloom
