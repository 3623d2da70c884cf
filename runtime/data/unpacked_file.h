// Reads a file that may be gzipped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/file.h"
#include "runtime/data/data_limits.h"

namespace gradloom {

// The name of a packed file without the ending of gzip, and any other name as it is.
inline std::string_view WithoutGz(std::string_view name) { return name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name; }

// A file as a stream of bytes, unpacked if it starts like gzip (whatever its name), including several members one after another. For one
// thread.
class UnpackedFile {
 public:
  // Throws like InputFile. `limit_bytes`: of the file; what a packed one may unpack to is UnpackedLimit.
  explicit UnpackedFile(const std::string& path, int64_t limit_bytes = kDataLimitBytes);
  ~UnpackedFile();

  const std::string& path() const { return file_.path(); }

  bool packed() const { return inflater_ != nullptr; }

  // Bytes on disk, packed or not.
  int64_t file_bytes() const { return file_.bytes(); }

  // The most bytes that Read returns in all.
  int64_t limit_bytes() const { return limit_bytes_; }

  // Reads the next bytes, at most `bytes`; fewer only at the end. Throws Error(kData) for damaged or incomplete gzip data, Error(kLimit)
  // beyond the limit.
  int64_t Read(void* out, int64_t bytes);

 private:
  struct Inflater;
  int64_t ReadPacked(char* out, int64_t bytes);

  InputFile file_;
  int64_t limit_bytes_;
  int64_t unpacked_bytes_ = 0;
  std::unique_ptr<Inflater> inflater_;  // null if the file is not packed
};

}  // namespace gradloom
