// Simplified graphs give the same results.
#include "compiler/passes/simplify.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

struct Power {
  std::string exponent;
  int64_t left;
};

TEST(Simplify, PowersAreProducts) {
  const Power powers[] = {{"2", 0}, {"3", 0}, {"0.5", 0}, {"2.5", 2}, {"4", 1}};
  for (const Power& power : powers) {
    SCOPED_TRACE(power.exponent);
    std::mt19937 random(3);
    const Model model =
        ModelOf("g (float[N, 4] x) => (float[N, 2] z)\n<" + Weights(random, "w", {4, 2}) + ">\n{\n e = Constant <value = float {" +
                power.exponent + "}> ()\n h = MatMul (x, w)\n a = Abs (h)\n z = Pow (a, e)\n}\n");
    const std::vector<Batch> batches = {{{"x", Random(random, Shape{5, 4})}, {"target", Random(random, Shape{5, 2})}}};
    CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "target"}}, 1, {5});
    options.recipe.optimizer.type = "sgd";
    const auto with = Train(model, options, batches);
    options.control.disabled = {"fuse_pointwise"};  // it would hide the operators that are counted
    EXPECT_EQ(Count(Compile(model, options), "Pow"), power.left);
    options.control.disabled = {"simplify_forward", "simplify", "simplify_device"};
    ExpectNear(Train(model, options, batches), with, 1e-5);
  }
}

}  // namespace
}  // namespace gradloom
