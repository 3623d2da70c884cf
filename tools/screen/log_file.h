// Log files that a process appends to.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

#include "runtime/base/descriptor.h"

namespace gradloom {

// A file, or a FIFO whose reader may be slow, stop or end: nothing here waits for it.
class LogFile {
 public:
  // Opens it for appending, and creates it if necessary. For a FIFO, the process ignores SIGPIPE from now on. Throws Error(kResource) for a
  // FIFO without a reader, and for any other file that cannot be opened.
  explicit LogFile(const std::string& path);

  // Appends a line, without its line break. Returns false if it is dropped because the file takes nothing now. The rest of a line of which
  // a part was taken comes before the next one.
  bool Append(const std::string& line);

 private:
  // Returns how many bytes were taken.
  size_t Write(std::string_view text) const;

  Descriptor fd_;
  std::string rest_;
};

// Opens a file of a run for appending, and creates it if necessary; the caller closes it. Does not block: throws Error(kResource) for a
// FIFO without a reader, and for any other file that cannot be opened.
std::FILE* OpenLogFile(const std::string& path);

}  // namespace gradloom
