#include "runtime/exec/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/pages.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/base/stopwatch.h"
#include "runtime/base/tensor.h"

namespace gradloom {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

// The amount of memory that is worth a thread of its own to touch.
constexpr int64_t kBytesOfThread = int64_t{16} << 20;

// Calls f(begin, end) for disjoint ranges that cover [0, bytes), cut at multiples of `unit`, on as many threads as there are cores.
void OnAllCores(int64_t bytes, int64_t unit, const std::function<void(int64_t, int64_t)>& f) {
  const int64_t parts = std::clamp<int64_t>(bytes / kBytesOfThread, 1, NumCores());
  const auto cut = [&](int64_t part) { return part == parts ? bytes : bytes * part / parts / unit * unit; };
  RunOnThreads(parts, static_cast<int>(parts), [&](int64_t part) { f(cut(part), cut(part + 1)); });
}

// Large arenas are touched up to this size to measure the cost of huge pages.
constexpr int64_t kTrialBytes = int64_t{1} << 30;
constexpr double kSlowPageMs = 2;  // small pages of the same total size are faster
constexpr int kSlowPages = 3;      // consecutive ones; a single one may have waited for a processor

// Requests huge pages as long as they are provided quickly. A virtual machine may return large free blocks to its host. The first touch of
// a huge page then waits for the host, which was measured at a fifth of the speed of small pages, while memory that the machine has kept is
// fast. This is only a hint: without huge pages everything works, a few per cent slower. The memory begins at a page boundary.
void AskForHugePages(std::byte* memory, int64_t bytes) {
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  const int64_t first = AlignUp(reinterpret_cast<intptr_t>(memory), kHugePageBytes) - reinterpret_cast<intptr_t>(memory);
  const int64_t pages = (std::min(bytes, kTrialBytes) - first) / kHugePageBytes;
  std::atomic<bool> stopped{false};
  OnAllCores(pages * kHugePageBytes, kHugePageBytes, [&](int64_t begin, int64_t end) {
    int slow = 0;
    for (int64_t at = begin; at < end && !stopped.load(std::memory_order_relaxed); at += kHugePageBytes) {
      const Stopwatch time;
      *static_cast<volatile std::byte*>(memory + first + at) = std::byte{0};
      slow = time.ms() > kSlowPageMs ? slow + 1 : 0;
      if (slow == kSlowPages) stopped.store(true, std::memory_order_relaxed);
    }
  });
  // Huge pages that were already provided stay.
  if (stopped.load(std::memory_order_relaxed)) madvise(memory, static_cast<size_t>(bytes), MADV_NOHUGEPAGE);
}

// The system would promise memory that is not there, and kill the process where a step first writes to it.
void Require(int64_t bytes, const char* what) {
  RequireHostMemory(bytes, "the " + std::string(what) + " arena of the plan", "", "use a smaller --batch");
}

}  // namespace

HostArena::HostArena(int64_t bytes, const char* what, int64_t used) : bytes_(bytes) {
  if (bytes == 0) return;
  Require(used, what);
  const int64_t page = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  const auto padded = CheckedAdd(bytes, page);
  void* memory = MAP_FAILED;
  if (padded) {
    mapped_ = AlignUp(bytes, kPageBytes);
    // The system would refuse a single block that is larger than its memory.
    const int reserve = used < bytes ? MAP_NORESERVE : 0;
    memory = mmap(nullptr, static_cast<size_t>(mapped_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | reserve, -1, 0);
  }
  if (memory == MAP_FAILED) {
    throw Error(ErrorCode::kResource, "cannot allocate the " + std::string(what) + " arena of " + std::to_string(bytes) + " bytes", "",
                "use a smaller --batch, or a machine with more memory");
  }
  data_ = static_cast<std::byte*>(memory);
  // Huge pages would take memory for what lies between the used parts, and so does the trial of them.
  if (page == kHugePageBytes && used == bytes) AskForHugePages(data_, mapped_);
}

void HostArena::Grow(int64_t bytes, const char* what) {
  if (bytes <= bytes_) return;
  Require(bytes - bytes_, what);
  const auto padded = CheckedAdd(bytes, kPageBytes);
  const int64_t mapped = padded ? AlignUp(bytes, kPageBytes) : 0;
  void* const memory =
      mapped_ == 0 || mapped == 0 ? MAP_FAILED : mremap(data_, static_cast<size_t>(mapped_), static_cast<size_t>(mapped), MREMAP_MAYMOVE);
  if (memory == MAP_FAILED) {
    *this = HostArena(bytes, what);
    return;
  }
  data_ = static_cast<std::byte*>(memory);
  bytes_ = bytes;
  mapped_ = mapped;
  if (bytes >= kHugePageBytes) AskForHugePages(data_, mapped_);
}

void HostArena::Populate(int64_t bytes) {
  OnAllCores(std::min(bytes, bytes_), kPageBytes, [&](int64_t begin, int64_t end) { PopulatePages(data_ + begin, end - begin); });
}

std::byte* HostArena::EmptyAddress() {
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

}  // namespace gradloom
