// Compares LSTM, GRU and RNN, computed as products, with the reference kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "tests/kernels/compare.h"
#include "tests/kernels/recurrent_calls.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

using namespace recurrent_calls;  // NOLINT: all of it

// The tolerance of sums of a few hundred products in another order.
const Comparison kTolerance{.absolute = 3e-5, .relative = 3e-5, .scale = 1, .low = -0.5, .high = 0.5};

Comparison How(const Drawn& drawn) {
  Comparison comparison = kTolerance;
  comparison.fill = [&drawn](int i, Tensor& tensor, std::mt19937_64&) {
    tensor = drawn.inputs[static_cast<size_t>(i)].Clone();
    return true;
  };
  return comparison;
}

TEST(Recurrent, Forward) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const Case& c : kCases) {
      Drawn drawn = Draw(c, kind, random);
      ExpectSameAsReference(drawn.call, random, How(drawn), "cpu." + kind.op);
      if (!kind.training.empty()) {
        ExpectSameAsReference(TrainingOf(drawn.call, kind), random, How(drawn), "cpu." + kind.training);
      }
      drawn.call.outputs = {{}, drawn.call.outputs[1]};
      ExpectSameAsReference(drawn.call, random, How(drawn), "cpu." + kind.op);
      // Trailing optional operands may be left out entirely.
      drawn.call.inputs.resize(3);
      drawn.inputs.resize(3);
      ExpectSameAsReference(drawn.call, random, How(drawn), "cpu." + kind.op);
    }
  }
}

TEST(Recurrent, Gradient) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const Case& c : kCases) {
      Drawn drawn = DrawGradient(c, kind, random);
      const std::string name = "onednn." + kind.gradient;
      ExpectSameAsReference(drawn.call, random, How(drawn), name);
      GiveSteps(drawn, kind);
      ExpectSameAsReference(drawn.call, random, How(drawn), name);
      // A single gradient of a single output.
      drawn.call.attributes.set("wanted", std::vector<int64_t>{2});
      drawn.call.outputs = {drawn.call.inputs[2]};
      for (int64_t i = 1; i < kind.outputs; ++i) drawn.call.inputs[static_cast<size_t>(kind.inputs + i)] = {};
      ExpectSameAsReference(drawn.call, random, How(drawn), name);
    }
  }
}

std::vector<Tensor> OutputsOf(const KernelCall& call, const std::string& name, const std::vector<Tensor>& inputs) {
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
  return outputs;
}

// Several numbers of threads give the bits of one thread.
void ExpectSameBitsOnThreads(KernelCall call, const std::string& name, const std::vector<Tensor>& inputs) {
  const std::vector<Tensor> one = OutputsOf(call, name, inputs);
  for (const int threads : {2, 3, 4, 8}) {
    call.threads = threads;
    const std::vector<Tensor> several = OutputsOf(call, name, inputs);
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(std::memcmp(one[i].data(), several[i].data(), static_cast<size_t>(one[i].bytes())), 0)
          << name << ", output " << i << ", " << threads << " threads";
    }
  }
}

// The states have the same bits however threads share the steps.
TEST(Recurrent, StatesDoNotDependOnThreads) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = Draw({5, 6, 8, 384, "bidirectional"}, kind, random);
    // The projection is 0, so the inputs have no effect.
    std::fill(drawn.inputs[1].as<float>().begin(), drawn.inputs[1].as<float>().end(), 0.0f);
    ExpectSameBitsOnThreads(drawn.call, "cpu." + kind.op, drawn.inputs);
  }
}

// Those of weights are sums over all steps and sequences, which the library would divide by its threads.
TEST(Recurrent, GradientsDoNotDependOnThreads) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const Case& c : {Case{70, 33, 5, 16, "forward"}, Case{70, 33, 16, 24, "bidirectional"}}) {
      Drawn drawn = DrawGradient(c, kind, random);
      ExpectSameBitsOnThreads(drawn.call, "onednn." + kind.gradient, drawn.inputs);
    }
  }
}

TEST(Recurrent, ReadsNothingPastTheEndOfASequence) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = DrawGradient({4, 2, 3, 5, "bidirectional", false, true, true, true}, kind, random);
    for (int32_t& length : drawn.inputs[4].as<int32_t>()) length = 3;
    const auto x = drawn.inputs[0].as<float>();
    std::fill(x.end() - 2 * 3, x.end(), std::numeric_limits<float>::quiet_NaN());
    ExpectSameAsReference(drawn.call, random, How(drawn), "onednn." + kind.gradient);
  }
}

// A network that diverged does not look finite.
TEST(Recurrent, NanStaysNan) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const char* activation : {"Tanh", "Relu"}) {
      Drawn drawn = Draw({4, 2, 3, 5, "forward", false, true, true, false, false, 0, activation}, kind, random);
      drawn.inputs[0].as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(RunReference(drawn.call, drawn.inputs)[0].as<float>()[0])) << kind.op << " " << activation;
      ExpectSameAsReference(drawn.call, random, How(drawn), "cpu." + kind.op);
    }
  }
}

TEST(Recurrent, RejectsInvalidLengths) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = Draw({4, 2, 3, 5, "forward", false, true, true, true}, kind, random);
    for (int32_t length : {-1, 5}) {
      drawn.inputs[4].as<int32_t>()[1] = length;
      try {
        OutputsOf(drawn.call, "cpu." + kind.op, drawn.inputs);
        ADD_FAILURE() << kind.op << " takes length " << length;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kData);
      }
    }
  }
}

TEST(Recurrent, LeavesUnusualCallsToTheReference) {
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
    // Invalid shapes, as in a hostile plan, are rejected.
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
