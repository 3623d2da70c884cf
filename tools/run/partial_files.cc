#include "tools/run/partial_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace gradloom {
namespace {

constexpr int kMaxPaths = 8;
// Candidate names per path; a process writes it once, and checks beforehand that it can.
constexpr int kMaxNames = 64;
// Digits after "path.tmp.PID.".
constexpr size_t kNumberBytes = 3;

// "path.tmp.PID." with space for a number. Never freed, because a signal handler may read it.
std::array<std::atomic<char*>, kMaxPaths> beginnings{};
static_assert(std::atomic<char*>::is_always_lock_free);
// The process that they are of, which is not a child that it has forked since.
std::atomic<pid_t> writer = 0;

// Descriptors that are searched for a file, at most.
constexpr int kMaxDescriptors = 1 << 16;

// The functions below use only calls that are safe in a signal handler.

bool IsOpenHere(const struct stat& file) {
  struct rlimit limit {};
  const bool known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(kMaxDescriptors);
  const int end = known ? static_cast<int>(limit.rlim_cur) : kMaxDescriptors;
  for (int fd = 0; fd < end; ++fd) {
    struct stat open;
    if (::fstat(fd, &open) == 0 && open.st_dev == file.st_dev && open.st_ino == file.st_ino) return true;
  }
  return false;
}

// Whether nobody holds the file. OutputFile locks the file that it writes, for processes on any host. `without_locks`: the answer if the
// file system has no locks.
bool IsUnlocked(const char* path, bool without_locks) {
  // For writing, because a lock on NFS is refused otherwise.
  const int fd = ::open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  const bool unlocked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 || (errno != EWOULDBLOCK && without_locks);
  ::close(fd);
  return unlocked;
}

// Keeps a file of another container, in which a process often has the same id.
void RemoveOwn(const char* path) {
  struct stat file;
  if (::lstat(path, &file) == 0 && (IsOpenHere(file) || IsUnlocked(path, false))) ::unlink(path);
}

void RemoveAll() {
  if (writer.load() != ::getpid()) return;
  for (const std::atomic<char*>& place : beginnings) {
    char* const path = place.load();
    if (path == nullptr) continue;
    char* const number = path + std::strlen(path);
    for (int i = 0; i < kMaxNames; ++i) {
      char* at = number;
      if (i >= 10) *at++ = static_cast<char>('0' + i / 10);
      *at++ = static_cast<char>('0' + i % 10);
      *at = '\0';
      RemoveOwn(path);
    }
    *number = '\0';
  }
}

// Ends the process with the same signal, so that its parent sees it. The first process of a container goes on after it, and exits with the
// code that a shell would give.
void OnSignal(int signal) {
  RemoveAll();
  raise(signal);
  if (::getpid() == 1) ::_exit(128 + signal);
}

// Keeps handlers that a run has set for saving, and signals that nohup ignores.
void HandleSignals() {
  for (const int signal : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGXCPU}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) continue;
    action.sa_handler = OnSignal;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    sigaction(signal, &action, nullptr);
  }
}

// Whether a file was last written so long ago that it is not about to get its name: it is not locked just before it is renamed.
bool IsOld(const char* path) {
  constexpr time_t kRenamingSeconds = 60;
  struct stat status;
  return ::lstat(path, &status) == 0 && status.st_mtime + kRenamingSeconds < ::time(nullptr);
}

// The process in the name of a temporary file of AtomicFile: "state.safetensors.tmp.4711.0" -> 4711; 0 for other names. `end`: where
// ".tmp." begins.
int WriterOf(const std::string& name, size_t& end) {
  end = name.rfind(".tmp.");
  int process = 0, count = 0, length = 0;
  if (end == std::string::npos || std::sscanf(name.c_str() + end, ".tmp.%9d.%9d%n", &process, &count, &length) != 2) return 0;
  return end + static_cast<size_t>(length) == name.size() ? process : 0;
}

}  // namespace

void RemoveLeftovers(const std::string& folder, const std::string& file) {
  std::error_code error;
  std::filesystem::directory_iterator it(folder.empty() ? "." : folder, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    size_t end = 0;
    const int process = WriterOf(name, end);
    if (process <= 0 || (!file.empty() && name.compare(0, end, file) != 0)) continue;
    // The first process of a container has the id of the one before it.
    const bool own = process == ::getpid();
    if (own ? !IsOld(it->path().c_str()) : ::kill(process, 0) == 0 || errno != ESRCH) continue;
    if (IsUnlocked(it->path().c_str(), file.empty() && !own)) ::unlink(it->path().c_str());
  }
}

void RemovePartialFileOnSignal(const std::string& path) {
  const std::filesystem::path parts(path);
  RemoveLeftovers(parts.parent_path().string(), parts.filename().string());
  const std::string beginning = path + ".tmp." + std::to_string(::getpid()) + ".";
  for (std::atomic<char*>& place : beginnings) {
    if (const char* const known = place.load(); known != nullptr && beginning == known) break;
    if (place.load() != nullptr) continue;
    char* const text = new char[beginning.size() + kNumberBytes]();
    beginning.copy(text, beginning.size());
    place.store(text);
    break;
  }
  writer.store(::getpid());
  HandleSignals();
}

void EndOnSignals() {
  if (::getpid() == 1) HandleSignals();
}

}  // namespace gradloom
