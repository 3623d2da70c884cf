// Compares a model divided into stages on several devices with the same model on one device.
#include "compiler/passes/devices/place_devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/plan/memory_report.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

// Two towers that are joined, a weight that both read, and a branch around one layer.
const std::string kTowers = R"(
g (float[N, 8] x, float[N, 8] y) => (float[N, 4] z)
<float[8, 8] shared, float[8, 8] left, float[8, 8] right, float[16, 4] head, float[4] bias> {
  [a1] a1 = MatMul (x, shared)
  [a2] a2 = Tanh (a1)
  [a3] a3 = MatMul (a2, left)
  [a4] a4 = Add (a3, a2)
  [b1] b1 = MatMul (y, shared)
  [b2] b2 = Sigmoid (b1)
  [b3] b3 = MatMul (b2, right)
  [c1] c1 = Concat <axis = 1> (a4, b3)
  [c2] c2 = MatMul (c1, head)
  [c3] z = Add (c2, bias)
}
)";
const std::vector<std::string> kNodes = {"a1", "a2", "a3", "a4", "b1", "b2", "b3", "c1", "c2", "c3"};

class PlaceDevices : public testing::Test {
 protected:
  PlaceDevices() : model_(WithWeights()) {
    for (int64_t size : {9, 9, 4}) {
      batches_.push_back(
          {{"x", Random(random_, Shape{size, 8})}, {"y", Random(random_, Shape{size, 8})}, {"target", Classes(random_, size, 4)}});
    }
  }

  static CompileOptions Options(int devices) {
    return OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {9, 4});
  }

  std::vector<PlaceRule> AnyPlacement(int stages) {
    std::vector<PlaceRule> rules;
    for (const std::string& node : kNodes) rules.push_back({node, static_cast<int>(random_() % static_cast<uint64_t>(stages))});
    rules.back().stage = stages - 1;  // so that the plan has exactly this many stages
    return rules;
  }

  std::mt19937 random_{11};
  Model model_;
  std::vector<Batch> batches_;

 private:
  // Inlined values would obscure the graph.
  Model WithWeights() {
    std::string text = kTowers;
    std::normal_distribution<float> normal(0, 0.4F);
    for (const auto& [name, count] :
         {std::pair("shared", 64), std::pair("left", 64), std::pair("right", 64), std::pair("head", 64), std::pair("bias", 4)}) {
      std::string values;
      for (int i = 0; i < count; ++i) values += (i == 0 ? " = {" : ", ") + std::to_string(normal(random_));
      const size_t at = text.find(std::string(" ") + name + (std::string(name) == "bias" ? ">" : ",")) + 1 + std::string(name).size();
      text.insert(at, values + "}");
    }
    return ModelOf(text);
  }
};

TEST_F(PlaceDevices, AnyPlacementMatchesOneDevice) {
  const auto one = Train(model_, Options(1), batches_);
  for (int stages : {2, 3, 4}) {
    for (int round = 0; round < 6; ++round) {
      SCOPED_TRACE(std::to_string(stages) + " stages, round " + std::to_string(round));
      CompileOptions options = Options(stages);
      options.recipe.place = AnyPlacement(stages);
      if (round % 2 == 1) options.recipe.streams = 2;
      ExpectSameBits(one, Train(model_, options, batches_));
      ExpectSameBits(one, Train(model_, options, batches_, static_cast<uint64_t>(round + 1)));
    }
  }
}

TEST_F(PlaceDevices, ReplicasShareTheBatch) {
  const auto one = Train(model_, Options(1), batches_);
  for (int copies : {2, 3, 8}) {
    SCOPED_TRACE(std::to_string(copies) + " copies");
    CompileOptions options = Options(2 * copies);
    options.recipe.place = AnyPlacement(2);
    const auto several = Train(model_, options, batches_);
    ExpectNear(one, several, 2e-5);
    ExpectSameBits(several, Train(model_, options, batches_, 3));
  }
}

TEST_F(PlaceDevices, ClippedAndAccumulated) {
  const auto change = [](CompileOptions options) {
    options.recipe.optimizer.clip_norm = 0.1;
    options.recipe.optimizer.type = "lamb";
    options.recipe.accumulate = 3;
    options.recipe.fetch_gradients = false;
    return options;
  };
  const auto one = Train(model_, change(Options(1)), batches_);
  // Of seven copies of the model, two have no samples.
  for (int devices : {2, 4, 14}) {
    CompileOptions options = change(Options(devices));
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(std::to_string(devices) + " devices, round " + std::to_string(round));
      options.recipe.place = AnyPlacement(2);
      ExpectNear(one, Train(model_, options, batches_, static_cast<uint64_t>(round)), 2e-5);
    }
  }
}

// A batch of one sample is computed by both copies. What a part sends to the next one says nothing of the other copy, which may refuse.
TEST_F(PlaceDevices, StatesWaitForTheCopiesOfTheirPart) {
  const Model model = ModelOf(
      "g (int64[N, 3] x) => (float[N, 3, 2] z)\n<float[4, 2] table = {0.1, -0.2, 0.3, 0.4, -0.5, 0.6, 0.7, 0.8}, "
      "float[2, 2] head = {0.3, -0.1, 0.2, 0.5}> {\n[e] e = Gather (table, x)\n[h] z = MatMul (e, head) }");
  const auto train = [&](int devices, std::vector<PlaceRule> place) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target", .class_axis = -1}}, devices, {1});
    options.recipe.accumulate = 2;
    options.recipe.fetch_gradients = false;
    options.recipe.place = std::move(place);
    Batch batch{{"x", Tensor::From<int64_t>({0, 3, 1}, {1, 3})}, {"target", Tensor::From<int64_t>({1, 0, 1}, {1, 3})}};
    return Train(model, options, {batch, batch, batch});
  };
  ExpectNear(train(1, {}), train(4, {{"h", 1}}), 2e-5);
}

// A transposed weight, a product and a bias are one operator if they are on one stage.
TEST_F(PlaceDevices, LayersAreFusedOnTheirStage) {
  const Model model =
      ModelOf("g (float[N, 8] x) => (float[N, 4] z)\n<" + Weights(random_, "u", Shape{6, 8}) + ", " + Weights(random_, "a", Shape{6}) +
              ", " + Weights(random_, "v", Shape{4, 6}) + ", " + Weights(random_, "b", Shape{4}) +
              "> {\n[t1] ut = Transpose <perm = [1, 0]> (u)\n[m1] m1 = MatMul (x, ut)\n[s1] s1 = Add (m1, a)\n"
              "[t2] vt = Transpose <perm = [1, 0]> (v)\n[m2] m2 = MatMul (s1, vt)\n[s2] z = Add (m2, b)\n}");
  const auto options = [](std::vector<PlaceRule> place) {
    CompileOptions made = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, place.empty() ? 1 : 2, {4});
    made.recipe.place = std::move(place);
    return made;
  };
  const std::vector<Batch> batches{{{"x", Random(random_, Shape{4, 8})}, {"target", Classes(random_, 4, 4)}}};
  const auto one = Train(model, options({}), batches);
  const std::vector<PlaceRule> layers{{"?1", 0}, {"?2", 1}}, split{{"s2", 0}, {"?1", 0}, {"?2", 1}};
  EXPECT_EQ(Count(Compile(model, options(layers)), "Add"), 0);
  EXPECT_EQ(Count(Compile(model, options(split)), "Add"), 1);
  for (const auto& place : {layers, split}) ExpectNear(one, Train(model, options(place), batches), 2e-5);
}

TEST_F(PlaceDevices, EachStateIsOnOneStage) {
  CompileOptions options = Options(2);
  options.recipe.place = {{"b*", 1}, {"head", 1}};
  const Plan plan = Compile(model_, options);
  ASSERT_EQ(plan.places.size(), 2U);
  for (const StateTensor& state : plan.state) {
    const bool second = state.name.starts_with("right") || state.name.starts_with("head") || state.name.starts_with("bias");
    EXPECT_EQ(state.places, std::vector<int>{second ? 1 : 0}) << state.name;
  }
  // The second stage allocates only the state of its own layers.
  EXPECT_LT(plan.places[1].state_bytes, plan.places[0].state_bytes + 1024);
}

TEST_F(PlaceDevices, NodesInheritTheDeviceOfTheirOperands) {
  CompileOptions options = Options(3);
  options.recipe.place = {{"left", 1}, {"head", 2}};
  const Plan plan = Compile(model_, options);
  const auto place_of = [&](const std::string& node) {
    std::set<int> places;
    for (const RankBinding& rank : plan.entries[0].ranks) {
      const Program& program = plan.programs[static_cast<size_t>(rank.program)];
      for (const Instruction& i : program.instructions) {
        if (i.kind == InstructionKind::kLaunch && i.origin == node) places.insert(program.place);
      }
    }
    return places;
  };
  EXPECT_EQ(place_of("a1"), std::set<int>{0});
  EXPECT_EQ(place_of("a3"), std::set<int>{1});  // reads the weight in the forward and the backward pass
  EXPECT_EQ(place_of("b3"), std::set<int>{0});
  EXPECT_EQ(place_of("c2"), std::set<int>{2});
}

// Each model has the same bits as when it runs alone, including dropout, which is keyed by the names of its nodes.
TEST_F(PlaceDevices, IndependentModelsInOneJob) {
  const std::string weights = "float[4, 3] wNAME = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1, 0.7, -0.4, 0.2, 0.9}";
  const std::string nodes = "[NAME1] hNAME = MatMul (xNAME, wNAME)\n[NAME2] dNAME = Dropout (hNAME, p, t)\n[NAME3] zNAME = Tanh (dNAME)\n";
  const auto named = [](std::string text, const std::string& name) {
    for (size_t at; (at = text.find("NAME")) != std::string::npos;) text.replace(at, 4, name);
    return text;
  };
  const auto graph = [&](const std::vector<std::string>& names) {
    std::string inputs, outputs, initializers, body;
    for (const std::string& name : names) {
      inputs += (inputs.empty() ? "" : ", ") + named("float[N, 4] xNAME", name);
      outputs += (outputs.empty() ? "" : ", ") + named("float[N, 3] zNAME", name);
      initializers += named(weights, name) + ", ";
      body += named(nodes, name);
    }
    return ModelOf("g (" + inputs + ") => (" + outputs + ")\n<" + initializers + "float p = {0.4}, bool t = {1}> {\n" + body + "}\n");
  };
  const auto options = [&](const std::vector<std::string>& names) {
    std::vector<LossTerm> losses;
    for (const std::string& name : names) losses.push_back({.type = "mse", .output = "z" + name, .target = "t" + name});
    return OptionsFor(std::move(losses), static_cast<int>(names.size()), {6});
  };
  const std::vector<std::string> names = {"a", "b", "c"};
  std::vector<Batch> batches(3);
  for (Batch& batch : batches) {
    for (const std::string& name : names) {
      batch.emplace("x" + name, Random(random_, Shape{6, 4}));
      batch.emplace("t" + name, Random(random_, Shape{6, 3}));
    }
  }
  CompileOptions job = options(names);
  for (int i = 0; i < 3; ++i) job.recipe.place.push_back({names[static_cast<size_t>(i)] + "*", i});
  const Model all = graph(names);
  EXPECT_EQ(IndependentRanks(Compile(all, job)), (std::vector<std::vector<int>>{{0}, {1}, {2}}));
  const auto together = Train(all, job, batches, 7);
  for (size_t i = 0; i < names.size(); ++i) {
    SCOPED_TRACE(names[i]);
    std::vector<Batch> own(batches.size());
    for (size_t b = 0; b < batches.size(); ++b) {
      for (const std::string& name : {"x" + names[i], "t" + names[i]}) own[b].emplace(name, Tensor::Copy(batches[b].at(name).view()));
    }
    for (auto& [name, tensor] : Train(graph({names[i]}), options({names[i]}), own)) {
      const std::string there = name.starts_with("loss@") ? "loss/z" + names[i] + name.substr(4) : name;
      ASSERT_TRUE(together.contains(there)) << there;
      EXPECT_EQ(std::memcmp(together.at(there).data(), tensor.data(), static_cast<size_t>(tensor.bytes())), 0) << there;
    }
  }
  // On one device the weighted sum is a single loss.
  CompileOptions one = options(names);
  one.recipe.devices = 1;
  EXPECT_TRUE(Train(all, one, batches).contains("loss@0"));
}

// A model's node may have the same name as one that the compiler adds.
TEST_F(PlaceDevices, NodeNamesMayCollideWithGeneratedOnes) {
  const Model model = ModelOf(R"(
g (float[N, 4] x) => (float[N, 2] y, float[N, 2] z)
<float[4, 2] w = {1, -2, 0.5, 1, 0.3, 2, -1, 0.1}, float[4, 2] v = {0.4, -0.9, 0.6, 1.2, -0.7, 0.5, -1.1, 0.35}, float[2] b = {0.1, -0.2}> {
  [a] a = MatMul (x, w)
  [losses] y = Add (a, b)
  [c] z = MatMul (x, v)
}
)");
  CompileOptions one = OptionsFor({{.type = "mse", .output = "y", .target = "t"}, {.type = "mse", .output = "z", .target = "u"}}, 1, {5});
  CompileOptions two = one;
  two.recipe.devices = 2;
  two.recipe.place = {{"v", 1}};
  const std::vector<Batch> batches = {
      {{"x", Random(random_, Shape{5, 4})}, {"t", Random(random_, Shape{5, 2})}, {"u", Random(random_, Shape{5, 2})}}};
  const auto apart = Train(model, two, batches);
  for (const auto& [name, tensor] : Train(model, one, batches)) {
    if (name.starts_with("loss@")) continue;  // two terms there
    ASSERT_TRUE(apart.contains(name)) << name;
    EXPECT_EQ(std::memcmp(apart.at(name).data(), tensor.data(), static_cast<size_t>(tensor.bytes())), 0) << name;
  }
}

void ExpectRefused(const Model& model, const CompileOptions& options, const std::string& message) {
  try {
    Compile(model, options);
    FAIL() << "compiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(error.message().find(message), std::string::npos) << error.message();
  }
}

TEST_F(PlaceDevices, RejectsRulesThatMatchNothing) {
  CompileOptions options = Options(2);
  options.recipe.place = {{"encoder*", 1}};
  ExpectRefused(model_, options, "--place 'encoder*' matches no node");
  options.recipe.place = {{"c2", 1}, {"head", 1}};
  ExpectRefused(model_, options, "--place 'head' matches no node");
}

TEST_F(PlaceDevices, RejectsDeviceCountsThatAreNoMultipleOfTheStages) {
  CompileOptions options = Options(3);
  options.recipe.place = {{"c*", 1}};
  ExpectRefused(model_, options, "3 devices are not a multiple of the model's 2 stages");
}

TEST_F(PlaceDevices, PlacesAutomaticallyToFitTheLimit) {
  // Layers whose weights and Adam moments take most of a device's memory.
  std::string text = "g (float[N, 32] x) => (float[N, 32] z)\n<";
  for (int i = 0; i < 6; ++i) {
    text += (i == 0 ? "float[32, 32] w" : ", float[32, 32] w") + std::to_string(i) + " = {";
    for (int k = 0; k < 1024; ++k) text += (k == 0 ? "" : ", ") + std::to_string(static_cast<double>((k * 37 + i * 11) % 61 - 30) / 150);
    text += "}";
  }
  text += "> {\n";
  for (int i = 0; i < 6; ++i) {
    const std::string n = std::to_string(i);
    text += "[m" + n + "] m" + n + " = MatMul (" + (i == 0 ? "x" : "t" + std::to_string(i - 1)) + ", w" + n + ")\n";
    text += "[t" + n + "] " + (i == 5 ? "z" : "t" + n) + " = Tanh (m" + n + ")\n";
  }
  const Model model = ModelOf(text + "}\n");
  const std::vector<Batch> batches = {{{"x", Random(random_, Shape{8, 32})}, {"target", Random(random_, Shape{8, 32})}}};
  const auto options = [](int devices) {
    CompileOptions made = OptionsFor({{.type = "mse", .output = "z", .target = "target"}}, devices, {8});
    made.recipe.fetch_gradients = made.recipe.fetch_outputs = false;
    return made;
  };
  const auto one = Train(model, options(1), batches);
  const int64_t all = ReportMemory(Compile(model, options(1))).fullest().total_bytes();
  CompileOptions placed = options(4);
  placed.recipe.place_auto = true;
  // Without a limit there are four replicas, since nothing else is faster here.
  EXPECT_EQ(Compile(model, placed).places.size(), 1U);
  for (const auto& [share, stages] : {std::pair(0.75, 2U), std::pair(0.45, 4U)}) {
    SCOPED_TRACE(share);
    placed.recipe.memory_limit = static_cast<int64_t>(share * static_cast<double>(all));
    const Plan plan = Compile(model, placed);
    EXPECT_EQ(plan.places.size(), stages);
    EXPECT_LE(ReportMemory(plan).fullest().total_bytes(), placed.recipe.memory_limit);
    ExpectNear(one, Train(model, placed, batches), 2e-5);
  }
}

}  // namespace
}  // namespace gradloom
