#include "compiler/cost/cached_shares.h"

#include <gtest/gtest.h>

#include <vector>

#include "compiler/cost/cost_model.h"

namespace gradloom {
namespace {

// A program whose instructions touch ranges of one arena, each a number of bytes at an offset.
struct Range {
  int64_t offset, bytes;
  Arena arena = Arena::kTransient;
};

Program ProgramOf(const std::vector<std::vector<Range>>& instructions) {
  Program program;
  program.streams.emplace_back();
  for (const std::vector<Range>& ranges : instructions) {
    Instruction& instruction = program.instructions.emplace_back();
    for (const Range& range : ranges) {
      instruction.uses.push_back({static_cast<int>(program.buffers.size()), Access::kRead});
      Buffer& buffer = program.buffers.emplace_back();
      buffer.arena = range.arena, buffer.offset = range.offset, buffer.bytes = range.bytes;
      buffer.feed = range.arena == Arena::kFeed ? 0 : -1;
    }
  }
  return program;
}

TEST(CachedShares, AStepThatFitsFindsEverything) {
  const Program program = ProgramOf({{{0, 100}}, {{100, 100}}, {{0, 100}, {100, 100}}});
  EXPECT_EQ(CachedShares(program, 200), (std::vector<double>{1, 1, 1}));
  // In a smaller cache, only what was touched last is still there.
  EXPECT_EQ(CachedShares(program, 100), (std::vector<double>{0, 0, 0.5}));
  EXPECT_EQ(CachedShares(program, 99), (std::vector<double>{0, 0, 0}));
}

TEST(CachedShares, ALongScanFindsNothing) {
  const Program program = ProgramOf({{{0, 1000}}, {{0, 1000}}, {{0, 10}}, {{0, 10}}});
  // Except for what was touched just before.
  EXPECT_EQ(CachedShares(program, 500), (std::vector<double>{0.01, 0, 0, 1}));
}

TEST(CachedShares, PartsOfRangesCount) {
  // The second instruction finds the half that the first one has touched; the third one all, in two pieces.
  const Program program = ProgramOf({{{0, 100}}, {{50, 100}}, {{0, 150}}, {{1000, 4000}}});
  EXPECT_EQ(CachedShares(program, 300), (std::vector<double>{0, 0.5, 1, 0}));
}

TEST(CachedShares, FeedsHaveJustBeenWritten) {
  const Program program = ProgramOf({{{0, 100, Arena::kFeed}}, {{0, 5000}}, {{0, 100, Arena::kFeed}}});
  EXPECT_EQ(CachedShares(program, 300), (std::vector<double>{1, 0, 0}));
}

TEST(CachedShares, WhatTouchesNothingFindsAll) {
  EXPECT_EQ(CachedShares(ProgramOf({{}, {{0, 10}}, {}}), 1), (std::vector<double>{1, 0, 1}));
  EXPECT_TRUE(CachedShares(Program(), 1).empty());
}

TEST(WorkSeconds, IsTheLongestOfArithmeticFunctionsAndMemory) {
  DeviceCosts device{
      .flops_per_second = 100, .functions_per_second = 10, .bytes_per_second = 5, .compute_threads = 8, .bandwidth_threads = 1.5};
  device.cache_bytes_per_second = 20;
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 400, 5, 20}, MatrixWork::kNone, 0, 1, device), 4);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 400, 5, 80}, MatrixWork::kNone, 0, 1, device), 8);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 400, 100, 80}, MatrixWork::kNone, 0, 1, device), 20);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 400, 100, 80}, MatrixWork::kNone, 1, 1, device), 8);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 0, 100, 0}, MatrixWork::kNone, 0.5, 1, device), 12.5);
  // Threads share the memory's rate, but not those of caches and arithmetic.
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 0, 100, 0}, MatrixWork::kNone, 0, 4, device), 100 / 7.5);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 0, 100, 0}, MatrixWork::kNone, 1, 4, device), 1.25);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 400, 0, 0}, MatrixWork::kNone, 0, 16, device), 0.5);
}

TEST(WorkSeconds, SmallWorkIsLeftToOneThread) {
  DeviceCosts device{.flops_per_second = 100, .bytes_per_second = 1, .compute_threads = 8};
  device.team_seconds = 1;
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 100, 0, 0}, MatrixWork::kNone, 0, 2, device), 1);
  EXPECT_DOUBLE_EQ(WorkSeconds({1, 1000, 0, 0}, MatrixWork::kNone, 0, 2, device), 6);
}

}  // namespace
}  // namespace gradloom
