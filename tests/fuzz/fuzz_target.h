// What a fuzz target of this folder is made of. A target reads bytes as one of our readers would read them from a file, and returns:
// everything but a return (a signal, an exception that is not gradloom::Error, Error(kInternal), memory or time without bound) is a
// finding. The targets have libFuzzer's form, so that they run under it where there is a clang; driver.cc is what runs them without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace gradloom {

// Files of the kind that the target reads, right ones and damaged ones: where the mutations begin.
std::vector<std::string> FuzzSeeds();

// Bytes as a file that has a path but lies in memory; it is gone with the object.
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

// Ends the process with the reason on stderr: a finding.
[[noreturn]] void Finding(const std::string& what);

// Runs `read`, which may refuse what it reads with an error that says what is wrong. A bug of ours is no such error.
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
