#include "tests/checkpoint/crash_disk.h"

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

std::string BaseOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

int CrashDisk::IdOf(const std::string& path) const {
  const auto found = ids_.find(path);
  GRADLOOM_CHECK(found != ids_.end());
  return found->second;
}

void CrashDisk::Link(const std::string& path, bool is_folder) {
  ids_[path] = next_id_;
  events_.push_back(
      {.kind = Kind::kLink, .node = next_id_++, .folder = IdOf(FolderOf(path)), .name = BaseOf(path), .is_folder = is_folder});
}

int CrashDisk::Open(const char* path, int flags, mode_t mode) {
  const int fd = FileCalls::Open(path, flags, mode);
  if (fd < 0) return fd;
  if ((flags & O_CREAT) != 0) Link(path, false);
  open_[fd] = IdOf(path);
  return fd;
}

ssize_t CrashDisk::Write(int fd, const void* data, size_t bytes) {
  events_.push_back({.kind = Kind::kWrite, .node = open_.at(fd), .data = std::string(static_cast<const char*>(data), bytes)});
  return FileCalls::Write(fd, data, bytes);
}

int CrashDisk::Sync(int fd) {
  events_.push_back({.kind = Kind::kSync, .node = open_.at(fd)});
  return FileCalls::Sync(fd);
}

int CrashDisk::Rename(const char* from, const char* to) {
  events_.push_back({.kind = Kind::kRename, .folder = IdOf(FolderOf(to)), .name = BaseOf(from), .to = BaseOf(to)});
  GRADLOOM_CHECK(FolderOf(from) == FolderOf(to));
  std::map<std::string, int> moved;
  const std::string below = std::string(from) + "/";
  for (const auto& [path, id] : ids_) {
    moved[path == from ? to : path.starts_with(below) ? to + path.substr(below.size() - 1) : path] = id;
  }
  moved[to] = IdOf(from);
  ids_ = std::move(moved);
  return FileCalls::Rename(from, to);
}

int CrashDisk::Unlink(const char* path) {
  events_.push_back({.kind = Kind::kRemove, .folder = IdOf(FolderOf(path)), .name = BaseOf(path)});
  return FileCalls::Unlink(path);
}

int CrashDisk::MakeFolder(const char* path, mode_t mode) {
  const int result = FileCalls::MakeFolder(path, mode);
  if (result == 0) Link(path, true);
  return result;
}

int CrashDisk::RemoveFolder(const char* path) {
  events_.push_back({.kind = Kind::kRemove, .folder = IdOf(FolderOf(path)), .name = BaseOf(path)});
  return FileCalls::RemoveFolder(path);
}

void CrashDisk::Crash(size_t calls, std::mt19937& random, const std::string& to) const {
  struct Node {
    bool is_folder = true;
    std::vector<const Event*> changes;  // of a folder's entries, in order
    size_t safe = 0;                    // how many of the changes have been synced
    std::string content, synced;        // of a file
  };
  std::map<int, Node> nodes;
  nodes[0];
  for (size_t i = 0; i < calls; ++i) {
    const Event& event = events_[i];
    switch (event.kind) {
      case Kind::kLink: nodes[event.node].is_folder = event.is_folder; [[fallthrough]];
      case Kind::kRemove:
      case Kind::kRename: nodes[event.folder].changes.push_back(&event); break;
      case Kind::kWrite: nodes[event.node].content += event.data; break;
      case Kind::kSync: nodes[event.node].safe = nodes[event.node].changes.size(); nodes[event.node].synced = nodes[event.node].content;
    }
  }
  const auto build = [&](const auto& self, int id, const std::string& path) -> void {
    const Node& node = nodes[id];
    if (!node.is_folder) {
      std::string left = node.synced;
      if (random() % 2 == 0 && node.content.size() > left.size()) {
        left = node.content.substr(0, left.size() + random() % (node.content.size() - left.size() + 1));
        // Some file systems extend a file before they write the data.
        if (random() % 2 == 0) left.resize(node.content.size());
      }
      std::ofstream(path, std::ios::binary) << left;
      return;
    }
    std::filesystem::create_directory(path);
    const size_t last = node.safe + random() % (node.changes.size() - node.safe + 1);
    std::map<std::string, int> entries;
    for (size_t i = 0; i < last; ++i) {
      const Event& change = *node.changes[i];
      if (change.kind == Kind::kLink) entries[change.name] = change.node;
      if (change.kind == Kind::kRename) entries[change.to] = entries.at(change.name);
      if (change.kind != Kind::kLink) entries.erase(change.name);
    }
    for (const auto& [name, entry] : entries) self(self, entry, path + "/" + name);
  };
  build(build, 0, to);
}

}  // namespace gradloom
