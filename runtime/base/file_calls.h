// The system calls that change files, behind an interface: tests make each of them fail, or end the process there.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace gradloom {

// Each function is the system call of the same purpose: -1 and errno on failure. This class makes the calls; a test overrides them.
class FileCalls {
 public:
  virtual ~FileCalls() = default;

  virtual int Open(const char* path, int flags, mode_t mode);
  virtual ssize_t Write(int fd, const void* data, size_t bytes);
  virtual int Sync(int fd);
  virtual int Close(int fd);
  virtual int Rename(const char* from, const char* to);
  virtual int Unlink(const char* path);
  virtual int MakeFolder(const char* path, mode_t mode);
  virtual int RemoveFolder(const char* path);

  // The real calls. Lives as long as the process.
  static FileCalls& System();
};

}  // namespace gradloom
