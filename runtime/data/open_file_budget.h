// Checks the limit of open files, for data in many files that stay open.
#pragma once

#include <cstdint>
#include <string>

namespace gradloom {

// Counts the descriptors that the first of several files keeps open, and checks, before the others are read, whether there are enough for
// all.
class OpenFileBudget {
 public:
  OpenFileBudget();

  // Raises this process's limit of open files as needed for `files` files like the first, `path`. Throws Error(kResource) if the limit
  // cannot be high enough.
  void CheckAllFit(const std::string& path, int64_t files) const;

 private:
  int64_t before_;
};

}  // namespace gradloom
