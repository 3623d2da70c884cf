// Random calls of LSTM, GRU and RNN and of their gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/reference/reference.h"

namespace gradloom::recurrent_calls {

inline OperandType Operand(DType dtype, Shape shape) { return {dtype, std::move(shape), {}}; }

struct Kind {
  std::string op, gradient, training;
  int64_t gates, inputs, outputs;
};
inline const Kind kKinds[] = {
    {"LSTM", "LstmGrad", "LstmTraining", 4, 8, 3}, {"GRU", "GruGrad", "GruTraining", 3, 6, 2}, {"RNN", "RnnGrad", "", 1, 6, 2}};

struct Case {
  int64_t steps, batch, input, hidden;
  std::string direction;
  bool batch_first = false, bias = true, states = true, lengths = false, peepholes = false;
  int64_t linear = 0;               // GRU
  std::string activation = "Tanh";  // RNN
};

// A thread has only a few sequences, threads share the hidden units, rows are not a multiple of a tile. All must give the same results.
inline const Case kCases[] = {
    {5, 3, 4, 6, "forward"},
    {5, 3, 4, 6, "reverse", false, true, true, true, false, 1},
    {4, 2, 3, 5, "bidirectional", false, true, false, false, true},
    {4, 3, 5, 7, "bidirectional", true, false, true, true, true, 1, "Relu"},
    {6, 2, 3, 4, "reverse", true, true, true, false, false, 1},
    {1, 1, 1, 1, "forward"},
    {7, 5, 3, 9, "forward", false, true, true, true},
    {12, 17, 40, 64, "bidirectional", false, true, true, false, false, 1, "Relu"},
    {3, 2, 16, 300, "forward", false, true, true, false, false, 1},
    {3, 2, 16, 300, "reverse", true, true, true, false, true},
    {3, 2, 16, 300, "reverse", false, true, true, true},
};

// A call with random operands. Sequence lengths lie in [0, steps].
struct Drawn {
  KernelCall call;
  std::vector<Tensor> inputs;
};

inline Drawn Draw(const Case& c, const Kind& kind, std::mt19937_64& random) {
  const auto f = [](Shape shape) { return Operand(DType::kFloat32, std::move(shape)); };
  const int64_t d = c.direction == "bidirectional" ? 2 : 1, width = kind.gates * c.hidden;
  const OperandType state = f(c.batch_first ? Shape{c.batch, d, c.hidden} : Shape{d, c.batch, c.hidden});
  Drawn drawn;
  KernelCall& call = drawn.call;
  call.op = kind.op;
  call.attributes = {{"direction", c.direction}, {"layout", int64_t{c.batch_first}}, {"hidden_size", c.hidden}};
  if (kind.op == "GRU") call.attributes.set("linear_before_reset", c.linear);
  if (kind.op == "RNN") call.attributes.set("activations", std::vector<std::string>(static_cast<size_t>(d), c.activation));
  call.inputs = {f(c.batch_first ? Shape{c.batch, c.steps, c.input} : Shape{c.steps, c.batch, c.input}),
                 f({d, width, c.input}),
                 f({d, width, c.hidden}),
                 c.bias ? f({d, 2 * width}) : OperandType{},
                 c.lengths ? Operand(DType::kInt32, {c.batch}) : OperandType{},
                 c.states ? state : OperandType{}};
  if (kind.op == "LSTM") {
    call.inputs.push_back(c.states ? state : OperandType{});
    call.inputs.push_back(c.peepholes ? f({d, 3 * c.hidden}) : OperandType{});
  }
  call.outputs = {f(c.batch_first ? Shape{c.batch, c.steps, d, c.hidden} : Shape{c.steps, d, c.batch, c.hidden})};
  call.outputs.resize(static_cast<size_t>(kind.outputs), state);
  std::uniform_real_distribution<float> real(-0.5f, 0.5f);
  std::uniform_int_distribution<int> length(0, static_cast<int>(c.steps));
  for (const OperandType& type : call.inputs) {
    drawn.inputs.push_back(type.present() ? Tensor(type.dtype, type.shape) : Tensor());
    if (!type.present()) continue;
    if (type.dtype == DType::kInt32) {
      for (int32_t& value : drawn.inputs.back().as<int32_t>()) value = length(random);
    } else {
      for (float& value : drawn.inputs.back().as<float>()) value = real(random);
    }
  }
  return drawn;
}

// The training form of a call.
inline KernelCall TrainingOf(KernelCall call, const Kind& kind) {
  const int64_t blocks = kind.gates + (kind.op == "LSTM" || call.attributes.Int("linear_before_reset", 0) != 0 ? 1 : 0);
  const Shape& x = call.inputs[0].shape;
  call.op = kind.training;
  call.domain = "gradloom";
  call.outputs.push_back(Operand(DType::kFloat32, {call.inputs[2].shape[0], x[0], x[1], blocks * call.inputs[2].shape[2]}));
  return call;
}

// A gradient call with random output gradients, for every differentiable input.
inline Drawn DrawGradient(const Case& c, const Kind& kind, std::mt19937_64& random) {
  Drawn drawn = Draw(c, kind, random);
  KernelCall& call = drawn.call;
  const std::vector<OperandType> outputs = call.outputs;
  call.outputs.clear();
  std::vector<int64_t> wanted;
  for (int64_t i = 0; i < kind.inputs; ++i) {
    if (i == 4 || !call.inputs[static_cast<size_t>(i)].present()) continue;
    wanted.push_back(i);
    call.outputs.push_back(call.inputs[static_cast<size_t>(i)]);
  }
  call.op = kind.gradient;
  call.domain = "gradloom";
  call.attributes.set("wanted", wanted);
  std::uniform_real_distribution<float> real(-0.5f, 0.5f);
  for (const OperandType& type : outputs) {
    call.inputs.push_back(type);
    drawn.inputs.emplace_back(type.dtype, type.shape);
    for (float& value : drawn.inputs.back().as<float>()) value = real(random);
  }
  return drawn;
}

// Passes the values saved by the forward pass to a gradient call.
inline void GiveSteps(Drawn& drawn, const Kind& kind) {
  KernelCall forward = drawn.call;
  forward.op = kind.op;
  forward.domain = "";
  forward.inputs.resize(static_cast<size_t>(kind.inputs));
  forward.outputs = {drawn.call.inputs[static_cast<size_t>(kind.inputs)], {}};
  forward.outputs.resize(static_cast<size_t>(kind.outputs));
  if (!kind.training.empty()) forward = TrainingOf(forward, kind);
  const std::vector<Tensor> inputs(drawn.inputs.begin(), drawn.inputs.begin() + kind.inputs);
  const std::vector<Tensor> results = RunReference(forward, inputs);
  for (size_t i : {size_t{0}, static_cast<size_t>(kind.outputs)}) {
    if (i >= results.size()) continue;
    drawn.call.inputs.push_back(forward.outputs[i]);
    drawn.inputs.push_back(results[i]);
  }
}

}  // namespace gradloom::recurrent_calls
