// LSTM, GRU and RNN over products against the reference kernels.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/reference/reference.h"
#include "tests/kernels/compare.h"

namespace gradloom {
namespace {

struct Kind {
  std::string op, gradient, training;
  int64_t gates, inputs, outputs;
};
const Kind kKinds[] = {
    {"LSTM", "LstmGrad", "LstmTraining", 4, 8, 3}, {"GRU", "GruGrad", "GruTraining", 3, 6, 2}, {"RNN", "RnnGrad", "", 1, 6, 2}};

struct Case {
  int64_t steps, batch, input, hidden;
  std::string direction;
  bool batch_first = false, bias = true, states = true, lengths = false, peepholes = false;
  int64_t linear = 0;               // GRU
  std::string activation = "Tanh";  // RNN
};

// One thread has a few sequences, threads share the hidden units, rows are no multiple of a tile: all of them must give the same.
const Case kCases[] = {
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

// How close sums of some hundred products in another order are.
const Comparison kHow{.absolute = 3e-5, .relative = 3e-5, .scale = 1, .low = -0.5, .high = 0.5};

// A call with random operands; lengths lie in [0, steps].
struct Drawn {
  KernelCall call;
  std::vector<Tensor> inputs;

  Comparison how() const {
    Comparison comparison = kHow;
    comparison.fill = [this](int i, Tensor& tensor, std::mt19937_64&) {
      tensor = inputs[static_cast<size_t>(i)].Clone();
      return true;
    };
    return comparison;
  }
};

Drawn Draw(const Case& c, const Kind& kind, std::mt19937_64& random) {
  const auto f = [](Shape shape) { return Plain(DType::kFloat32, std::move(shape)); };
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
                 c.lengths ? Plain(DType::kInt32, {c.batch}) : OperandType{},
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
KernelCall TrainingOf(KernelCall call, const Kind& kind) {
  const int64_t blocks = kind.gates + (kind.op == "LSTM" || call.attributes.Int("linear_before_reset", 0) != 0 ? 1 : 0);
  const Shape& x = call.inputs[0].shape;
  call.op = kind.training;
  call.domain = "gradloom";
  call.outputs.push_back(Plain(DType::kFloat32, {call.inputs[2].shape[0], x[0], x[1], blocks * call.inputs[2].shape[2]}));
  return call;
}

TEST(Recurrent, Forward) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const Case& c : kCases) {
      Drawn drawn = Draw(c, kind, random);
      ExpectSameAsReference(drawn.call, random, drawn.how(), "cpu." + kind.op);
      if (!kind.training.empty()) {
        ExpectSameAsReference(TrainingOf(drawn.call, kind), random, drawn.how(), "cpu." + kind.training);
      }
      drawn.call.outputs = {{}, drawn.call.outputs[1]};
      ExpectSameAsReference(drawn.call, random, drawn.how(), "cpu." + kind.op);
      // What is optional may not even have a place.
      drawn.call.inputs.resize(3);
      drawn.inputs.resize(3);
      ExpectSameAsReference(drawn.call, random, drawn.how(), "cpu." + kind.op);
    }
  }
}

// A gradient with random gradients of the outputs, of every input that has one.
Drawn DrawGradient(const Case& c, const Kind& kind, std::mt19937_64& random) {
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

// Gives a gradient what the forward pass computes.
void GiveSteps(Drawn& drawn, const Kind& kind) {
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

TEST(Recurrent, Gradient) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const Case& c : kCases) {
      Drawn drawn = DrawGradient(c, kind, random);
      const std::string name = "onednn." + kind.gradient;
      ExpectSameAsReference(drawn.call, random, drawn.how(), name);
      GiveSteps(drawn, kind);
      ExpectSameAsReference(drawn.call, random, drawn.how(), name);
      // One gradient of one output alone.
      drawn.call.attributes.set("wanted", std::vector<int64_t>{2});
      drawn.call.outputs = {drawn.call.inputs[2]};
      for (int64_t i = 1; i < kind.outputs; ++i) drawn.call.inputs[static_cast<size_t>(kind.inputs + i)] = {};
      ExpectSameAsReference(drawn.call, random, drawn.how(), name);
    }
  }
}

std::vector<char> BytesOf(const KernelCall& call, const std::string& name, const std::vector<Tensor>& inputs) {
  const KernelRow& row = *FindKernel(name);
  std::vector<const void*> in;
  std::vector<Tensor> outputs;
  std::vector<void*> out;
  for (const Tensor& input : inputs) in.push_back(input.defined() ? input.data() : nullptr);
  for (const OperandType& type : call.outputs) {
    outputs.emplace_back(type.dtype, type.shape);
    out.push_back(outputs.back().data());
  }
  Tensor scratch(DType::kUint8, {row.scratch_bytes(call) + 1});
  MakeCpuKernel(row, call)->Run(in.data(), out.data(), scratch.data(), nullptr);
  std::vector<char> bytes;
  for (const Tensor& output : outputs) {
    const char* data = static_cast<const char*>(output.data());
    bytes.insert(bytes.end(), data, data + output.bytes());
  }
  return bytes;
}

// However threads share the steps, the states are the same bit by bit. (Products over all steps are parted by the library.)
TEST(Recurrent, StatesDoNotDependOnThreads) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = Draw({5, 6, 8, 384, "bidirectional"}, kind, random);
    // Without inputs that matter: the projection is 0.
    std::fill(drawn.inputs[1].as<float>().begin(), drawn.inputs[1].as<float>().end(), 0.0f);
    const std::vector<char> one = BytesOf(drawn.call, "cpu." + kind.op, drawn.inputs);
    for (int threads : {2, 3, 4, 8}) {
      drawn.call.threads = threads;
      EXPECT_EQ(BytesOf(drawn.call, "cpu." + kind.op, drawn.inputs), one) << kind.op << " " << threads;
    }
  }
}

TEST(Recurrent, NothingPastTheEndOfASequenceIsRead) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = DrawGradient({4, 2, 3, 5, "bidirectional", false, true, true, true}, kind, random);
    for (int32_t& length : drawn.inputs[4].as<int32_t>()) length = 3;
    const auto x = drawn.inputs[0].as<float>();
    std::fill(x.end() - 2 * 3, x.end(), std::numeric_limits<float>::quiet_NaN());
    ExpectSameAsReference(drawn.call, random, drawn.how(), "onednn." + kind.gradient);
  }
}

TEST(Recurrent, RefusesALengthThatIsNone) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = Draw({4, 2, 3, 5, "forward", false, true, true, true}, kind, random);
    for (int32_t length : {-1, 5}) {
      drawn.inputs[4].as<int32_t>()[1] = length;
      try {
        BytesOf(drawn.call, "cpu." + kind.op, drawn.inputs);
        ADD_FAILURE() << kind.op << " takes length " << length;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kData);
      }
    }
  }
}

TEST(Recurrent, LeavesTheUnusualToTheReference) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    const KernelCall call = Draw(kCases[0], kind, random).call;
    const auto chosen = [&](const KernelCall& c) { return std::string(ChooseKernel(DeviceKind::kCpu, c)->name); };
    EXPECT_EQ(chosen(call), "cpu." + kind.op);
    KernelCall other = call;
    other.attributes.set("clip", 1.0);
    EXPECT_EQ(chosen(other), "reference." + kind.op);
    other = call;
    other.attributes.set("activations", std::vector<std::string>{"Softsign", "Softsign", "Softsign"});
    EXPECT_EQ(chosen(other), "reference." + kind.op);
    // A hostile plan's shapes are refused.
    const KernelRow& row = *FindKernel("cpu." + kind.op);
    other = call;
    other.inputs[1].shape = {1, 24, 5};
    EXPECT_NE(Rejection(row, other), "");
    other = call;
    other.outputs[0].shape = {5, 1, 3, 7};
    EXPECT_NE(Rejection(row, other), "");
    other = call;
    other.inputs[4] = Plain(DType::kFloat32, {3});
    EXPECT_NE(Rejection(row, other), "");
    other = call;
    other.inputs.resize(12, Plain(DType::kFloat32, {3}));
    EXPECT_NE(Rejection(row, other), "");
    if (kind.training.empty()) continue;
    const KernelRow& training = *FindKernel("cpu." + kind.training);
    other = TrainingOf(call, kind);
    EXPECT_EQ(Rejection(training, other), "");
    other.outputs.back().shape = {1, 5, 3, 6};
    EXPECT_NE(Rejection(training, other), "");
    other.outputs.pop_back();
    EXPECT_NE(Rejection(training, other), "");
    other = TrainingOf(call, kind);
    other.op = kind.op;
    other.domain = "";
    EXPECT_NE(Rejection(row, other), "");
  }
}

}  // namespace
}  // namespace gradloom
