// A fixture for tests of training data in files that they write.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "tests/base/temporary_folder.h"

namespace gradloom {

// Two numbers and a class per row.
inline const std::vector<Feed> kFeeds = {{"x", DType::kFloat32, {4, 2}, 0}, {"y", DType::kInt64, {4}, 0}};

class WrittenFilesTest : public ::testing::Test {
 protected:
  // Returns the path.
  std::string Write(const std::string& name, const std::string& text) {
    WriteWithoutSync(folder_ / name, text);
    return folder_ / name;
  }

  TemporaryFolder folder_;
};

}  // namespace gradloom
