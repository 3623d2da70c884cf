// Shared parts of the fuzz targets in this folder. A target reads bytes as one of Gradloom's readers would read them from a file, and
// returns. Anything else (a signal, an exception other than gradloom::Error, Error(kInternal), unbounded memory or time) is a finding.
// Targets have libFuzzer's interface and run under it with clang; driver.cc runs them without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gradloom {

// Files of the kind that the target reads, valid and damaged, from which the mutations start.
std::vector<std::string> FuzzSeeds();

// Bytes as an in-memory file with a path. The file exists as long as the object.
class FileInMemory {
 public:
  explicit FileInMemory(std::string_view bytes);
  ~FileInMemory();
  FileInMemory(const FileInMemory&) = delete;
  FileInMemory& operator=(const FileInMemory&) = delete;
  const std::string& path() const { return path_; }

 private:
  int fd_ = -1;
  std::string path_;
};

// Reports a finding: ends the process with the reason on stderr.
[[noreturn]] void Finding(const std::string& what);

// Runs `read`, which may reject its input with an error. An internal error is a finding.
template <typename F>
void MayRefuse(F&& read) {
  try {
    read();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) Finding("E-INTERNAL: " + error.message());
    if (error.message().empty()) Finding("an error without a message");
  }
}

}  // namespace gradloom
