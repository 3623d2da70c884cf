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
#include "runtime/base/host_memory.h"
#include "runtime/data/column_major.h"

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

void SpillBuffer::Reserve(int64_t bytes) {
  if (!spilled() && !stays_ && bytes > memory_bytes_) Open(bytes);
  if (!spilled()) GrowTo(bytes);
}

void SpillBuffer::Append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  const int64_t wanted = static_cast<int64_t>(memory_.size()) + bytes, room = static_cast<int64_t>(memory_.capacity());
  if (!spilled() && wanted > room) {
    // With less to spare where memory is scarce.
    int64_t spare = room / 2;
    while (room + spare > wanted && !HasHostMemory(room + spare)) spare /= 2;
    GrowTo(std::max(wanted, room + spare));
  }
  memory_.insert(memory_.end(), from, from + bytes);
  if (!spilled() && !stays_ && this->bytes() > memory_bytes_) Open(0);
  if (spilled() && memory_.size() >= kPieceBytes) Write();
}

// Its bytes are copied when it grows, so until then it takes the memory of both sizes.
void SpillBuffer::GrowTo(int64_t bytes) {
  RequireHostMemory(bytes, "a copy of the data in memory", where_,
                    "set TMPDIR to a folder on a disk that has room for it, with 1 GiB to spare, or use fewer samples");
  memory_.reserve(static_cast<size_t>(bytes));
}

// `bytes`: that the file will have; 0: not known.
void SpillBuffer::Open(int64_t bytes) {
  const char* named = std::getenv("TMPDIR");
  folder_ = named != nullptr && *named != '\0' ? named : "/tmp";
  Descriptor file(AboveStandardStreams(OpenUnnamed(folder_)));
  stays_ = file.get() < 0 || IsMemory(file.get()) || !HasFreeSpace(file.get(), static_cast<size_t>(bytes));
  if (!stays_) file_ = std::move(file);
}

void SpillBuffer::Write() {
  bool fits = HasFreeSpace(file_.get(), memory_.size());
  try {
    if (fits) WriteFully(file_.get(), memory_.data(), static_cast<int64_t>(memory_.size()), folder_);
  } catch (const Error&) {
    fits = false;
  }
  if (!fits) return ReturnToMemory();
  written_ += static_cast<int64_t>(memory_.size());
  memory_.clear();
  // Releases memory that was used before there was a file.
  if (memory_.capacity() > 2 * kPieceBytes) memory_.shrink_to_fit();
}

void SpillBuffer::ReturnToMemory() {
  std::vector<std::byte> last = std::move(memory_);
  memory_ = {};
  GrowTo(written_ + std::ssize(last));
  memory_.resize(static_cast<size_t>(written_));
  ReadFully(file_.get(), 0, reinterpret_cast<char*>(memory_.data()), written_, folder_);
  memory_.insert(memory_.end(), last.begin(), last.end());
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

std::function<void(int64_t, void*, int64_t)> Spilled(const std::function<void(void*, int64_t)>& read, int64_t bytes,
                                                     const std::string& where) {
  const auto buffer = std::make_shared<SpillBuffer>(0, where);
  buffer->Reserve(bytes);
  std::vector<std::byte> piece(static_cast<size_t>(std::min(bytes, int64_t{1} << 20)));
  for (int64_t left = bytes; left > 0; left -= static_cast<int64_t>(piece.size())) {
    piece.resize(static_cast<size_t>(std::min(left, static_cast<int64_t>(piece.size()))));
    read(piece.data(), static_cast<int64_t>(piece.size()));
    buffer->Append(piece.data(), static_cast<int64_t>(piece.size()));
  }
  return [buffer](int64_t offset, void* out, int64_t count) { buffer->ReadAt(offset, out, count); };
}

StoredArray SpilledRowMajor(const StoredArray& array, const std::string& where) {
  const auto buffer = std::make_shared<SpillBuffer>(0, where);
  buffer->Reserve(array.shape.elements() * DTypeBytes(array.dtype));
  // Larger blocks read the array fewer times.
  const int64_t block = std::clamp(FreeHostBytes() / 8, int64_t{16} << 20, int64_t{1} << 30);
  const int64_t row = array.shape.elements() / std::max<int64_t>(array.shape[0], 1) * DTypeBytes(array.dtype);
  RequireHostMemory(std::max(block, row), "a block of rows of an array in Fortran order", where,
                    "write it with numpy.ascontiguousarray(array)");
  ReadRowMajor(array, block, [&](const void* data, int64_t bytes) { buffer->Append(data, bytes); });
  return {array.dtype, array.big_endian, array.shape,
          [buffer](int64_t offset, void* out, int64_t bytes) { buffer->ReadAt(offset, out, bytes); }};
}

}  // namespace gradloom
