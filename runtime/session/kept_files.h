// How many files a process may keep open, where data lie in many of which each stays open.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

// Counts what the first of several files keeps open, and tells before the others are read whether there is room for as much of each.
class KeptFiles {
 public:
  KeptFiles();

  // Raises what this process takes of its limit to so many files like the first, `path`. Throws Error(kResource) where the limit is lower.
  void CheckAfterFirst(const std::string& path, int64_t files) const;

 private:
  int64_t before_;
};

}  // namespace gradloom
