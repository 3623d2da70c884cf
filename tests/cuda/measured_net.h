// A network of one product, whose step on GPUs requests a forward product and one for the gradient.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "compiler/compile.h"
#include "runtime/exec/executor.h"
#include "tests/passes/small_training.h"

namespace gradloom {

struct MeasuredNet {
  std::shared_ptr<const Plan> plan;
  Batch batch;

  explicit MeasuredNet(int devices = 2) {
    std::mt19937 random(2);
    const Model model = ModelOf("g (float[N, 8] x) => (float[N, 8] z)\n<" + Weights(random, "w", {8, 8}) + ">\n{\n z = MatMul (x, w)\n}\n");
    CompileOptions options = OptionsFor({{.type = "mse", .output = "z", .target = "target"}}, devices, {4});
    options.recipe.optimizer.type = "sgd";
    options.recipe.device = DeviceKind::kCuda;
    options.recipe.isa = "sm_90";
    plan = std::make_shared<const Plan>(Compile(model, options));
    batch = {{"x", Random(random, Shape{4, 8})}, {"target", Random(random, Shape{4, 8})}};
  }

  // Runs one step and returns its loss, which is valid until the executor's next step.
  TensorView Step(Executor& executor) const {
    std::vector<TensorView> feeds;
    for (const Feed& feed : plan->entries[0].feeds) feeds.push_back(batch.at(feed.name).view());
    executor.Run(0, feeds, {.lr = 0.1F, .step = 1});
    return executor.Fetched(0, 0);
  }
};

}  // namespace gradloom
