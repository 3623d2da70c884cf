// A buffer for bytes that may be too many for memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/data/stored_array.h"

namespace gradloom {

// Bytes that are appended and read by range. They are in memory while they are few, and then in an unnamed file, which the system frees
// however the process ends. That file is in $TMPDIR, or in /tmp if that is not set. Bytes stay in memory if the folder is in memory itself
// (tmpfs), or if the file would leave less than 1 GiB free on its disk. If the memory does not suffice either, that is an error.
class SpillBuffer {
 public:
  // More than `memory_bytes` go to the file. `where`: what the bytes are from, for errors.
  explicit SpillBuffer(int64_t memory_bytes = std::numeric_limits<int64_t>::max(), std::string where = "")
      : memory_bytes_(memory_bytes), where_(std::move(where)) {}

  // Announces that there will be this many bytes in all, so that it is decided now where they will be, and memory is taken once. Throws
  // Error(kResource) if there is no room for them.
  void Reserve(int64_t bytes);

  // Throws Error(kResource) if there is no room for the bytes.
  void Append(const void* data, int64_t bytes);

  int64_t bytes() const { return written_ + static_cast<int64_t>(memory_.size()); }
  // Whether there are more bytes than were to stay in memory, wherever they are.
  bool is_large() const { return bytes() > memory_bytes_; }
  bool spilled() const { return file_.get() >= 0; }

  // Reads exactly these bytes, which must have been appended. Any number of threads may call it while none appends. Throws Error(kIo).
  void ReadAt(int64_t offset, void* out, int64_t bytes) const;

 private:
  void Open(int64_t bytes);
  void Write();
  void ReturnToMemory();
  void GrowTo(int64_t bytes);

  int64_t memory_bytes_;
  std::string where_;
  bool stays_ = false;  // whether it stays in memory whatever its size, since a file is not available
  std::string folder_;
  Descriptor file_;
  int64_t written_ = 0;            // bytes in the file
  std::vector<std::byte> memory_;  // the bytes after those in the file
};

// Reads all `bytes` bytes with `read` now, and returns a function that reads them by range (StoredArray::read). `where`: as for
// SpillBuffer.
std::function<void(int64_t offset, void* out, int64_t bytes)> Spilled(const std::function<void(void* out, int64_t bytes)>& read,
                                                                      int64_t bytes, const std::string& where);

// The array in row-major order, of one whose elements are read in column-major order: all are read now. `where`: as for SpillBuffer.
StoredArray SpilledRowMajor(const StoredArray& array, const std::string& where);

}  // namespace gradloom
