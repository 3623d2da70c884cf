// The bytes of a model from front to back, in memory or in a file, each read once. Private to this directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/onnx/content_hash.h"
#include "runtime/base/background.h"
#include "runtime/base/file.h"

namespace gradloom {

// Callers ask for no more bytes than there are left. What reads throws Error(kIo) where the file cannot be read or has become shorter;
// bytes that it has grown by are not seen.
class ModelBytes {
 public:
  // Borrows its source, and `hash`, to which all bytes are added as a piece once the last is read and Finish has returned; null where
  // nobody asks.
  ModelBytes(std::string_view bytes, ContentHash* hash);
  ModelBytes(const InputFile& file, ContentHash* hash);

  int64_t size() const { return size_; }
  int64_t at() const { return at_; }  // of the next byte

  // The first bytes, at most 1024.
  std::string_view beginning() const { return beginning_; }

  uint8_t Next() {
    if (at_ >= window_begin_ + static_cast<int64_t>(window_.size())) Refill();
    return static_cast<uint8_t>(window_[static_cast<size_t>(at_++ - window_begin_)]);
  }
  // Many bytes are hashed on a thread of their own while the caller goes on: they stay where they are until Finish.
  void Read(int64_t count, char* to);
  void Append(int64_t count, std::string& to);
  // Not where bytes are hashed.
  void Skip(int64_t count);
  // Waits until what has been read is hashed.
  void Finish() { hashing_.Wait(); }

 private:
  void Refill();
  // What the window does not hold.
  void ReadOn(int64_t count, char* to);
  // Many bytes on a thread of their own, in time for Finish.
  void Hash(const char* bytes, int64_t count);
  void AddToHash(const char* bytes, int64_t count);

  const InputFile* file_ = nullptr;
  int64_t size_;
  int64_t at_ = 0;
  std::string beginning_;
  std::string buffer_;       // of a file
  std::string_view window_;  // what is in memory from window_begin_ on
  int64_t window_begin_ = 0;
  ContentHash* hash_;
  int64_t hashed_ = 0;
  Background hashing_;  // last: its work uses all of the above
};

}  // namespace gradloom
