#include "runtime/exec/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

}  // namespace

HostArena::HostArena(int64_t bytes, const char* what) : bytes_(bytes) {
  if (bytes == 0) return;
  const int64_t page = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  const auto padded = CheckedAdd(bytes, page);
  void* memory = MAP_FAILED;
  if (padded) {
    mapped_ = AlignUp(bytes, kPageBytes);
    memory = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kResource, "no memory for the " + std::string(what) + " arena of " + std::to_string(bytes) + " bytes", "",
                "use a smaller --batch, or a machine with more memory");
  }
  // Advice only: without huge pages everything works, slower.
  if (page == kHugePageBytes) madvise(memory, static_cast<size_t>(mapped_), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

HostArena::~HostArena() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(mapped_));
}

HostArena::HostArena(HostArena&& other) noexcept { *this = std::move(other); }

HostArena& HostArena::operator=(HostArena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

int64_t FreeHostBytes() {
  constexpr char kKey[] = "MemAvailable:";
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(kKey)) return std::strtoll(line.c_str() + sizeof kKey - 1, nullptr, 10) * 1024;
  }
  return sysconf(_SC_AVPHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

}  // namespace gradloom
