#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/descriptor.h"
#include "runtime/base/error.h"
#include "runtime/base/nearest.h"
#include "runtime/base/shortage.h"

namespace gradloom {
namespace {

// Large transfers are split: Linux moves at most 2^31 - 4096 bytes per call.
constexpr int64_t kPieceBytes = int64_t{1} << 30;

// The number of names in a folder that are compared with a misspelt one.
constexpr size_t kMaxNames = 10000;

// strerror_r without its two incompatible signatures.
std::string Reason(int error) { return std::generic_category().message(error); }

// "did you mean 'model.onnx'?" with the nearest name in the folder of a missing file; "" if none is near.
std::string NearFile(const std::string& path) {
  const std::filesystem::path missing(path);
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator it(missing.has_parent_path() ? missing.parent_path() : ".", error);
  for (; !error && it != std::filesystem::directory_iterator() && names.size() < kMaxNames; it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string near = Nearest(missing.filename().string(), names);
  return near.empty() ? "" : "did you mean '" + Escaped((missing.parent_path() / near).string(), 4096) + "'?";
}

std::string HelpForMissing(const std::string& path) {
  const std::string near = NearFile(path);
  return near.empty() ? "check the path; relative paths start at the current folder" : near;
}

[[noreturn]] void FailRead(const std::string& what, const std::string& path, int error) {
  const std::string help = error == ENOENT         ? HelpForMissing(path)
                           : error == EACCES       ? "check the file's permissions"
                           : IsShortage(error)     ? "check the process's limits with ulimit -a"
                           : error == ENAMETOOLONG ? "check the path: a name has at most 255 bytes"
                                                   : "";
  throw Error(IsShortage(error) ? ErrorCode::kResource : ErrorCode::kIo, what + ": " + Reason(error), Escaped(path, 4096), help);
}

int OpenForReading(const std::string& path) {
  if (path.find('\0') != std::string::npos) FailRead("cannot open the file", path, EINVAL);
  // O_NONBLOCK: opening a FIFO without a writer must not hang. It has no effect on regular files.
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) FailRead("cannot open the file", path, errno);
  return fd;
}

// fsync, despite interruptions: a network file system may end it for a signal that the program handles.
bool Synced(int fd, FileCalls& calls) {
  while (calls.Sync(fd) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

}  // namespace

InputFile::InputFile(int fd, std::string path) : path_(std::move(path)), fd_(fd) {}

// The constructors below delegate, so the destructor closes the file if Check throws.
InputFile::InputFile(std::string path, int64_t limit_bytes) : InputFile(OpenForReading(path), path) { Check(limit_bytes); }

InputFile::InputFile(int fd, std::string path, int64_t limit_bytes) : InputFile(fd, std::move(path)) { Check(limit_bytes); }

InputFile::InputFile(InputFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

InputFile::~InputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void InputFile::Check(int64_t limit_bytes) {
  struct stat status;
  if (::fstat(fd_, &status) != 0) FailRead("cannot read the file", path_, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(
        ErrorCode::kIo, S_ISDIR(status.st_mode) ? "this is a folder, not a file" : "not a regular file", Escaped(path_, 4096),
        S_ISFIFO(status.st_mode) ? "a pipe cannot be read more than once; write its output to a file first" : "name the file itself");
  }
  bytes_ = status.st_size;
  if (bytes_ > limit_bytes) {
    throw Error(ErrorCode::kLimit,
                "the file has " + std::to_string(bytes_) + " bytes, more than the limit of " + std::to_string(limit_bytes),
                Escaped(path_, 4096), "use a smaller file, or split it");
  }
}

void InputFile::ReadAt(int64_t offset, void* out, int64_t bytes) const {
  GRADLOOM_CHECK(offset >= 0 && bytes >= 0);
  char* to = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd_, to, static_cast<size_t>(std::min(bytes, kPieceBytes)), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) FailRead("cannot read the file", path_, errno);
    if (got == 0) throw Error(ErrorCode::kIo, "unexpected end of file at byte " + std::to_string(offset), Escaped(path_, 4096));
    to += got, offset += got, bytes -= got;
  }
}

int64_t InputFile::Read(void* out, int64_t bytes) {
  while (true) {
    const ssize_t got = ::read(fd_, out, static_cast<size_t>(std::min(bytes, kPieceBytes)));
    if (got >= 0) return got;
    if (errno != EINTR) FailRead("cannot read the file", path_, errno);
  }
}

std::string ReadWholeFile(const std::string& path, int64_t limit_bytes) {
  const InputFile file(path, limit_bytes);
  std::string content(static_cast<size_t>(file.bytes()), '\0');
  file.ReadAt(0, content.data(), file.bytes());
  return content;
}

OutputFile::OutputFile(std::string path, FileCalls& calls, std::string name)
    : path_(std::move(path)), name_(name.empty() ? path_ : std::move(name)), calls_(calls) {
  if (path_.empty() || path_.find('\0') != std::string::npos) throw WriteError("cannot write the file", name_, EINVAL);
  do {
    fd_ = calls_.Open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (fd_ < 0 && errno == EINTR);
  const bool made = fd_ >= 0;
  fd_ = AboveStandardStreams(fd_);
  if (fd_ < 0) {
    const int error = errno;
    if (made) calls_.Unlink(path_.c_str());
    throw WriteError("cannot write the file", name_, error);
  }
  // The lock tells a process that finds the file under its temporary name, on whatever host, that its writer is alive. Without support for
  // locks it has no effect.
  static_cast<void>(::flock(fd_, LOCK_EX | LOCK_NB));
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) calls_.Close(fd_);
}

void OutputFile::Write(const void* data, int64_t bytes) { WriteFully(fd_, data, bytes, name_, calls_); }

void OutputFile::Seek(int64_t offset) {
  if (::lseek(fd_, offset, SEEK_SET) != offset) throw WriteError("cannot write the file", name_, errno);
}

void OutputFile::Finish() {
  GRADLOOM_CHECK(fd_ >= 0);
  if (!Synced(fd_, calls_)) throw WriteError("cannot write the file", name_, errno);
  // Network file systems may report a full disk only here. An interruption loses nothing: the bytes are synced, and the descriptor is
  // closed.
  if (calls_.Close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw WriteError("cannot write the file", name_, errno);
}

namespace {

// A file that nobody has locked or changed for this long was left by a dead process.
constexpr time_t kStaleSeconds = 3600;

// Whether a temporary name can be used. A file of this name is removed if it was left by a dead process that had the id of this one. It may
// also belong to a live process: of another host, or of another container, where ids are the same more often than not. Such a process has
// locked it, except just after it has made it and just before it renames it.
bool IsFree(const std::string& temporary, FileCalls& calls) {
  const int fd = ::open(temporary.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return ::access(temporary.c_str(), F_OK) != 0;
  struct stat status;
  const bool stale = ::fstat(fd, &status) == 0 && status.st_mtime + kStaleSeconds < ::time(nullptr) && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  ::close(fd);
  return stale && calls.Unlink(temporary.c_str()) == 0;
}

}  // namespace

AtomicFile::AtomicFile(std::string path, FileCalls& calls) : path_(std::move(path)), calls_(calls) {
  if (path_.empty() || path_.find('\0') != std::string::npos) throw WriteError("cannot write the file", path_, EINVAL);
  struct stat status;
  if (::stat(path_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kResource, "cannot write the file: the path exists and is not a regular file", Escaped(path_, 4096));
  }
  // The counter distinguishes writers in one process, the process id distinguishes processes.
  static std::atomic<uint64_t> count{0};
  for (const std::string beginning = path_ + ".tmp." + std::to_string(::getpid()) + ".";;) {
    const std::string temporary = beginning + std::to_string(count++);
    if (!IsFree(temporary, calls_)) continue;
    try {
      file_.emplace(temporary, calls_, path_);
      return;
    } catch (const Error&) {
      // Somebody else has made it since.
      if (::access(temporary.c_str(), F_OK) != 0) throw;
    }
  }
}

AtomicFile::~AtomicFile() {
  if (!committed_) calls_.Unlink(file_->path().c_str());
}

void AtomicFile::Finish() {
  GRADLOOM_CHECK(!finished_);
  file_->Finish();
  finished_ = true;
}

void AtomicFile::Commit() {
  GRADLOOM_CHECK(!committed_);
  if (!finished_) Finish();
  if (calls_.Rename(file_->path().c_str(), path_.c_str()) != 0) throw WriteError("cannot write the file", path_, errno);
  committed_ = true;
  SyncFolder(FolderOf(path_), calls_);
}

void WriteFileAtomically(const std::string& path, std::string_view content, FileCalls& calls) {
  AtomicFile file(path, calls);
  file.Write(content);
  file.Commit();
}

void WriteFully(int fd, const void* data, int64_t bytes, const std::string& path, FileCalls& calls) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t put = calls.Write(fd, from, static_cast<size_t>(std::min(bytes, kPieceBytes)));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      const int error = errno;
      throw WriteError("cannot write " + std::to_string(bytes) + " bytes", path, error);
    }
    from += put, bytes -= put;
  }
}

void SyncFolder(const std::string& folder, FileCalls& calls) {
  int fd = -1;
  do {
    fd = calls.Open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) throw WriteError("cannot sync the folder", folder, errno);
  const int error = Synced(fd, calls) ? 0 : errno;
  calls.Close(fd);
  // File systems that cannot sync folders say so in various ways. There is nothing to wait for.
  constexpr int kUnsupported[] = {0, EINVAL, EBADF, ENOSYS, EOPNOTSUPP};
  if (std::find(std::begin(kUnsupported), std::end(kUnsupported), error) == std::end(kUnsupported))
    throw WriteError("cannot sync the folder", folder, error);
}

Error WriteError(const std::string& what, const std::string& path, int error) {
  std::string message = what + ": " + Reason(error), help;
  if (error == ENOSPC || error == EDQUOT) {
    struct statvfs space;
    if (::statvfs(FolderOf(path).c_str(), &space) == 0) {
      message += " (" + std::to_string(static_cast<uint64_t>(space.f_bavail) * space.f_frsize) + " bytes free)";
    }
    help = "free some space, or write to another disk";
  } else if (IsShortage(error)) {
    help = "check the process's limits with ulimit -a";
  } else if (error == ENAMETOOLONG) {
    help = "use a shorter name: a file is first written under its name and up to 24 bytes more";
  } else if (error == EFBIG) {
    help = "the file system or 'ulimit -f' limits the size of files";
  } else if (error == ENOENT || error == ENOTDIR) {
    help = "create the folder first, or choose another one";
  } else if (error == EACCES || error == EROFS || error == EPERM) {
    help = "choose a writable folder";
  }
  return Error(ErrorCode::kResource, message, Escaped(path, 4096), help);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace gradloom
