// One block of host memory for an arena.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom {

// Zeroed bytes aligned to a page, with whole pages to themselves, in whose place others may be mapped (ParameterShare); large blocks ask
// for huge pages. An arena of no bytes has an address, too: kernels tell tensors without elements from absent ones by it. Throws
// Error(kResource) naming `what` and the size where they cannot be had.
class HostArena {
 public:
  HostArena() = default;
  HostArena(int64_t bytes, const char* what);
  ~HostArena();
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;

  std::byte* at(int64_t offset) const { return data_ + offset; }
  int64_t bytes() const { return bytes_; }

  // Makes it larger. It may move, and what it holds then is undefined; memory that was found for it stays. Throws Error(kResource), and
  // then nothing has changed.
  void Grow(int64_t bytes, const char* what);

  // Has the system find memory for the first bytes now, on as many threads as there are cores; what is written there stays. Moments of an
  // optimizer are read before they are first written: a page that is read first is mapped to zeros, and mapped again at the write, for
  // which all threads of the process are interrupted; where this was measured that took longer than finding the memory.
  void Populate(int64_t bytes);

 private:
  // Of what has no bytes.
  static std::byte* Nowhere();

  std::byte* data_ = Nowhere();
  int64_t bytes_ = 0;
  int64_t mapped_ = 0;
};

// Bytes of main memory that could be had now, for anybody.
int64_t FreeHostBytes();

}  // namespace gradloom
