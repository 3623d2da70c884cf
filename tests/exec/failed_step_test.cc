// A step that fails by what it is fed changes nothing that lives between steps, on one device as on several, whatever the timing.
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "compiler/compile.h"
#include "gtest/gtest.h"
#include "runtime/base/error.h"
#include "runtime/exec/executor.h"
#include "runtime/session/session.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kWords = 6, kClasses = 3;

// Rows of a table, normalised, twice; then other rows, chosen behind the normalisation; two losses, of which one is not behind the other.
Model Net() {
  std::mt19937 random(3);
  return ModelOf("g (int64[N] word, int64[N] other) => (float[N, 3] z, float[N, 3] w)\n<" + Weights(random, "table", {kWords, 4}) + ", " +
                 Weights(random, "late", {kWords, 4}) + ", " + Weights(random, "u", {4, kClasses}) + ", " +
                 Weights(random, "v", {4, kClasses}) +
                 ",\nfloat[4] s = {1, 1, 1, 1}, float[4] b = {0, 0, 0, 0}, float[4] m1 = {0, 0, 0, 0}, float[4] v1 = {1, 1, 1, 1},"
                 "\nfloat[4] m2 = {0, 0, 0, 0}, float[4] v2 = {1, 1, 1, 1}>\n{\n"
                 " x = Gather (table, word)\n h = BatchNormalization <momentum = 0.5> (x, s, b, m1, v1)\n"
                 " r = Relu (h)\n n = BatchNormalization <momentum = 0.5> (r, s, b, m2, v2)\n"
                 " z = MatMul (n, u)\n y = Gather (late, other)\n q = Add (n, y)\n w = MatMul (q, v)\n}\n");
}

Batch Good(std::mt19937& random, int64_t samples) {
  Batch batch;
  for (const char* words : {"word", "other"}) batch.emplace(words, Classes(random, samples, kWords));
  for (const char* labels : {"first", "second"}) batch.emplace(labels, Classes(random, samples, kClasses));
  return batch;
}

// By name: the state of every device that holds it.
std::map<std::string, std::string> StateOf(Session& session) {
  std::map<std::string, std::string> bytes;
  const StateArena& arena = session.executor().state();
  for (const StateTensor& state : session.plan().state) {
    for (size_t rank = 0; rank < arena.ranks(); ++rank) {
      if (!state.in_place(session.plan().PlaceOf(rank))) continue;
      const auto* const at = reinterpret_cast<const char*>(arena.at(static_cast<int>(rank), state.offset));
      bytes.emplace(state.name + " of device " + std::to_string(rank), std::string(at, static_cast<size_t>(state.bytes)));
    }
  }
  return bytes;
}

struct Case {
  std::string name;
  int devices = 1;
  int streams = 0;
  int64_t samples = 8;  // fewer than devices: some have none
  std::function<void(CompileOptions&)> change = [](CompileOptions&) {};
};

CompileOptions OptionsOf(const Case& c) {
  CompileOptions options = OptionsFor(
      {{.type = "cross_entropy", .output = "z", .target = "first"}, {.type = "cross_entropy", .output = "w", .target = "second"}},
      c.devices, {c.samples});
  options.recipe.streams = c.streams;
  c.change(options);
  return options;
}

const Case kCases[] = {
    {.name = "one device"},
    {.name = "four streams", .streams = 4},
    {.name = "updates where they are written", .change = [](CompileOptions& o) { o.control.disabled = {"order_nodes"}; }},
    {.name = "two devices", .devices = 2},
    {.name = "three devices of two streams, unlike shares", .devices = 3, .streams = 2},
    {.name = "a device without samples", .devices = 3, .samples = 2},
    {.name = "statistics of all", .devices = 2, .change = [](CompileOptions& o) { o.recipe.sync_bn = true; }},
    {.name = "a scaled loss",
     .change =
         [](CompileOptions& o) {
           o.recipe.precision = Precision::kFloat16;
           o.recipe.loss_scale = {.initial = 256, .growth_interval = 2};
         }},
    {.name = "two batches an update", .devices = 2, .change = [](CompileOptions& o) {
       o.recipe.accumulate = 2;
       for (EntryRequest& entry : o.entries) entry.kind = EntryKind::kAccumulate;
       o.entries.push_back({EntryKind::kUpdate, 0});
     }}};

TEST(FailedStep, ChangesNothing) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto plan = std::make_shared<const Plan>(Compile(Net(), OptionsOf(c)));
    Session session(plan), undisturbed(plan);
    std::mt19937 random(11);
    for (uint64_t round = 0; round < 6; ++round) {
      const Batch good = Good(random, c.samples);
      session.Step(Views(good));
      undisturbed.Step(Views(good));
      for (const char* feed : {"word", "other", "first", "second"}) {
        for (int64_t sample : {int64_t{0}, c.samples - 1}) {
          SCOPED_TRACE(std::string(feed) + " of sample " + std::to_string(sample));
          Batch bad = Good(random, c.samples);
          bad.at(feed).as<int64_t>()[static_cast<size_t>(sample)] = kWords + 1;
          session.executor().SetChaos(random());
          const auto before = StateOf(session);
          try {
            session.Step(Views(bad));
            ADD_FAILURE() << "it was taken";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::kData) << error.Describe();
          }
          for (const auto& [name, bytes] : StateOf(session)) EXPECT_TRUE(bytes == before.at(name)) << name << " has changed";
        }
      }
    }
    // The position, too: by it learning rate and random numbers go.
    EXPECT_EQ(session.step(), undisturbed.step());
    EXPECT_EQ(session.batch(), undisturbed.batch());
    EXPECT_TRUE(StateOf(session) == StateOf(undisturbed));
  }
}

}  // namespace
}  // namespace gradloom
