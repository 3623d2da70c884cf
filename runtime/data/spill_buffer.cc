#include "runtime/data/spill_buffer.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

constexpr size_t kPieceBytes = size_t{4} << 20;

// Free disk space that is left to others, including checkpoints of this run.
constexpr uint64_t kMinFreeBytes = uint64_t{1} << 30;

bool IsMemory(int fd) {
  struct statfs system = {};
  return ::fstatfs(fd, &system) != 0 || system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC;
}

bool HasFreeSpace(int fd, size_t bytes) {
  struct statvfs disk = {};
  return ::fstatvfs(fd, &disk) == 0 && uint64_t{disk.f_bavail} * disk.f_frsize >= kMinFreeBytes + bytes;
}

void ReadFully(int fd, int64_t offset, char* to, int64_t bytes, const std::string& folder) {
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, to, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error(ErrorCode::kIo,
                  std::string("cannot read the unpacked data back: ") + (got < 0 ? std::strerror(errno) : "the file is too short"),
                  "an unnamed file in " + Escaped(folder, 4096), "set TMPDIR to a folder on another disk");
    }
    to += got, offset += got, bytes -= got;
  }
}

// A file without a name, or -1 and errno.
int OpenUnnamed(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // EISDIR: a kernel before 3.11. NFS, FUSE and overlays of older kernels, the disk of most containers, have no such files.
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string name = folder + "/gradloom_XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace

void SpillBuffer::Append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  memory_.insert(memory_.end(), from, from + bytes);
  if (!spilled() && !stays_ && this->bytes() > memory_bytes_) Open();
  if (spilled() && memory_.size() >= kPieceBytes) Write();
}

void SpillBuffer::Open() {
  const char* named = std::getenv("TMPDIR");
  folder_ = named != nullptr && *named != '\0' ? named : "/tmp";
  Descriptor file(AboveStandardStreams(OpenUnnamed(folder_)));
  stays_ = file.get() < 0 || IsMemory(file.get());
  if (!stays_) file_ = std::move(file);
}

void SpillBuffer::Write() {
  try {
    if (!HasFreeSpace(file_.get(), memory_.size())) return ReturnToMemory();
    WriteFully(file_.get(), memory_.data(), static_cast<int64_t>(memory_.size()), folder_);
  } catch (const Error&) {
    return ReturnToMemory();
  }
  written_ += static_cast<int64_t>(memory_.size());
  memory_.clear();
  // Releases memory that was used before there was a file.
  if (memory_.capacity() > 2 * kPieceBytes) memory_.shrink_to_fit();
}

void SpillBuffer::ReturnToMemory() {
  std::vector<std::byte> all(static_cast<size_t>(bytes()));
  ReadFully(file_.get(), 0, reinterpret_cast<char*>(all.data()), written_, folder_);
  std::copy(memory_.begin(), memory_.end(), all.begin() + written_);
  memory_ = std::move(all);
  written_ = 0;
  stays_ = true;
  file_ = Descriptor();
}

void SpillBuffer::ReadAt(int64_t offset, void* out, int64_t bytes) const {
  GRADLOOM_CHECK(offset >= 0 && bytes >= 0 && offset <= this->bytes() - bytes);
  char* to = static_cast<char*>(out);
  const int64_t from_file = std::clamp<int64_t>(written_ - offset, 0, bytes);
  ReadFully(file_.get(), offset, to, from_file, folder_);
  if (bytes > from_file)
    std::memcpy(to + from_file, memory_.data() + (offset + from_file - written_), static_cast<size_t>(bytes - from_file));
}

std::function<void(int64_t, void*, int64_t)> Spilled(const std::function<void(void*, int64_t)>& read, int64_t bytes) {
  const auto buffer = std::make_shared<SpillBuffer>(0);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(bytes, int64_t{1} << 20)));
  for (int64_t left = bytes; left > 0; left -= static_cast<int64_t>(piece.size())) {
    piece.resize(static_cast<size_t>(std::min(left, static_cast<int64_t>(piece.size()))));
    read(piece.data(), static_cast<int64_t>(piece.size()));
    buffer->Append(piece.data(), static_cast<int64_t>(piece.size()));
  }
  return [buffer](int64_t offset, void* out, int64_t count) { buffer->ReadAt(offset, out, count); };
}

}  // namespace gradloom
