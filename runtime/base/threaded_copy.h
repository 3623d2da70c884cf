// Copies of large blocks within host memory, which take several threads to use the memory's bandwidth.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "runtime/base/background.h"

namespace gradloom {

// For one thread at a time.
class ThreadedCopy {
 public:
  ThreadedCopy();

  // The blocks must not overlap. The caller's thread does its part; the others are started at the first block that is worth it. If the
  // system has no threads left, the caller's copies all.
  void Copy(std::byte* to, const std::byte* from, int64_t bytes);

 private:
  struct Part {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    int64_t bytes = 0;
    Background background;  // last member: its work uses the above
  };

  std::array<Part, 3> parts_;  // besides the caller's
  int64_t threads_;            // that the cores can run at once, at most
};

}  // namespace gradloom
