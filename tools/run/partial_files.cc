#include "tools/run/partial_files.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "runtime/base/descriptor.h"

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

// Uses only calls that are safe in a signal handler.
void RemoveAll() {
  for (const std::atomic<char*>& place : beginnings) {
    char* const path = place.load();
    if (path == nullptr) continue;
    char* const number = path + std::strlen(path);
    for (int i = 0; i < kMaxNames; ++i) {
      char* at = number;
      if (i >= 10) *at++ = static_cast<char>('0' + i / 10);
      *at++ = static_cast<char>('0' + i % 10);
      *at = '\0';
      ::unlink(path);
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

// "NAME.tmp.4711.0" -> 4711; 0 for other names.
int WriterOf(const std::string& name, const std::string& file) {
  int process = 0, count = 0, end = 0;
  if (!name.starts_with(file + ".tmp.")) return 0;
  const char* const numbers = name.c_str() + file.size();
  return std::sscanf(numbers, ".tmp.%9d.%9d%n", &process, &count, &end) == 2 && numbers[end] == '\0' ? process : 0;
}

// Removes files whose process is on another host or is gone, and which nobody holds (OutputFile locks the file it writes, on any host).
void RemoveStale(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::directory_iterator it(path.has_parent_path() ? path.parent_path() : ".", error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const int process = WriterOf(it->path().filename().string(), path.filename().string());
    if (process == 0 || ::kill(process, 0) == 0 || errno != ESRCH) continue;
    const Descriptor file(::open(it->path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(it->path().c_str());
  }
}

}  // namespace

void RemovePartialFileOnSignal(const std::string& path) {
  RemoveStale(path);
  const std::string beginning = path + ".tmp." + std::to_string(::getpid()) + ".";
  for (std::atomic<char*>& place : beginnings) {
    if (const char* const known = place.load(); known != nullptr && beginning == known) break;
    if (place.load() != nullptr) continue;
    char* const text = new char[beginning.size() + kNumberBytes]();
    beginning.copy(text, beginning.size());
    place.store(text);
    break;
  }
  HandleSignals();
}

void EndOnSignals() {
  if (::getpid() == 1) HandleSignals();
}

}  // namespace gradloom
