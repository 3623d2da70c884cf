// Preloaded into a command to make one system call fail. Calls that create, write, sync, rename, truncate or remove a file with
// GRADLOOM_FAIL_PATH in its path are counted from 1. The one with the number GRADLOOM_FAIL_CALL fails as GRADLOOM_FAIL_HOW says: an errno
// ("28"), an errno from this call on ("28+"), "kill" (SIGKILL when the call begins), "short" (a write writes half of its bytes), or "slow+"
// (from this call on, each sync takes half a second). When the command ends, "calls N" with the number of calls and "failed NAME PATH" are
// printed to stderr.
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct Plan {
  std::string part = Text("GRADLOOM_FAIL_PATH"), how = Text("GRADLOOM_FAIL_HOW");
  long number = std::atol(Text("GRADLOOM_FAIL_CALL").c_str());
  std::atomic<long> calls{0};

  ~Plan() { std::fprintf(stderr, "calls %ld\n", calls.load()); }

  static std::string Text(const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? "" : text;
  }
};

Plan& ThePlan() {
  static Plan plan;
  return plan;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

enum class Fault { kNone, kError, kShort, kSlow };

// How this call fails. Sets errno for an error.
Fault FaultOf(const char* name, const std::string& path) {
  Plan& plan = ThePlan();
  if (plan.part.empty() || path.find(plan.part) == std::string::npos) return Fault::kNone;
  const long call = ++plan.calls;
  const bool on = plan.how.ends_with("+");
  if (plan.number == 0 || (call != plan.number && !(on && call > plan.number))) return Fault::kNone;
  if (call == plan.number) std::fprintf(stderr, "failed %s %s\n", name, path.c_str());
  if (plan.how == "kill") kill(getpid(), SIGKILL);
  if (plan.how == "short") return Fault::kShort;
  if (plan.how == "slow+") return Fault::kSlow;
  errno = std::atoi(plan.how.c_str());
  return Fault::kError;
}

bool Fails(const char* name, const std::string& path) { return FaultOf(name, path) == Fault::kError; }

std::string PathOf(int fd) {
  char path[PATH_MAX];
  const ssize_t bytes = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return bytes < 0 ? "" : std::string(path, static_cast<size_t>(bytes));
}

constexpr int kWritten = 0103;  // O_WRONLY, O_RDWR or O_CREAT

}  // namespace

// Uses names of its own, because the system's headers may define some of these functions inline.
extern "C" {

int FailingOpen(const char* path, int flags, ...) __asm__("open");
int FailingOpen(const char* path, int flags, ...) {
  static const auto next = Next<int (*)(const char*, int, mode_t)>("open");
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & 0100) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return (flags & kWritten) != 0 && Fails("open", path) ? -1 : next(path, flags, mode);
}

FILE* FailingFopen(const char* path, const char* mode) __asm__("fopen");
FILE* FailingFopen(const char* path, const char* mode) {
  static const auto next = Next<FILE* (*)(const char*, const char*)>("fopen");
  return *mode != 'r' && Fails("open", path) ? nullptr : next(path, mode);
}

FILE* FailingFopen64(const char* path, const char* mode) __asm__("fopen64");
FILE* FailingFopen64(const char* path, const char* mode) { return FailingFopen(path, mode); }

ssize_t FailingWrite(int fd, const void* data, size_t bytes) __asm__("write");
ssize_t FailingWrite(int fd, const void* data, size_t bytes) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  const Fault fault = FaultOf("write", PathOf(fd));
  if (fault == Fault::kError) return -1;
  return next(fd, data, fault == Fault::kShort ? std::max<size_t>(bytes / 2, 1) : bytes);
}

ssize_t FailingWritev(int fd, const iovec* parts, int count) __asm__("writev");
ssize_t FailingWritev(int fd, const iovec* parts, int count) {
  static const auto next = Next<ssize_t (*)(int, const iovec*, int)>("writev");
  const Fault fault = FaultOf("write", PathOf(fd));
  if (fault == Fault::kError) return -1;
  return next(fd, parts, fault == Fault::kShort ? 1 : count);
}

int FailingSync(int fd) __asm__("fsync");
int FailingSync(int fd) {
  static const auto next = Next<int (*)(int)>("fsync");
  const Fault fault = FaultOf("sync", PathOf(fd));
  if (fault == Fault::kSlow) usleep(500'000);
  return fault == Fault::kError ? -1 : next(fd);
}

int FailingRename(const char* from, const char* to) __asm__("rename");
int FailingRename(const char* from, const char* to) {
  static const auto next = Next<int (*)(const char*, const char*)>("rename");
  return Fails("rename", to) ? -1 : next(from, to);
}

int FailingMkdir(const char* path, mode_t mode) __asm__("mkdir");
int FailingMkdir(const char* path, mode_t mode) {
  static const auto next = Next<int (*)(const char*, mode_t)>("mkdir");
  return Fails("mkdir", path) ? -1 : next(path, mode);
}

int FailingTruncate(const char* path, off_t bytes) __asm__("truncate");
int FailingTruncate(const char* path, off_t bytes) {
  static const auto next = Next<int (*)(const char*, off_t)>("truncate");
  return Fails("truncate", path) ? -1 : next(path, bytes);
}

int FailingTruncate64(const char* path, off_t bytes) __asm__("truncate64");
int FailingTruncate64(const char* path, off_t bytes) { return FailingTruncate(path, bytes); }

int FailingUnlink(const char* path) __asm__("unlink");
int FailingUnlink(const char* path) {
  static const auto next = Next<int (*)(const char*)>("unlink");
  return Fails("unlink", path) ? -1 : next(path);
}

}  // extern "C"
