// A buffer for bytes that may be too many for memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"

namespace gradloom {

// Bytes that are appended and read by range. They are in memory while they are few, and then in an unnamed file, which the system frees
// however the process ends. That file is in $TMPDIR, or in /tmp if that is not set. Bytes stay in memory if the folder is in memory itself
// (tmpfs), or if the file would leave less than 1 GiB free on its disk.
class SpillBuffer {
 public:
  // More than `memory_bytes` go to the file.
  explicit SpillBuffer(int64_t memory_bytes = std::numeric_limits<int64_t>::max()) : memory_bytes_(memory_bytes) {}

  void Append(const void* data, int64_t bytes);

  int64_t bytes() const { return written_ + static_cast<int64_t>(memory_.size()); }
  bool spilled() const { return file_.get() >= 0; }

  // Reads exactly these bytes, which must have been appended. Any number of threads may call it while none appends. Throws Error(kIo).
  void ReadAt(int64_t offset, void* out, int64_t bytes) const;

 private:
  void Open();
  void Write();
  void ReturnToMemory();

  int64_t memory_bytes_;
  bool stays_ = false;  // whether it stays in memory whatever its size, since a file is not available
  std::string folder_;
  Descriptor file_;
  int64_t written_ = 0;            // bytes in the file
  std::vector<std::byte> memory_;  // the bytes after those in the file
};

// Reads all `bytes` bytes with `read` now, and returns a function that reads them by range (StoredArray::read).
std::function<void(int64_t offset, void* out, int64_t bytes)> Spilled(const std::function<void(void* out, int64_t bytes)>& read,
                                                                      int64_t bytes);

}  // namespace gradloom
