// Keys of the configuration reach what they are for, from a file and from their flags.
#include <gtest/gtest.h>

#include <string>

#include "tests/base/temporary_folder.h"
#include "tools/config/keys.h"
#include "tools/run/options/model_options.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/train/job.h"

namespace gradloom {
namespace {

Configuration OfFile(const std::string& text) {
  const TemporaryFolder folder;
  WriteWithoutSync(folder / "g.toml", text);
  Configuration configuration;
  configuration.ReadFile(folder / "g.toml");
  return configuration;
}

void SetFlag(Configuration& configuration, const char* flag, const char* value) {
  ASSERT_NE(FindFlag(flag), nullptr) << flag;
  configuration.SetFlag(*FindFlag(flag), {value});
}

TEST(Options, PinnedMemory) {
  EXPECT_TRUE(ExecutorOptionsOf(Configuration()).pin_memory);
  Configuration configuration = OfFile("[devices]\nuse = \"cpu\"\npin_memory = \"off\"\n");
  EXPECT_FALSE(ExecutorOptionsOf(configuration).pin_memory);
  SetFlag(configuration, "--pin-memory", "on");
  EXPECT_TRUE(ExecutorOptionsOf(configuration).pin_memory);
  SetFlag(configuration, "--pin-memory", "off");
  EXPECT_FALSE(ExecutorOptionsOf(configuration).pin_memory);
}

TEST(Options, BoundOfLoops) {
  EXPECT_EQ(ImportOptionsOf(Configuration()).loop_bound, 256);
  Configuration configuration = OfFile("[model]\nloop_bound = 3\n");
  EXPECT_EQ(ImportOptionsOf(configuration).loop_bound, 3);
  SetFlag(configuration, "--loop-bound", "12");
  EXPECT_EQ(ImportOptionsOf(configuration).loop_bound, 12);
}

TEST(Options, PortOfTheMaster) {
  const std::string job = "[job]\nrank = 1\nworld_size = 2\nmaster_addr = \"10.0.0.1\"\n";
  EXPECT_EQ(TopologyOf(OfFile(job)).master_port, 29500);
  Configuration configuration = OfFile(job + "master_port = 29501\n");
  EXPECT_EQ(TopologyOf(configuration).master_port, 29501);
  SetFlag(configuration, "--master-port", "29502");
  EXPECT_EQ(TopologyOf(configuration).master_port, 29502);
}

}  // namespace
}  // namespace gradloom
