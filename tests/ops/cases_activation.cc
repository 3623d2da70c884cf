#include "tests/ops/case_list.h"

namespace gradloom {

std::vector<OpCase> ActivationCases() {
  std::vector<OpCase> cases;
  const auto both = [&](const std::string& op, Attributes attributes, double low = -3, double high = 3) {
    cases.push_back({op, {In({3, 7}, low, high)}});
    if (!attributes.empty()) cases.push_back({op, {In({3, 7}, low, high)}, std::move(attributes)});
  };
  both("Relu", {});
  both("LeakyRelu", {{"alpha", 0.25}});
  both("Elu", {{"alpha", 1.75}});
  both("Celu", {{"alpha", 0.5}});
  both("Selu", {{"alpha", 1.5}, {"gamma", 0.75}});
  both("Gelu", {{"approximate", std::string("tanh")}});
  both("Gelu", {{"approximate", std::string("none")}}, -8, 8);
  both("Mish", {});
  both("Softplus", {}, -30, 30);
  both("Softsign", {});
  both("Sigmoid", {}, -20, 20);
  both("HardSigmoid", {{"alpha", 0.375}, {"beta", 0.25}}, -6, 6);
  both("HardSwish", {}, -6, 6);
  both("Swish", {{"alpha", 1.5}});
  both("ThresholdedRelu", {{"alpha", 0.5}});
  both("Shrink", {{"lambd", 1.0}, {"bias", 0.5}});
  for (OpCase& op_case : cases) {
    // A rounded input may cross the threshold, where the function jumps.
    if (op_case.op == "ThresholdedRelu" || op_case.op == "Shrink") op_case.half = false;
  }
  cases.push_back({"PRelu", {In({2, 3, 4}), In({2, 3, 4})}});
  cases.push_back({"PRelu", {In({2, 3, 4}), In({3, 1})}, {}, "", 1, "slope per channel"});
  cases.push_back({"PRelu", {In({2, 3}), In({1})}, {}, "", 1, "one slope"});
  cases.push_back({"SwiGLU", {In({2, 5}), In({2, 5})}});
  cases.push_back({"SwiGLU", {In({2, 5}), In({2, 5})}, {{"alpha", 1.5}}});
  return cases;
}

}  // namespace gradloom
