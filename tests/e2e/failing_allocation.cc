// Preloaded into a command to make one allocation fail. Allocations of main and its threads through operator new, aligned_alloc and mmap
// are counted from 1. The one with the number GRADLOOM_FAIL_ALLOCATION fails, and its call stack is printed to stderr; 0 fails none. When
// main returns, "allocations N" is printed to stderr.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<int64_t> asked{0};
int64_t fails_at = 0;

// Before main starts and after it ends, nobody can catch the exception.
bool Fails() {
  if (!counting.load(std::memory_order_relaxed) || asked.fetch_add(1, std::memory_order_relaxed) + 1 != fails_at) return false;
  void* callers[40];
  backtrace_symbols_fd(callers, backtrace(callers, 40), 2);
  return true;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void* OrThrow(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void* AllocateAligned(size_t alignment, size_t bytes) {
  static const auto next = Next<void* (*)(size_t, size_t)>("aligned_alloc");
  return next(alignment, bytes);
}

using Main = int (*)(int, char**, char**);
Main the_main = nullptr;

int CountedMain(int argc, char** argv, char** environment) {
  const char* const text = std::getenv("GRADLOOM_FAIL_ALLOCATION");
  fails_at = text == nullptr ? 0 : std::atoll(text);
  counting = true;
  const int code = the_main(argc, argv, environment);
  counting = false;
  std::fprintf(stderr, "allocations %lld\n", static_cast<long long>(asked.load()));
  return code;
}

}  // namespace

void* operator new(size_t bytes) { return OrThrow(Fails() ? nullptr : std::malloc(std::max<size_t>(bytes, 1))); }
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  const auto to = static_cast<size_t>(alignment);
  return OrThrow(Fails() ? nullptr : AllocateAligned(to, (std::max<size_t>(bytes, 1) + to - 1) / to * to));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" {

void* aligned_alloc(size_t alignment, size_t bytes) {
  if (!Fails()) return AllocateAligned(alignment, bytes);
  errno = ENOMEM;
  return nullptr;
}

void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  static const auto next = Next<void* (*)(void*, size_t, int, int, int, off_t)>("mmap");
  if (!Fails()) return next(at, bytes, protection, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(), void (*rtld_fini)(), void* stack_end) {
  the_main = main;
  using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
  return Next<Start>("__libc_start_main")(CountedMain, argc, argv, init, fini, rtld_fini, stack_end);
}

}  // extern "C"
