// Bytes that may be too many for memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/descriptor.h"

namespace gradloom {

// Bytes that are written one after another and read by range: in memory while they are few, in a file without a name from then on, which
// the system frees whatever ends the process. That file is in $TMPDIR, or in /tmp where that is not set. Bytes stay in memory where the
// folder is memory itself (tmpfs), or where the file would leave less than 1 GiB free on its disk.
class SpillBuffer {
 public:
  // More than `memory_bytes` go to the file.
  explicit SpillBuffer(int64_t memory_bytes = std::numeric_limits<int64_t>::max()) : memory_bytes_(memory_bytes) {}

  void Append(const void* data, int64_t bytes);

  int64_t bytes() const { return written_ + static_cast<int64_t>(memory_.size()); }
  bool spilled() const { return file_.get() >= 0; }

  // Exactly these bytes, which have been appended. For any number of threads at once where none appends. Throws Error(kIo).
  void ReadAt(int64_t offset, void* out, int64_t bytes) const;

 private:
  void Open();
  void Write();
  void ReturnToMemory();

  int64_t memory_bytes_;
  bool stays_ = false;  // in memory, whatever its size: there is no file to be had
  std::string folder_;
  Descriptor file_;
  int64_t written_ = 0;            // bytes in the file
  std::vector<std::byte> memory_;  // those behind them
};

// So many bytes that `read` gives one after another, at once; what reads them by range (StoredArray::read).
std::function<void(int64_t offset, void* out, int64_t bytes)> Spilled(const std::function<void(void* out, int64_t bytes)>& read,
                                                                      int64_t bytes);

}  // namespace gradloom
