// The executor's part of autotuning: which device measures, what is cached, and what is reported.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"
#include "tests/cuda/emulated_runtime.h"
#include "tests/cuda/measured_net.h"

namespace gradloom {
namespace {

TEST(Autotune, IsDoneOnceForAllDevices) {
  const std::filesystem::path cache = std::filesystem::path(testing::TempDir()) / "autotune";
  std::filesystem::remove_all(cache);
  setenv("GRADLOOM_CACHE", cache.c_str(), 1);
  const MeasuredNet net;
  std::vector<std::string> notes;
  const auto run = [&](bool autotune) {
    emulated::SetBlasAlgorithms(4, 3);
    const std::unique_ptr<Executor> executor = Executor::Make(net.plan, {.ordinals = {0, 0}, .autotune = autotune});
    const TensorView loss = net.Step(*executor);
    notes = executor->TakeNotes();
    EXPECT_TRUE(executor->TakeNotes().empty());
    return std::string(static_cast<const char*>(loss.data), static_cast<size_t>(loss.bytes()));
  };
  const std::string bits = run(false);
  const int products = emulated::BlasQueries();
  EXPECT_GT(products, 0);
  EXPECT_FALSE(std::filesystem::exists(cache / "algorithms"));
  EXPECT_EQ(run(true), bits);
  // The second device uses the results of the first.
  EXPECT_EQ(2 * emulated::BlasQueries(), products);
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(run(true), bits);
  EXPECT_EQ(emulated::BlasQueries(), 0);
  const std::filesystem::path kept = std::filesystem::directory_iterator(cache / "algorithms")->path();
  std::filesystem::resize_file(kept, std::filesystem::file_size(kept) - 5);
  EXPECT_EQ(run(true), bits);
  EXPECT_EQ(2 * emulated::BlasQueries(), products);
  ASSERT_FALSE(notes.empty());
  EXPECT_NE(notes[0].find("are damaged"), std::string::npos) << notes[0];
  emulated::SetBlasAlgorithms(1, 1);
  unsetenv("GRADLOOM_CACHE");
}

}  // namespace
}  // namespace gradloom
