// LSTM over products against the reference kernel.
#include <gtest/gtest.h>

#include <string>

#include "tests/kernels/compare.h"

namespace gradloom {
namespace {

struct Case {
  int64_t steps, batch, input, hidden;
  std::string direction;
  bool batch_first = false, bias = true, states = true;
};

const Case kCases[] = {
    {5, 3, 4, 6, "forward"},
    {5, 3, 4, 6, "reverse"},
    {4, 2, 3, 5, "bidirectional", false, true, false},
    {4, 3, 5, 7, "bidirectional", true, false},
    {6, 2, 3, 4, "reverse", true},
    {1, 1, 1, 1, "forward"},
    {12, 16, 40, 64, "bidirectional"},
};

struct Operands {
  std::vector<OperandType> inputs;
  OperandType y, state;
};

Operands OperandsOf(const Case& c) {
  const auto f = [](Shape shape) { return Plain(DType::kFloat32, std::move(shape)); };
  const int64_t d = c.direction == "bidirectional" ? 2 : 1, width = 4 * c.hidden;
  Operands o;
  o.state = f(c.batch_first ? Shape{c.batch, d, c.hidden} : Shape{d, c.batch, c.hidden});
  o.y = f(c.batch_first ? Shape{c.batch, c.steps, d, c.hidden} : Shape{c.steps, d, c.batch, c.hidden});
  o.inputs = {f(c.batch_first ? Shape{c.batch, c.steps, c.input} : Shape{c.steps, c.batch, c.input}),
              f({d, width, c.input}),
              f({d, width, c.hidden}),
              c.bias ? f({d, 2 * width}) : OperandType{},
              {},
              c.states ? o.state : OperandType{},
              c.states ? o.state : OperandType{}};
  return o;
}

Attributes AttributesOf(const Case& c) {
  return {{"direction", c.direction}, {"layout", int64_t{c.batch_first}}, {"hidden_size", c.hidden}};
}

const Comparison kHow{.absolute = 2e-5, .relative = 2e-5, .scale = 1, .low = -0.5, .high = 0.5};

TEST(Lstm, Forward) {
  std::mt19937_64 random(TestSeed());
  for (const Case& c : kCases) {
    const Operands o = OperandsOf(c);
    KernelCall call{.op = "LSTM", .domain = "", .attributes = AttributesOf(c), .inputs = o.inputs, .outputs = {o.y, o.state, o.state}};
    ExpectSameAsReference(call, random, kHow, "onednn.LSTM");
    call.outputs = {{}, o.state};
    ExpectSameAsReference(call, random, kHow, "onednn.LSTM");
    // What is optional may not even have a place.
    call.inputs.resize(3);
    ExpectSameAsReference(call, random, kHow, "onednn.LSTM");
  }
}

TEST(Lstm, Gradient) {
  std::mt19937_64 random(TestSeed());
  for (const Case& c : kCases) {
    const Operands o = OperandsOf(c);
    KernelCall call{.op = "LstmGrad", .domain = "gradloom", .attributes = AttributesOf(c), .inputs = o.inputs, .outputs = {}};
    call.inputs.resize(8);
    for (const OperandType& gradient : {o.y, o.state, o.state}) call.inputs.push_back(gradient);
    std::vector<int64_t> wanted;
    for (int64_t i : {0, 1, 2, 3, 5, 6}) {
      if (!call.inputs[static_cast<size_t>(i)].present()) continue;
      wanted.push_back(i);
      call.outputs.push_back(call.inputs[static_cast<size_t>(i)]);
    }
    call.attributes.set("wanted", wanted);
    ExpectSameAsReference(call, random, kHow, "onednn.LstmGrad");
    // One gradient of one output alone.
    call.attributes.set("wanted", std::vector<int64_t>{2});
    call.outputs = {call.inputs[2]};
    call.inputs[9] = call.inputs[10] = {};
    ExpectSameAsReference(call, random, kHow, "onednn.LstmGrad");
  }
}

TEST(Lstm, LeavesTheUnusualToTheReference) {
  const Operands o = OperandsOf(kCases[0]);
  KernelCall call{
      .op = "LSTM", .domain = "", .attributes = AttributesOf(kCases[0]), .inputs = o.inputs, .outputs = {o.y, o.state, o.state}};
  const auto chosen = [&](const KernelCall& c) { return std::string(ChooseKernel(DeviceKind::kCpu, c)->name); };
  EXPECT_EQ(chosen(call), "onednn.LSTM");
  KernelCall clipped = call;
  clipped.attributes.set("clip", 1.0);
  EXPECT_EQ(chosen(clipped), "reference.LSTM");
  KernelCall lengths = call;
  lengths.inputs[4] = Plain(DType::kInt32, {3});
  EXPECT_EQ(chosen(lengths), "reference.LSTM");
  // A hostile plan's shapes are refused.
  KernelCall wrong = call;
  wrong.inputs[1].shape = {1, 24, 5};
  EXPECT_NE(Rejection(*FindKernel("onednn.LSTM"), wrong), "");
  wrong = call;
  wrong.outputs[0].shape = {5, 1, 3, 7};
  EXPECT_NE(Rejection(*FindKernel("onednn.LSTM"), wrong), "");
}

}  // namespace
}  // namespace gradloom
