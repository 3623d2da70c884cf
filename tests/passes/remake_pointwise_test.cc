// Recomputed activations have the same bits as saved ones, and need less memory.
#include "compiler/passes/memory/remake_pointwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Case {
  std::string name;
  std::string body;  // computes y [N, 64] from h [N, 64]
  bool saves = true;
};

const Case kCases[] = {
    {"gelu", "d = Div (h, two)\n e = Erf (d)\n p = Add (e, one)\n m = Mul (h, p)\n y = Mul (m, half)\n"},
    {"silu", "s = Sigmoid (h)\n y = Mul (h, s)\n"},
    {"two layers that share what they are made of", "a = Tanh (h)\n b = Mul (h, a)\n s = Sigmoid (a)\n c = Mul (b, s)\n y = Add (c, a)\n"},
    {"what a product reads is kept", "a = Tanh (h)\n y = MatMul (a, w)\n", false},
    {"long chains are kept",
     "a = Tanh (h)\n b = Tanh (a)\n c = Tanh (b)\n d = Tanh (c)\n e = Tanh (d)\n f = Tanh (e)\n g = Tanh (f)\n y = Tanh (g)\n"},
    {"an output is kept", "s = Sigmoid (h)\n y = Mul (h, s)\n out = Identity (s)\n", false},
};

std::string Net(const Case& c, std::mt19937& random) {
  const bool out = c.body.find("out =") != std::string::npos;
  return "g (float[N, 8] x) => (float[N, 2] z" + std::string(out ? ", float[N, 64] out" : "") + ")\n<" +
         Weights(random, "v", {8, 64}, 0.3F) + ",\n" + Weights(random, "w", {64, 64}, 0.3F) + ",\n" + Weights(random, "u", {64, 2}, 0.3F) +
         ",\nfloat half = {0.5}, float one = {1}, float two = {1.4142135}>\n{\n h = MatMul (x, v)\n" + c.body + " z = MatMul (y, u)\n}\n";
}

TEST(RemakePointwise, KeepsBitsInLessMemory) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(3);
    const Model model = ModelOf(Net(c, random));
    std::vector<Batch> batches;
    for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{128, 8})}, {"target", Classes(random, 128, 2)}});
    for (int devices : {1, 2}) {
      CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {128});
      const auto remade = Train(model, options, batches);
      const int64_t bytes = Compile(model, options).programs.at(0).transient_bytes;
      options.control.disabled = {"remake_pointwise"};
      ExpectSameBits(Train(model, options, batches), remade);
      const int64_t kept = Compile(model, options).programs.at(0).transient_bytes;
      if (c.saves) {
        EXPECT_LT(bytes, kept);
      } else {
        EXPECT_EQ(bytes, kept);
      }
    }
  }
}

}  // namespace
}  // namespace gradloom
