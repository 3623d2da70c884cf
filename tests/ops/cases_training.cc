#include "tests/ops/case_list.h"

namespace gradloom {

// (R, T, two tensors, their gradients, their states): the first step, which some optimizers treat differently, and a later one.
std::vector<OpCase> TrainingCases() {
  std::vector<OpCase> cases;
  const OpOperand rate = In({}, 0.01, 0.2), x = In({2, 3}), y = In({4}), squares_x = In({2, 3}, 0.1, 2), squares_y = In({4}, 0.1, 2);
  for (const int64_t step : {0, 3}) {
    const OpOperand at = Fed(Tensor::From<int64_t>({step}, {}));
    const auto add = [&](const char* op, std::vector<OpOperand> states, Attributes attributes) {
      std::vector<OpOperand> operands{rate, at, x, y, x, y};
      operands.insert(operands.end(), states.begin(), states.end());
      cases.push_back({.op = op,
                       .operands = std::move(operands),
                       .attributes = std::move(attributes),
                       .domain = "ai.onnx.preview.training",
                       .outputs = static_cast<int>(2 + states.size()),
                       .note = "step " + std::to_string(step),
                       .gradient = false,
                       .half = false});
    };
    for (const char* mode : {"standard", "nesterov"}) {
      add("Momentum", {x, y}, {{"alpha", 0.9}, {"beta", 0.7}, {"norm_coefficient", 0.1}, {"mode", std::string(mode)}});
    }
    add("Adagrad", {squares_x, squares_y}, {{"norm_coefficient", 0.05}, {"epsilon", 1e-3}, {"decay_factor", 0.2}});
    add("Adam", {x, y, squares_x, squares_y}, {{"norm_coefficient", 0.05}, {"norm_coefficient_post", 0.01}, {"epsilon", 1e-4}});
  }
  return cases;
}

}  // namespace gradloom
