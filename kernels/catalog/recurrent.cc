#include "kernels/catalog/recurrent.h"

#include <vector>

#include "kernels/catalog/operands.h"

namespace gradloom {
namespace {

// Determined by the first letter, which all forms of an operator have in common.
int64_t GatesOf(const KernelCall& call) {
  const char kind = call.op.front();
  return kind == 'L' ? 4 : kind == 'G' ? 3 : 1;
}

}  // namespace

RecurrentExtents::RecurrentExtents(const KernelCall& call) {
  gates = GatesOf(call);
  inputs = gates == 4 ? 8 : 6;
  outputs = gates == 4 ? 3 : 2;
  gradient = call.op.ends_with("Grad");
  training = call.op.ends_with("Training");
  const Shape &x = call.inputs[recurrent::kX].shape, &r = call.inputs[recurrent::kR].shape;
  batch_first = call.attributes.Int("layout", 0) != 0;
  steps = x[batch_first ? 1 : 0];
  batch = x[batch_first ? 0 : 1];
  input = x[2];
  directions = r[0];
  hidden = r[2];
  reversed = call.attributes.String("direction", "forward") == "reverse";
  has_lengths = HasInput(call, recurrent::kLengths);
  linear = gates == 3 && call.attributes.Int("linear_before_reset", 0) != 0;
  const std::vector<std::string> activations = call.attributes.Strings("activations");
  relu = gates == 1 && !activations.empty() && activations.front() == "Relu";
  recomputes = gradient && !(HasInput(call, saved_y()) && (gates == 1 || HasInput(call, saved_rows())));
  kept = gates + (gates == 4 || linear ? 1 : 0);
}

std::string UnusualCells(const KernelCall& call) {
  if (call.attributes.Float("clip", 0) > 0 || call.attributes.Int("input_forget", 0) != 0) return "clip or input_forget";
  const int64_t gates = GatesOf(call);
  const std::vector<std::string> names = call.attributes.Strings("activations");
  const std::vector<std::string> usual = gates == 4   ? std::vector<std::string>{"Sigmoid", "Tanh", "Tanh"}
                                         : gates == 3 ? std::vector<std::string>{"Sigmoid", "Tanh"}
                                                      : std::vector<std::string>{"Tanh"};
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == usual[i % usual.size()] || (gates == 1 && names[i] == "Relu")) continue;
    return "activation " + names[i];
  }
  return gates == 1 && !names.empty() && names.front() != names.back() ? "different activations per direction" : "";
}

}  // namespace gradloom
