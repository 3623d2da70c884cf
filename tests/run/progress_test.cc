#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "runtime/base/file.h"
#include "tests/base/temporary_folder.h"
#include "tools/screen/log.h"
#include "tools/screen/screen.h"
#include "tools/screen/stderr_lines.h"

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

TEST(ProgressTest, AnEvaluationIsALineInEveryForm) {
  const TemporaryFolder folder;
  const std::string file = folder / "lines.txt";
  const auto lines_of = [&](ProgressMode mode, bool json) {
    SetStderrLines(json, file);
    Log log;
    Progress(mode, 1, log).Evaluated(7, 1.5, {{"loss", 0.25}, {"auroc", std::nan("")}}, /*best=*/true);
    SetStderrLines(false, "");
    const std::string lines = ReadWholeFile(file);
    std::filesystem::remove(file);
    return lines;
  };
  for (const ProgressMode mode : {ProgressMode::kBar, ProgressMode::kPlain})
    EXPECT_NE(lines_of(mode, false).find(" step=7 epoch=1.50 eval_auroc=nan eval_loss=0.25 best\n"), std::string::npos);
  nlohmann::json line = nlohmann::json::parse(lines_of(ProgressMode::kJson, true));
  EXPECT_EQ(line.erase("t"), 1u);
  EXPECT_EQ(line, nlohmann::json({{"step", 7}, {"epoch", 1.5}, {"split", "eval"}, {"loss", 0.25}, {"auroc", nullptr}}));
  EXPECT_EQ(lines_of(ProgressMode::kNone, false), "");
}

}  // namespace
}  // namespace gradloom
