#include "tools/screen/log_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {

namespace {

Descriptor OpenWithoutBlocking(const std::string& path) {
  // O_NONBLOCK: opening a FIFO succeeds or fails at once.
  Descriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  if (fd.get() < 0 && errno == ENXIO)
    throw Error(ErrorCode::kResource, "cannot open the log: no process reads this FIFO", Escaped(path, 4096), "start its reader first");
  if (fd.get() < 0) throw WriteError("cannot open the log", path, errno);
  return fd;
}

}  // namespace

LogFile::LogFile(const std::string& path) : fd_(OpenWithoutBlocking(path)) {
  struct stat status {};
  // The end of the reader must not end this process.
  if (fstat(fd_.get(), &status) == 0 && S_ISFIFO(status.st_mode)) std::signal(SIGPIPE, SIG_IGN);
}

bool LogFile::Append(const std::string& line) {
  rest_.erase(0, Write(rest_));
  if (!rest_.empty()) return false;
  const std::string text = line + "\n";
  const size_t written = Write(text);
  if (written > 0) rest_ = text.substr(written);
  return written > 0;
}

size_t LogFile::Write(std::string_view text) const {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = write(fd_.get(), text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  return written;
}

std::FILE* OpenLogFile(const std::string& path) {
  Descriptor opened = OpenWithoutBlocking(path);
  const int fd = opened.Release();
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  std::FILE* const file = fdopen(fd, "a");
  if (file == nullptr) {
    const int error = errno;
    close(fd);
    throw WriteError("cannot open the log", path, error);
  }
  return file;
}

}  // namespace gradloom
