// A new folder for one test, removed with its contents at the end.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = ::testing::TempDir() + "gradloom.XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

  // The number of entries.
  int entries() const {
    int n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path_)) ++n;
    return n;
  }

 private:
  std::string path_;
};

// Writes without syncing to disk, for tests that create thousands of damaged files.
inline void WriteWithoutSync(const std::string& path, const std::string& content) {
  // Removes the file first, because ext4 flushes a file that is truncated and rewritten.
  std::filesystem::remove(path);
  std::ofstream file(path, std::ios::binary);
  file << content;
  ASSERT_TRUE(file.flush().good());
}

// Returns the error that `run` throws. It is a test failure if it throws none.
template <typename F>
Error ErrorOf(F&& run) {
  try {
    run();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::kInternal, "no error");
}

}  // namespace gradloom
