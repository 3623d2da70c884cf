// Reads the bytes of a model sequentially, from memory or from a file, each byte once. Private to compiler/onnx.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "compiler/onnx/read/content_hash.h"
#include "runtime/base/background.h"
#include "runtime/base/file.h"

namespace gradloom {

// Callers must not request more bytes than are left. Functions that read throw Error(kIo) if the file cannot be read or has become shorter.
// If it has grown, the additional bytes are ignored.
class ModelBytes {
 public:
  // Borrows its source and `hash`. All bytes are added to `hash` as one piece, which is complete after the last byte has been read and
  // Finish has returned. Null: no hash is computed.
  ModelBytes(std::string_view bytes, ContentHash* hash);
  ModelBytes(const InputFile& file, ContentHash* hash);

  int64_t size() const { return size_; }
  int64_t at() const { return at_; }  // the offset of the next byte

  // The first bytes, at most 1024.
  std::string_view beginning() const { return prefix_; }

  uint8_t Next() {
    if (at_ >= window_begin_ + static_cast<int64_t>(window_.size())) Refill();
    return static_cast<uint8_t>(window_[static_cast<size_t>(at_++ - window_begin_)]);
  }
  // Large blocks are hashed on another thread while the caller continues: the bytes must stay unchanged until Finish.
  void Read(int64_t count, char* to);
  void Append(int64_t count, std::string& to);
  // Must not be used with a hash.
  void Skip(int64_t count);
  // Waits until all bytes read so far are hashed.
  void Finish() { hashing_.Wait(); }

 private:
  void Refill();
  // Reads bytes that are not in the window.
  void ReadBeyondWindow(int64_t count, char* to);
  // Hashes large blocks on another thread; Finish waits for it.
  void Hash(const char* bytes, int64_t count);
  void AddToHash(const char* bytes, int64_t count);

  const InputFile* file_ = nullptr;
  int64_t size_;
  int64_t at_ = 0;
  std::string prefix_;
  std::string buffer_;       // of a file
  std::string_view window_;  // what is in memory from window_begin_ on
  int64_t window_begin_ = 0;
  ContentHash* hash_;
  int64_t hashed_ = 0;
  Background hashing_;  // last: its work uses all of the above
};

}  // namespace gradloom
