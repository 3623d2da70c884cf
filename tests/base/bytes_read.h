// Counts the bytes that a process reads.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

namespace gradloom {

// The bytes that this process has read from files so far; -1 if the system does not report it.
inline int64_t BytesRead() {
  std::ifstream in("/proc/self/io");
  std::string name;
  int64_t bytes = -1;
  in >> name >> bytes;
  return name == "rchar:" ? bytes : -1;
}

}  // namespace gradloom
