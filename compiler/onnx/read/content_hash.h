// A 128-bit hash that identifies the content of files. It is not cryptographic: collisions can be constructed. Private to compiler/onnx.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/hash.h"

namespace gradloom {

// Fewer bytes are hashed faster than a thread can be started.
inline constexpr int64_t kBytesWorthAThread = 256 << 10;

class ContentHash {
 public:
  // Adds one piece. The boundaries of pieces are part of the content: the same bytes in other pieces have another hash.
  void Add(const void* data, size_t bytes) {
    Append(data, bytes);
    EndPiece();
  }
  void Add(std::string_view text) { Add(text.data(), text.size()); }

  // Adds a piece in several parts. Where it is divided does not matter.
  void Append(const void* data, size_t bytes) {
    hash_.Add(data, static_cast<int64_t>(bytes));
    length_ += bytes;
  }
  void EndPiece() {
    hash_.Add(&length_, sizeof length_);
    length_ = 0;
  }

  // The hash of everything added so far, as 32 hexadecimal digits.
  std::string Hex() const { return hash_.text(); }

 private:
  WideHash hash_;
  uint64_t length_ = 0;  // of the current piece so far
};

}  // namespace gradloom
