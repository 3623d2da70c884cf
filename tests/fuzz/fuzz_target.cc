#include "tests/fuzz/fuzz_target.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace gradloom {

FileInMemory::FileInMemory(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  if (fd_ < 0) Finding("memfd_create failed");
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_, bytes.data(), bytes.size());
    if (done <= 0) Finding("the file in memory cannot be written");
    bytes.remove_prefix(static_cast<size_t>(done));
  }
  path_ = "/proc/self/fd/" + std::to_string(fd_);
}

FileInMemory::~FileInMemory() { ::close(fd_); }

void Finding(const std::string& what) {
  std::fprintf(stderr, "finding: %s\n", what.c_str());
  std::abort();
}

}  // namespace gradloom
