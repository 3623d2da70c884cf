// How often a thread has slept: what random delays leave behind.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace gradloom {

// How often the calling thread has given up its core until something happened.
inline int64_t ThreadSleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

}  // namespace gradloom
