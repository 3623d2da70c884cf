// Files for the readers and writers of data, checkpoints and results. They are read whole or by range, never mapped (a file that shrinks
// while mapped kills the process), and replaced in one step or not at all.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file_calls.h"

namespace gradloom {

// Files larger than this are refused unless the caller allows more.
inline constexpr int64_t kFileLimitBytes = int64_t{2} << 30;

// A regular file open for reading. Only one thread at a time may call Read; any number may call ReadAt.
class InputFile {
 public:
  // Throws Error(kIo) if the file is absent, unreadable, or not a regular file (a FIFO would block), and Error(kLimit) if it has more than
  // `limit_bytes`.
  explicit InputFile(std::string path, int64_t limit_bytes = kFileLimitBytes);

  // The same for a descriptor that is open already, which it takes. `path`: the one that errors show.
  InputFile(int fd, std::string path, int64_t limit_bytes);

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

  // The size when it was opened.
  int64_t bytes() const { return bytes_; }

  // Reads exactly `bytes` bytes from `offset`. Throws Error(kIo), also if the file ends before that.
  void ReadAt(int64_t offset, void* out, int64_t bytes) const;

  // Reads the next bytes, at most `bytes`; returns their number, 0 at the end. Throws Error(kIo).
  int64_t Read(void* out, int64_t bytes);

 private:
  InputFile(int fd, std::string path);
  void Check(int64_t limit_bytes);

  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

// The bytes of a whole file. Throws like InputFile.
std::string ReadWholeFile(const std::string& path, int64_t limit_bytes = kFileLimitBytes);

// A new file open for writing. Every failure throws WriteError. If it is destroyed before Finish, the file stays as far as it was written;
// its creator must remove it.
class OutputFile {
 public:
  // The file must not exist yet (O_EXCL). It gets mode 0666 less the process's umask. `name`: the path that errors show; empty: the file's
  // own.
  explicit OutputFile(std::string path, FileCalls& calls = FileCalls::System(), std::string name = {});
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  const std::string& path() const { return path_; }

  void Write(const void* data, int64_t bytes);
  void Write(std::string_view text) { Write(text.data(), static_cast<int64_t>(text.size())); }

  // Where the next Write goes, in bytes from the start.
  void Seek(int64_t offset);

  // At most once, after the last Write: syncs the bytes to disk and closes the file.
  void Finish();

 private:
  std::string path_, name_;
  FileCalls& calls_;
  int fd_ = -1;
};

// A file that appears under its name complete or not at all. It is written beside it under a temporary name, synced and renamed, and its
// folder is synced. Without a Commit, the destructor removes the temporary file. Every failure throws WriteError.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path, FileCalls& calls = FileCalls::System());
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Write(const void* data, int64_t bytes) { file_->Write(data, bytes); }
  void Write(std::string_view text) { file_->Write(text); }

  // Where the next Write goes, in bytes from the start.
  void Seek(int64_t offset) { file_->Seek(offset); }

  // At most once, after the last Write: syncs the bytes to disk, so that Commit only renames. For files that belong together.
  void Finish();

  // At most once, after the last Write, or after Finish. The file has mode 0666 less the process's umask.
  void Commit();

 private:
  std::string path_;
  FileCalls& calls_;
  std::optional<OutputFile> file_;  // under the temporary name
  bool finished_ = false, committed_ = false;
};

// Writes an AtomicFile with this content.
void WriteFileAtomically(const std::string& path, std::string_view content, FileCalls& calls = FileCalls::System());

// Writes all bytes to `fd`, despite interruptions and short writes. `path` is for the message of Error(kResource).
void WriteFully(int fd, const void* data, int64_t bytes, const std::string& path, FileCalls& calls = FileCalls::System());

// Syncs a folder, so that its new, renamed and removed entries survive a crash.
void SyncFolder(const std::string& folder, FileCalls& calls = FileCalls::System());

// Error(kResource) for a call that failed with `error` (an errno) while `path` was being written: `what` failed, with the system's reason,
// a remedy and, for a full disk, the free bytes.
Error WriteError(const std::string& what, const std::string& path, int error);

// The folder of a path: "a" of "a/b", "." of "b", "/" of "/b".
std::string FolderOf(const std::string& path);

}  // namespace gradloom
