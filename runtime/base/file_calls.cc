#include "runtime/base/file_calls.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gradloom {

int FileCalls::Open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t FileCalls::Write(int fd, const void* data, size_t bytes) { return ::write(fd, data, bytes); }
int FileCalls::Sync(int fd) { return ::fsync(fd); }
int FileCalls::Close(int fd) { return ::close(fd); }
int FileCalls::Rename(const char* from, const char* to) { return ::rename(from, to); }
int FileCalls::Unlink(const char* path) { return ::unlink(path); }
int FileCalls::MakeFolder(const char* path, mode_t mode) { return ::mkdir(path, mode); }
int FileCalls::RemoveFolder(const char* path) { return ::rmdir(path); }

FileCalls& FileCalls::System() {
  static FileCalls calls;
  return calls;
}

}  // namespace gradloom
