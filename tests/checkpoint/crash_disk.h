// A model of what a disk may hold after a power failure: all that was synced, plus any part of the rest that a journaling file system may
// leave.
#pragma once

#include <fcntl.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/file_calls.h"

namespace gradloom {

// Executes the calls and records them. Crash() then builds the folder as it may be found if the power failed after any number of the calls.
//
//   - A file's synced bytes survive. Of the bytes written since, all, some or none survive.
//   - A folder's entries survive up to its last sync. Of the changes since, a prefix survives, possibly all or none of them.
class CrashDisk : public FileCalls {
 public:
  // `root` is the folder in which everything happens. It exists and is empty.
  explicit CrashDisk(std::string root) : root_(std::move(root)) { ids_[root_] = 0; }

  size_t calls() const { return events_.size(); }

  int Open(const char* path, int flags, mode_t mode) override;
  ssize_t Write(int fd, const void* data, size_t bytes) override;
  int Sync(int fd) override;
  int Rename(const char* from, const char* to) override;
  int Unlink(const char* path) override;
  int MakeFolder(const char* path, mode_t mode) override;
  int RemoveFolder(const char* path) override;

  // Builds in `to`, which does not exist yet, a state that may be left after the first `calls` calls.
  void Crash(size_t calls, std::mt19937& random, const std::string& to) const;

 private:
  enum class Kind { kLink, kRemove, kRename, kWrite, kSync };
  struct Event {
    Kind kind;
    int node = -1;    // the file or folder
    int folder = -1;  // the folder whose entries are changed
    std::string name, to, data;
    bool is_folder = false;
  };

  int IdOf(const std::string& path) const;
  void Link(const std::string& path, bool is_folder);

  std::string root_;
  std::map<std::string, int> ids_;  // ids by current path
  std::map<int, int> open_;         // descriptor -> file or folder
  std::vector<Event> events_;
  int next_id_ = 1;
};

}  // namespace gradloom
