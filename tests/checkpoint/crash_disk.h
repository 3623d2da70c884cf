// A model of what a disk may hold after the power fails: what was synced, and of the rest any part that file
// systems with a journal leave.
#pragma once

#include <fcntl.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/file_calls.h"

namespace gradloom {

// Makes the calls and keeps a record of them. Crash() then builds the folder as it may be if the power had
// failed after any number of them.
//
//   - A file's bytes survive if they were synced; else all of them, some, or none.
//   - The entries of a folder survive up to its last sync; of the changes since, the first few or all, in
//     their order.
class CrashDisk : public FileCalls {
 public:
  // `root`: the folder that everything happens in; it is there and empty.
  explicit CrashDisk(std::string root) : root_(std::move(root)) { ids_[root_] = 0; }

  size_t calls() const { return events_.size(); }

  int Open(const char* path, int flags, mode_t mode) override;
  ssize_t Write(int fd, const void* data, size_t bytes) override;
  int Sync(int fd) override;
  int Rename(const char* from, const char* to) override;
  int Unlink(const char* path) override;
  int MakeFolder(const char* path, mode_t mode) override;
  int RemoveFolder(const char* path) override;

  // Builds in `to` (not there yet) what may be left after the first `calls` of them.
  void Crash(size_t calls, std::mt19937& random, const std::string& to) const;

 private:
  enum class Kind { kLink, kRemove, kRename, kWrite, kSync };
  struct Event {
    Kind kind;
    int node = -1;    // the file or folder
    int folder = -1;  // that the names are entries of
    std::string name, to, data;
    bool is_folder = false;
  };

  int IdOf(const std::string& path) const;
  void Link(const std::string& path, bool is_folder);

  std::string root_;
  std::map<std::string, int> ids_;  // of paths as they are now
  std::map<int, int> open_;         // descriptor -> file or folder
  std::vector<Event> events_;
  int next_id_ = 1;
};

}  // namespace gradloom
