// Which instructions of a program compute the same in every run.
#include "runtime/plan/settled.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/verify/plan_builder.h"

namespace gradloom {
namespace {

constexpr int64_t kN = 16;  // elements of each value, which has 64 bytes

// A program being built, with a constant, two states of which the test may write the second, and a feed.
struct Programs {
  Plan plan = EmptyPlan();
  int c = AddConstant(plan, "c", kN), w = AddState(plan, "w", kN), s = AddState(plan, "s", kN);
  ProgramBuilder b{plan, 2};
  int constant = b.Constant(c), weight = b.State(w), state = b.State(s), x = b.Feed(0, kN);

  // "1" for each settled instruction.
  std::string Found(std::vector<int> fetched = {}) {
    std::string found;
    for (const bool settled : SettledInstructions(b.program(), fetched)) found += settled ? '1' : '0';
    return found;
  }
};

TEST(Settled, DependsOnlyOnWeights) {
  Programs p;
  const int a = p.b.Value("a", kN), d = p.b.Value("d", kN), h = p.b.Value("h", kN), y = p.b.Value("y", kN), z = p.b.Value("z", kN);
  p.b.Launch("Mix", {p.constant, p.weight}, {a});
  p.b.Copy(p.weight, d);
  p.b.Launch("Mix", {p.x, a}, {h});
  p.b.Launch("Mix", {h, d}, {y});
  p.b.Launch("Mix", {p.state, y}, {z});
  EXPECT_EQ(p.Found({z}), "11000");
  // The caller has the address of what it fetches.
  EXPECT_EQ(p.Found({z, a}), "01000");
  // A step that writes the state.
  p.b.Launch("Update", {p.weight, z}, {p.b.State(p.w, "'")});
  EXPECT_EQ(p.Found({z}), "000000");
}

TEST(Settled, StepParametersChange) {
  Programs p;
  const int a = p.b.Value("a", kN), y = p.b.Value("y", kN);
  p.b.Launch("Map", {p.b.StepLr()}, {a});
  p.b.Launch("Mix", {a, p.x}, {y});
  EXPECT_EQ(p.Found(), "00");
}

// The result is lost if another value has its memory later, or has had it earlier in the list: the next run begins there.
TEST(Settled, ResultsStay) {
  for (const bool before : {false, true}) {
    Programs p;
    const int a = p.b.Value("a", kN), h = p.b.Value("h", kN), y = p.b.Value("y", kN), other = p.b.Value("other", kN, 0);
    const int z = p.b.Value("z", kN);
    if (before) {
      p.b.Launch("Map", {p.x}, {other});
      p.b.Launch("Map", {other}, {z});
    }
    p.b.Launch("Map", {p.weight}, {a});
    p.b.Launch("Mix", {a, p.x}, {y});
    if (!before) {
      p.b.Launch("Map", {y}, {other});
      p.b.Launch("Map", {other}, {h});
    }
    EXPECT_EQ(p.Found(), "0000") << before;
  }
}

TEST(Settled, ScratchMemoryOverwrites) {
  for (const int64_t at : {int64_t{60}, int64_t{64}}) {
    Programs p;
    const int a = p.b.Value("a", kN), y = p.b.Value("y", kN, 512), z = p.b.Value("z", kN, 576);
    p.b.Launch("Map", {p.weight}, {a});
    p.b.Launch("Mix", {a, p.x}, {y});
    p.b.Launch("Work", {y}, {z}, 0, p.b.Scratch(2 * kN * 4, at));
    EXPECT_EQ(p.Found(), at == 64 ? "100" : "000");
  }
}

// Memory of values that only settled instructions read may be used by others.
TEST(Settled, OnlyWhatOthersReadStays) {
  Programs p;
  const int t = p.b.Value("t", kN), a = p.b.Value("a", kN), h = p.b.Value("h", kN, 0), y = p.b.Value("y", kN);
  p.b.Launch("Map", {p.weight}, {t});
  p.b.Launch("Mix", {t, p.constant}, {a});
  p.b.Launch("Mix", {p.x, a}, {h});
  p.b.Launch("Map", {h}, {y});
  EXPECT_EQ(p.Found({y}), "1100");
}

// If one is not settled, those whose memory it uses are not either. The memory of `a` may be used: what reads it is settled.
TEST(Settled, OthersFollow) {
  Programs p;
  const int a = p.b.Value("a", kN), r = p.b.Value("r", kN), k = p.b.Value("k", kN), y = p.b.Value("y", kN), z = p.b.Value("z", kN);
  const int over = p.b.Value("over", kN, 0), end = p.b.Value("end", kN), early = p.b.Value("early", kN, 128), u = p.b.Value("u", kN);
  p.b.Launch("Map", {p.constant}, {early});  // in the memory of k
  p.b.Launch("Mix", {early, p.x}, {u});      // reads it before k is there
  p.b.Launch("Map", {p.weight}, {a});
  p.b.Launch("Map", {a}, {r});
  p.b.Launch("Map", {p.weight}, {k});
  p.b.Launch("Mix", {r, p.x}, {y});
  p.b.Launch("Mix", {k, y}, {z});
  p.b.Launch("Map", {z}, {over});  // in the memory of a
  p.b.Launch("Mix", {over, y}, {end});
  EXPECT_EQ(p.Found({end}), "001100000");
}

TEST(Settled, PartsAndWholes) {
  Programs p;
  const int whole = p.b.Value("whole", 2 * kN), first = p.b.Part("first", whole, 0, kN), second = p.b.Part("second", whole, kN, kN);
  const int y = p.b.Value("y", 2 * kN), z = p.b.Value("z", kN);
  p.b.Launch("Map", {p.weight}, {first});
  p.b.Launch("Map", {p.x}, {second});
  p.b.Launch("Map", {whole}, {y});
  p.b.Launch("Mix", {first, second}, {z});
  EXPECT_EQ(p.Found({y, z}), "1000");
}

TEST(Settled, Text) {
  for (const auto& [name, plan] : SamplePlans()) {
    if (name == "weights") {
      EXPECT_EQ(SettledText(plan), "settled: entry 0, program 0: #0 #1 #2 #7\n");
    }
    if (name == "training") {
      EXPECT_EQ(SettledText(plan), "");
    }
    Plan broken = plan;
    broken.entries[0].ranks[0].program = 99;
    EXPECT_EQ(SettledText(broken).find("entry 0, program 99"), std::string::npos);
  }
}

TEST(Settled, NothingInAnInvalidProgram) {
  for (const int kind : {0, 1, 2}) {
    Programs p;
    const int a = p.b.Value("a", kN), y = p.b.Value("y", kN);
    p.b.Launch("Map", {p.weight}, {a});
    p.b.Launch("Mix", {a, p.x}, {y});
    EXPECT_EQ(p.Found({y}), "10");
    if (kind == 0) p.b.program().instructions[1].uses[0].buffer = 1000;
    if (kind == 1) p.b.program().buffers[static_cast<size_t>(a)].offset = std::numeric_limits<int64_t>::max() - 8;
    if (kind == 2) p.b.program().buffers[static_cast<size_t>(a)].offset = -64;
    EXPECT_EQ(p.Found({y}), "00");
  }
}

}  // namespace
}  // namespace gradloom
