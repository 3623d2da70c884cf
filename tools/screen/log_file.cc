#include "tools/screen/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {

std::FILE* OpenLogFile(const std::string& path) {
  // O_NONBLOCK: opening a FIFO succeeds or fails at once.
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
  if (fd < 0 && errno == ENXIO)
    throw Error(ErrorCode::kResource, "cannot open the log: no process reads this FIFO", Escaped(path, 4096), "start its reader first");
  if (fd < 0) throw WriteError("cannot open the log", path, errno);
  // Writes block on a slow reader, so that no line is truncated.
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
