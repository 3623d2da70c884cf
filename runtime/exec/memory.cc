#include "runtime/exec/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/tensor.h"

namespace gradloom {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// Large arenas are touched up to here, to see what a huge page costs.
constexpr int64_t kTriedBytes = int64_t{1} << 30;
constexpr double kSlowPageMs = 2;  // small pages that make up a huge one are quicker
constexpr int kSlowPages = 3;      // in a row; a single one may have waited for a processor

// Asks for huge pages as long as they can be had quickly. A virtual machine may give large free blocks back to its host: the first
// touch of a huge page then waits for the host, at a fifth of the speed of small pages where this was measured, while what the
// machine has kept is quick. Advice only: without huge pages everything works, a few per cent slower.
void AskForHugePages(std::byte* memory, int64_t bytes) {
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::byte* const end = memory + bytes;
  std::byte* const tried = memory + std::min(bytes, kTriedBytes);
  int slow = 0;
  for (auto* page = reinterpret_cast<std::byte*>(AlignUp(reinterpret_cast<intptr_t>(memory), kHugePageBytes));
       tried - page >= kHugePageBytes; page += kHugePageBytes) {
    const auto start = std::chrono::steady_clock::now();
    *static_cast<volatile std::byte*>(page) = std::byte{0};
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    slow = took.count() > kSlowPageMs ? slow + 1 : 0;
    if (slow < kSlowPages) continue;
    madvise(page + kHugePageBytes, static_cast<size_t>(end - page - kHugePageBytes), MADV_NOHUGEPAGE);
    return;
  }
}

// What a thread of its own is worth.
constexpr int64_t kPopulatedByThread = int64_t{16} << 20;

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
  data_ = static_cast<std::byte*>(memory);
  if (page == kHugePageBytes) AskForHugePages(data_, mapped_);
}

// Moments of an optimizer are read before they are first written. A page that is read first is mapped to zeros, and mapped again at the
// write, for which all threads of the process are interrupted: where this was measured that took longer than finding the memory.
void HostArena::Populate() {
  const int64_t most = std::max<int64_t>(1, std::thread::hardware_concurrency());
  const int64_t parts = std::clamp<int64_t>(bytes_ / kPopulatedByThread, 1, most);
  const auto populate = [&](int64_t part) {
    const int64_t end = bytes_ * (part + 1) / parts;
    for (int64_t at = AlignUp(bytes_ * part / parts, kPageBytes); at < end; at += kPageBytes)
      *static_cast<volatile std::byte*>(data_ + at) = {};
  };
  std::vector<std::jthread> threads;
  for (int64_t part = 1; part < parts; ++part) threads.emplace_back(populate, part);
  populate(0);
}

std::byte* HostArena::Nowhere() {
  alignas(kAlignmentBytes) static std::byte nowhere[kAlignmentBytes];
  return nowhere;
}

HostArena::~HostArena() {
  if (mapped_ > 0) munmap(data_, static_cast<size_t>(mapped_));
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
