// kill_at_call PART N VICTIM -- COMMAND...: runs the command and kills a process with SIGKILL when the command, in any of its threads,
// enters its Nth system call that writes, creates, renames, removes or syncs a file with PART in its path. VICTIM is 0 for the command
// itself, or the id of another process; in that case the command continues. With N = 0 no process is killed. Prints the number of such
// calls to stderr ("calls 57"). Exits with the command's code, or with 128 plus the signal's number if a signal ended it.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

namespace {

// Reads the string at an address in another process.
std::string TextAt(pid_t thread, uint64_t address) {
  std::string text;
  while (text.size() < PATH_MAX) {
    errno = 0;
    const long word = ptrace(PTRACE_PEEKDATA, thread, address + text.size(), nullptr);
    if (errno != 0) return text;
    char bytes[sizeof word];
    std::memcpy(bytes, &word, sizeof word);
    for (const char byte : bytes) {
      if (byte == '\0') return text;
      text += byte;
    }
  }
  return text;
}

std::string PathOf(pid_t thread, uint64_t descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/" + std::to_string(thread) + "/fd/" + std::to_string(descriptor);
  const ssize_t n = readlink(link.c_str(), path, sizeof path);
  return n < 0 ? "" : std::string(path, static_cast<size_t>(n));
}

// The path that the call modifies, or "" for other calls.
std::string Changed(pid_t thread, const __ptrace_syscall_info& call) {
  const auto* const args = call.entry.args;
  switch (call.entry.nr) {
#ifdef SYS_mkdir
    case SYS_mkdir:
    case SYS_rmdir:
    case SYS_unlink:
    case SYS_rename: return TextAt(thread, args[0]);
#endif
    case SYS_mkdirat:
    case SYS_unlinkat:
    case SYS_renameat:
    case SYS_renameat2:
    case SYS_openat: return TextAt(thread, args[1]);
    case SYS_write:
    case SYS_pwrite64:
    case SYS_ftruncate:
    case SYS_fsync:
    case SYS_fdatasync: return PathOf(thread, args[0]);
    default: return "";
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6 || std::strcmp(argv[4], "--") != 0) return 2;
  const std::string part = argv[1];
  const long wanted = std::atol(argv[2]);
  const pid_t other = std::atoi(argv[3]);
  const pid_t command = fork();
  if (command == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    execv(argv[5], argv + 5);
    _exit(127);
  }
  int status = 0;
  if (command < 0 || waitpid(command, &status, 0) != command) return 2;
  ptrace(PTRACE_SETOPTIONS, command, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
  ptrace(PTRACE_SYSCALL, command, nullptr, nullptr);
  std::set<pid_t> begun{command};
  long calls = 0;
  while (true) {
    const pid_t thread = waitpid(-1, &status, __WALL);
    if (thread < 0) return 2;
    if (!WIFSTOPPED(status)) {
      if (thread != command) continue;
      std::fprintf(stderr, "calls %ld\n", calls);
      return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      signal = 0;
      __ptrace_syscall_info call{};
      ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), thread, sizeof call, &call);
      if (call.op == PTRACE_SYSCALL_INFO_ENTRY && Changed(thread, call).find(part) != std::string::npos && ++calls == wanted)
        kill(other == 0 ? command : other, SIGKILL);
    } else if (status >> 16 != 0 || (signal == SIGSTOP && begun.insert(thread).second)) {
      // A thread was created, or this is its first stop.
      signal = 0;
    }
    ptrace(PTRACE_SYSCALL, thread, nullptr, signal);
  }
}
