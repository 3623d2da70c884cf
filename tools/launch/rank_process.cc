#include "tools/launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"
#include "tools/launch/file_limit.h"

namespace gradloom {
namespace {

constexpr size_t kMaxLine = 1 << 16;  // bytes

[[noreturn]] void RefuseSystem(const std::string& what, const std::string& where) {
  throw Error(ErrorCode::kResource, what + ": " + std::strerror(errno), where, "check ulimit -a and df -h");
}

Descriptor OpenLog(const std::string& path) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (file.get() < 0) RefuseSystem("cannot open the log", Escaped(path, 4096));
  return file;
}

struct Pipe {
  Descriptor read, write;
};

Pipe NewPipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) RefuseSystem("cannot create a pipe", "");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Writes as much as the descriptor accepts: a closed terminal is not an error.
void WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// The file of this program, whatever has been done to its name. Without /proc, as in some containers, the path by which it was started: the
// launcher stays in the folder to which it may be relative.
const char* ThisProgram() {
  constexpr char kLink[] = "/proc/self/exe";
  const char* const started = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return started == nullptr || access(kLink, X_OK) == 0 ? kLink : started;
}

// Runs in the child, using only calls that are safe between fork and exec. Does not return.
[[noreturn]] void Become(const char* program, char* const* words, char* const* environment, pid_t parent, int null, const int (&outputs)[2],
                         int failure) {
  setpgid(0, 0);
  RestoreFileLimit();
  // If the launcher is killed, nothing else would stop the child.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(128 + SIGKILL);
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGHUP) ::signal(signal, SIG_DFL);
  }
  // Otherwise a background process group could be stopped by its writes to the terminal.
  ::signal(SIGTTOU, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(null, STDIN_FILENO);
  if (outputs[0] >= 0) dup2(outputs[0], STDOUT_FILENO);
  if (outputs[1] >= 0) dup2(outputs[1], STDERR_FILENO);
  execvpe(program, words, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(failure, &error, sizeof error);
  _exit(127);
}

}  // namespace

LineTee::LineTee(int read_end, int file, int terminal, std::string prefix)
    : read_end_(read_end), file_(file), terminal_(terminal), prefix_(std::move(prefix)) {
  fcntl(read_end_, F_SETFL, O_NONBLOCK);
}

LineTee::~LineTee() {
  close(read_end_);
  close(file_);
}

ssize_t LineTee::Copy() {
  char buffer[16384];
  ssize_t count;
  while ((count = read(read_end_, buffer, sizeof buffer)) < 0 && errno == EINTR) {
  }
  if (count < 0) return count;
  const std::string_view text(buffer, static_cast<size_t>(count));
  WriteAll(file_, text);
  const size_t before = line_.size(), newline = text.rfind('\n');
  line_ += text;
  if (newline != std::string_view::npos) Show(before + newline + 1);
  // Longer lines are broken, on the terminal only.
  if (count == 0 || line_.size() > kMaxLine) Show(line_.size());
  return count;
}

void LineTee::Drain() {
  // A pipe does not hold more.
  for (ssize_t left = fcntl(read_end_, F_GETPIPE_SZ); left > 0;) {
    const ssize_t count = Copy();
    if (count <= 0) break;
    left -= count;
  }
  Show(line_.size());
}

void LineTee::Show(size_t bytes) {
  std::string lines;
  for (size_t begin = 0; begin < bytes;) {
    const size_t next = std::min(line_.find('\n', begin), bytes - 1) + 1;
    lines += prefix_ + line_.substr(begin, next - begin);
    begin = next;
  }
  if (!lines.empty() && lines.back() != '\n') lines += '\n';
  // Written in one piece, so that lines of several ranks do not mix.
  WriteAll(terminal_, lines);
  line_.erase(0, bytes);
}

RankProcess StartRank(const RankCommand& command) {
  RankProcess process;
  Descriptor null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe failure = NewPipe();
  Descriptor outputs[2];
  for (size_t stream = 0; stream < 2; ++stream) {
    const StreamTarget& target = command.streams[stream];
    if (!target.file) continue;
    Descriptor file = OpenLog(command.files[stream]);
    if (!target.terminal) {
      outputs[stream] = std::move(file);
      continue;
    }
    Pipe pipe = NewPipe();
    outputs[stream] = std::move(pipe.write);
    const int terminal = stream == 0 ? STDOUT_FILENO : STDERR_FILENO;
    process.tees.push_back(std::make_unique<LineTee>(pipe.read.Release(), file.Release(), terminal, command.prefix));
  }
  std::vector<std::string> words = command.words, environment;
  if (command.this_program) words.insert(words.begin(), "gradloom");
  for (const auto& [name, value] : command.environment) environment.push_back(name + "=" + value);
  const std::vector<char*> argv = Pointers(words), envp = Pointers(environment);
  const char* program = command.this_program ? ThisProgram() : words.front().c_str();
  const pid_t parent = getpid();
  process.pid = fork();
  if (process.pid < 0) RefuseSystem("cannot start a process", "");
  if (process.pid == 0)
    Become(program, argv.data(), envp.data(), parent, null.get(), {outputs[0].get(), outputs[1].get()}, failure.write.get());
  // Set in the parent as well, so that the group exists whichever process runs first.
  setpgid(process.pid, process.pid);
  failure.write = Descriptor();
  int error = 0;
  ssize_t count;
  // A successful exec closes the pipe.
  while ((count = read(failure.read.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  if (count == static_cast<ssize_t>(sizeof error)) {
    waitpid(process.pid, nullptr, 0);
    // The system reports the interpreter's absence as if the file itself were missing.
    const bool interpreter = error == ENOENT && access(program, F_OK) == 0;
    throw Error(ErrorCode::kConfig, "cannot start '" + Escaped(words.front()) + "': " + std::strerror(error), "gradloom launch",
                interpreter ? "the file exists, but the interpreter that its first line names, or the loader of its program, does not"
                            : "for example: gradloom launch --nproc-per-node 2 -- doctor");
  }
  return process;
}

}  // namespace gradloom
