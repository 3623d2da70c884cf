// One block of host memory for an arena.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom {

// Zeroed, page-aligned memory that shares no page with other data, so that other memory may be mapped in its place (ParameterShare). Large
// blocks ask for huge pages. An arena of no bytes has an address, too, by which kernels tell tensors without elements from absent ones.
// Throws Error(kResource), naming `what` and the size, if the memory is not available (RequireHostMemory).
class HostArena {
 public:
  HostArena() = default;
  HostArena(int64_t bytes, const char* what) : HostArena(bytes, what, bytes) {}
  // Of which no more than `used` bytes will ever be touched: only these must be available.
  HostArena(int64_t bytes, const char* what, int64_t used);
  ~HostArena();
  HostArena(HostArena&& other) noexcept;
  HostArena& operator=(HostArena&& other) noexcept;

  std::byte* at(int64_t offset) const { return data_ + offset; }
  int64_t bytes() const { return bytes_; }

  // Enlarges it. It may move, and its content is then undefined; physical memory is kept. Throws Error(kResource), and then nothing has
  // changed.
  void Grow(int64_t bytes, const char* what);

  // Makes the system allocate physical memory for the first `bytes` bytes now, on as many threads as there are cores; the content is kept.
  // An optimizer's moments are read before they are first written. A page that is read first is mapped to zeros, and mapped again at the
  // write, which interrupts all threads of the process. Where this was measured, it took longer than allocating the memory.
  void Populate(int64_t bytes);

 private:
  // The address of an arena without bytes.
  static std::byte* EmptyAddress();

  std::byte* data_ = EmptyAddress();
  int64_t bytes_ = 0;
  int64_t mapped_ = 0;
};

}  // namespace gradloom
