// System calls that fail, or end the process, from the n-th call on.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "runtime/base/file_calls.h"

namespace gradloom {

class FaultyCalls : public FileCalls {
 public:
  // Calls number `first` to `last`, counted from 0, fail with `error`. If `error` is 0, the process ends there with exit code kExitCode,
  // and a write is left half done.
  void FailAt(int first, int last, int error) { first_ = first, last_ = last, error_ = error; }

  static constexpr int kExitCode = 77;

  // All calls so far: "open /path", ...
  const std::vector<std::string>& log() const { return log_; }

  int Open(const char* path, int flags, mode_t mode) override {
    if (Fails(std::string("open ") + path)) return -1;
    const int fd = FileCalls::Open(path, flags, mode);
    if (fd >= 0) {
      if (static_cast<size_t>(fd) >= names_.size()) names_.resize(static_cast<size_t>(fd) + 1);
      names_[static_cast<size_t>(fd)] = path;
    }
    return fd;
  }
  ssize_t Write(int fd, const void* data, size_t bytes) override {
    if (Due() && error_ == 0 && FileCalls::Write(fd, data, bytes / 2) < 0) _exit(1);
    return Fails("write " + Name(fd)) ? -1 : FileCalls::Write(fd, data, bytes);
  }
  int Sync(int fd) override { return Fails("sync " + Name(fd)) ? -1 : FileCalls::Sync(fd); }
  int Close(int fd) override {
    const bool fails = Fails("close " + Name(fd));
    // The descriptor is closed even when the call reports an error.
    const int error = errno, result = FileCalls::Close(fd);
    errno = error;
    return fails ? -1 : result;
  }
  int Rename(const char* from, const char* to) override {
    return Fails(std::string("rename ") + from + " to " + to) ? -1 : FileCalls::Rename(from, to);
  }
  int Unlink(const char* path) override { return Fails(std::string("unlink ") + path) ? -1 : FileCalls::Unlink(path); }
  int MakeFolder(const char* path, mode_t mode) override {
    return Fails(std::string("mkdir ") + path) ? -1 : FileCalls::MakeFolder(path, mode);
  }
  int RemoveFolder(const char* path) override { return Fails(std::string("rmdir ") + path) ? -1 : FileCalls::RemoveFolder(path); }

 private:
  bool Due() const {
    const int call = static_cast<int>(log_.size());
    return call >= first_ && call <= last_;
  }
  bool Fails(std::string call) {
    const bool due = Due();
    log_.push_back(std::move(call));
    if (!due) return false;
    if (error_ == 0) _exit(kExitCode);
    errno = error_;
    return true;
  }
  std::string Name(int fd) const { return names_[static_cast<size_t>(fd)]; }

  int first_ = -1, last_ = -1, error_ = 0;
  std::vector<std::string> log_;
  std::vector<std::string> names_;  // by descriptor
};

}  // namespace gradloom
