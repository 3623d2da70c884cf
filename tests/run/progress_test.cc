#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "runtime/base/file.h"
#include "tests/base/temporary_folder.h"
#include "tools/screen/log.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

TEST(ProgressTest, TheTimeOfAResumedRunIsThatOfItsOwnSteps) {
  const TemporaryFolder folder;
  {
    Log log;
    log.AttachFile(folder / "log.txt");
    Progress progress(ProgressMode::kNone, 1, log);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    progress.Update({.step = 1001, .total_steps = 2001});
  }
  const std::string line = ReadWholeFile(folder / "log.txt");
  const size_t at = line.find("eta_s=");
  ASSERT_NE(at, std::string::npos) << line;
  // A thousand steps are left, and one took at least 200 ms.
  EXPECT_GE(std::stod(line.substr(at + 6)), 200) << line;
}

}  // namespace
}  // namespace gradloom
