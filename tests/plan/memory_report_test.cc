#include "runtime/plan/memory_report.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace gradloom {
namespace {

int Add(Program& program, const std::string& name, Arena arena, int64_t offset, int64_t bytes, bool scratch = false) {
  program.buffers.push_back(
      {.name = name, .arena = arena, .offset = offset, .bytes = bytes, .dtype = scratch ? DType::kUndefined : DType::kFloat32});
  return static_cast<int>(program.buffers.size()) - 1;
}

void Launch(Program& program, const std::string& origin, std::vector<Use> uses) {
  program.instructions.push_back({.uses = std::move(uses), .origin = origin});
}

// h = f(w) with scratch; g = h in place; w' = update(w, g).
Plan Small() {
  Plan plan;
  plan.state = {{.name = "w", .kind = StateKind::kParameter, .bytes = 400}, {.name = "m", .kind = StateKind::kOptimizer, .bytes = 100}};
  plan.places[0].state_bytes = 512;
  plan.places[0].constants_bytes = 64;
  Program program;
  const int w = Add(program, "w", Arena::kState, 0, 400), h = Add(program, "h", Arena::kTransient, 0, 1024),
            s = Add(program, "scratch", Arena::kTransient, 1024, 256, true), g = Add(program, "g", Arena::kTransient, 0, 1024),
            next = Add(program, "w'", Arena::kState, 0, 400);
  Launch(program, "/f", {{w, Access::kRead}, {h, Access::kWrite}, {s, Access::kScratch}});
  Launch(program, "/g", {{h, Access::kRead}, {g, Access::kWrite}});
  Launch(program, "w", {{w, Access::kRead}, {g, Access::kRead}, {next, Access::kWrite}});
  program.transient_bytes = 1280;
  plan.programs.push_back(program);
  return plan;
}

TEST(MemoryReport, ArenasAddUpToTheReport) {
  Plan plan = Small();
  plan.programs.Mutable(0).input_bytes = 65;
  plan.places.push_back({.state_bytes = 5});
  plan.programs.push_back({.transient_bytes = 7, .place = 1});
  const MemoryReport report = ReportMemory(plan);
  for (int place = 0; place < 2; ++place) {
    const PlaceMemory arenas = ArenasOf(plan, place), &whole = report.places[static_cast<size_t>(place)];
    EXPECT_EQ(arenas.total_bytes(), whole.total_bytes());
    EXPECT_EQ(arenas.total_bytes(), place == 0 ? 512 + 64 + 1280 + 2 * 128 : 5 + 7);
  }
}

// What layouts add and copies of parameters are in memory only.
TEST(MemoryReport, SavedStateHasNoPadding) {
  Plan plan;
  plan.state = {{.name = "w", .kind = StateKind::kParameter, .shape = {3, 5}, .bytes = 256},
                {.name = "w/copy", .kind = StateKind::kWeightCopy, .dtype = DType::kBfloat16, .shape = {3, 5}, .bytes = 64},
                {.name = "n", .kind = StateKind::kOptimizer, .dtype = DType::kInt64, .shape = {}, .bytes = 64}};
  EXPECT_EQ(SavedStateBytes(plan), 3 * 5 * 4 + 8);
}

TEST(MemoryReport, StateByRole) {
  const MemoryReport report = ReportMemory(Small());
  EXPECT_EQ(report.places[0].parameters, 400);
  EXPECT_EQ(report.places[0].optimizer, 100);
  EXPECT_EQ(report.places[0].statistics, 0);
  EXPECT_EQ(report.fullest().total_bytes(), 512 + 64 + 1280);
}

TEST(MemoryReport, PeakByRole) {
  const ProgramMemory memory = ReportMemory(Small()).programs[0];
  EXPECT_EQ(memory.fullest, 0);
  EXPECT_EQ(memory.scratch, 256);
  EXPECT_EQ(memory.activations, 1024);
  EXPECT_EQ(memory.gradients, 0);
  ASSERT_EQ(memory.largest.size(), 2U);
  EXPECT_EQ(memory.largest[0].name, "h");
  EXPECT_EQ(memory.largest[0].origin, "/f");
  EXPECT_EQ(memory.largest[1].bytes, 256);
  EXPECT_EQ(ReportMemory(Small(), 1).programs[0].largest.size(), 1U);
}

// Random buffers that overlap in time and memory, against a count of the bytes at each instruction.
TEST(MemoryReport, TheFullestInstruction) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    const int instructions = 1 + below(8), buffers = below(12);
    std::vector<std::vector<Use>> uses(static_cast<size_t>(instructions));
    std::vector<std::vector<bool>> live(static_cast<size_t>(instructions), std::vector<bool>(64));
    Program program;
    for (int i = 0; i < buffers; ++i) {
      const int offset = below(32), bytes = below(32), first = below(instructions), last = first + below(instructions - first);
      const int buffer = Add(program, std::to_string(i), Arena::kTransient, offset, bytes);
      uses[static_cast<size_t>(first)].push_back({buffer, Access::kWrite});
      uses[static_cast<size_t>(last)].push_back({buffer, Access::kRead});
      for (int at = first; at <= last; ++at) {
        for (int byte = offset; byte < offset + bytes; ++byte) live[static_cast<size_t>(at)][static_cast<size_t>(byte)] = true;
      }
    }
    for (const std::vector<Use>& of_one : uses) Launch(program, "/n", of_one);
    int64_t most = 0;
    int fullest = -1;
    for (int at = 0; at < instructions; ++at) {
      const int64_t bytes = std::count(live[static_cast<size_t>(at)].begin(), live[static_cast<size_t>(at)].end(), true);
      if (bytes > most) most = bytes, fullest = at;
    }
    Plan plan;
    plan.programs.push_back(program);
    const ProgramMemory memory = ReportMemory(plan).programs[0];
    EXPECT_EQ(memory.fullest, fullest);
    EXPECT_EQ(memory.live(), most);
  }
}

TEST(MemoryReport, InPlaceCountsOnce) {
  Plan plan = Small();
  plan.programs.Mutable(0).buffers[2].bytes = 0;  // no scratch
  EXPECT_EQ(ReportMemory(plan).programs[0].live(), 1024);
  plan.programs.Mutable(0).buffers[3].offset = 1280;  // g next to h
  plan.programs.Mutable(0).buffers[3].bytes = 128;
  const ProgramMemory memory = ReportMemory(plan).programs[0];
  EXPECT_EQ(memory.fullest, 1);
  EXPECT_EQ(memory.activations, 1024);
  EXPECT_EQ(memory.gradients, 128);
}

TEST(MemoryReport, NothingTransient) {
  Plan plan;
  plan.programs.emplace_back();
  EXPECT_EQ(ReportMemory(plan).programs[0].fullest, -1);
  EXPECT_EQ(ReportMemory(plan).programs[0].live(), 0);
}

}  // namespace
}  // namespace gradloom
