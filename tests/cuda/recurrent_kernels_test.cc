// LSTM, GRU and RNN computed as products on the CUDA device, compared with the reference kernels.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/cuda/recurrent_calls.h"
#include "tests/seed/test_seed.h"

namespace gradloom {
namespace {

using namespace recurrent_calls;  // NOLINT: all of it

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat16, DType::kBfloat16};

// Calls f(case, drawn, where) for each kind and case in each type.
template <typename Make, typename F>
void ForEachCase(const Make& make, const F& f) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (size_t c = 0; c < std::size(kCases); ++c) {
      const Drawn drawn = make(kCases[c], kind, random);
      for (const DType dtype : kTypes) {
        SCOPED_TRACE(kind.op + " case " + std::to_string(c) + " " + std::string(DTypeName(dtype)));
        f(kind, InType(drawn, dtype), ToleranceOf(dtype));
      }
    }
  }
}

TEST(CudaRecurrent, Forward) {
  ForEachCase(Draw, [](const Kind& kind, Drawn drawn, double tolerance) {
    const std::string row = "cublas." + kind.op;
    const std::vector<Tensor> wanted = RunReference(drawn.call, drawn.inputs);
    ExpectNear(OnDevice(drawn, row), wanted, tolerance);
    drawn.call.outputs = {{}, drawn.call.outputs[1]};
    ExpectNear(OnDevice(drawn, row), {Tensor(), wanted[1]}, tolerance);
    // Trailing optional operands may be left out entirely.
    drawn.call.inputs.resize(3);
    drawn.inputs.resize(3);
    ExpectNear(OnDevice(drawn, row), RunReference(drawn.call, drawn.inputs), tolerance);
  });
}

TEST(CudaRecurrent, TrainingForm) {
  ForEachCase(Draw, [](const Kind& kind, const Drawn& drawn, double tolerance) {
    if (kind.training.empty()) return;
    const std::vector<Tensor> plain = OnDevice(drawn, "cublas." + kind.op);
    const Drawn training = TrainingFormOf(drawn, kind);
    std::vector<Tensor> kept = OnDevice(training, "cublas.gradloom." + kind.training);
    ExpectNear(kept, RunReference(training.call, training.inputs), tolerance);
    kept.pop_back();
    EXPECT_EQ(BytesOf(kept), BytesOf(plain));
  });
}

TEST(CudaRecurrent, Gradient) {
  ForEachCase(DrawGradient, [](const Kind& kind, Drawn drawn, double tolerance) {
    const std::string row = "cublas.gradloom." + kind.gradient;
    const std::vector<Tensor> wanted = RunReference(drawn.call, drawn.inputs);
    const std::vector<Tensor> alone = OnDevice(drawn, row);
    // At the kink of Relu, a state that is rounded to 16 bits may fall on the other side.
    const std::vector<std::string> activations = drawn.call.attributes.Strings("activations");
    const bool kinks = !activations.empty() && activations[0] == "Relu" && drawn.call.inputs[0].dtype != DType::kFloat32;
    if (!kinks) ExpectNear(alone, wanted, tolerance);
    // Values saved by the forward pass give the same bits.
    Drawn forward = drawn;
    forward.call.op = kind.op;
    forward.call.domain = "";
    forward.call.inputs.resize(static_cast<size_t>(kind.inputs));
    forward.inputs.resize(static_cast<size_t>(kind.inputs));
    forward.call.outputs = {drawn.call.inputs[static_cast<size_t>(kind.inputs)], {}};
    forward.call.outputs.resize(static_cast<size_t>(kind.outputs));
    if (!kind.training.empty()) forward = TrainingFormOf(forward, kind);
    const std::vector<Tensor> kept = OnDevice(forward, kind.training.empty() ? "cublas." + kind.op : "cublas.gradloom." + kind.training);
    for (size_t i : {size_t{0}, static_cast<size_t>(kind.outputs)}) {
      if (i >= kept.size()) continue;
      drawn.call.inputs.push_back(forward.call.outputs[i]);
      drawn.inputs.push_back(kept[i]);
    }
    EXPECT_EQ(BytesOf(OnDevice(drawn, row)), BytesOf(alone));
    // A single gradient of a single output.
    drawn.call.attributes.set("wanted", std::vector<int64_t>{2});
    drawn.call.outputs = {drawn.call.inputs[2]};
    for (int64_t i = 1; i < kind.outputs; ++i) {
      drawn.call.inputs[static_cast<size_t>(kind.inputs + i)] = {};
      drawn.inputs[static_cast<size_t>(kind.inputs + i)] = Tensor();
    }
    if (!kinks) ExpectNear(OnDevice(drawn, row), RunReference(drawn.call, drawn.inputs), tolerance);
  });
}

TEST(CudaRecurrent, ReadsNothingPastTheEndOfASequence) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    for (const bool batch_first : {false, true}) {
      Drawn drawn = DrawGradient({4, 2, 3, 5, "bidirectional", batch_first, true, true, true}, kind, random);
      drawn.inputs[4].as<int32_t>()[0] = 4;
      drawn.inputs[4].as<int32_t>()[1] = 3;
      const auto x = drawn.inputs[0].as<float>();
      // The last step of the second sequence is last in memory in either order of the axes.
      std::fill(x.end() - 3, x.end(), std::numeric_limits<float>::quiet_NaN());
      ExpectNear(OnDevice(drawn, "cublas.gradloom." + kind.gradient), RunReference(drawn.call, drawn.inputs), 2e-5);
    }
  }
}

TEST(CudaRecurrent, ReportsInvalidLengths) {
  std::mt19937_64 random(TestSeed());
  for (const Kind& kind : kKinds) {
    Drawn drawn = DrawGradient({4, 2, 3, 5, "bidirectional", false, true, true, true}, kind, random);
    for (const int32_t length : {-1, 5}) {
      drawn.inputs[4].as<int32_t>()[1] = length;
      cuda::DataFault found;
      RunKernel(*FindKernel("cublas.gradloom." + kind.gradient), drawn.call, drawn.inputs, nullptr, &found);
      EXPECT_EQ(found.kind, cuda::kLengthOutOfRange);
      EXPECT_EQ(found.value, length);
      EXPECT_EQ(found.limit, 4);
    }
  }
}

TEST(CudaRecurrent, UnusualCallsUsePlainKernels) {
  std::mt19937_64 random(3);
  for (const Kind& kind : kKinds) {
    const Drawn drawn = Draw(kCases[0], kind, random);
    const KernelCall& call = drawn.call;
    const auto chosen = [&](const KernelCall& c) { return std::string(ChooseKernel(DeviceKind::kCuda, c)->name); };
    EXPECT_EQ(chosen(call), "cublas." + kind.op);
    KernelCall other = call;
    other.attributes.set("clip", 1.0);
    EXPECT_EQ(chosen(other), "cuda." + kind.op);
    other = call;
    other.attributes.set("activations", std::vector<std::string>{"Softsign", "Softsign", "Softsign"});
    EXPECT_EQ(chosen(other), "cuda." + kind.op);
    EXPECT_EQ(chosen(InType(drawn, DType::kFloat64).call), "cuda." + kind.op);
    // Plain kernels have no training form, and their gradients use no saved values.
    KernelCall gradient = DrawGradient(kCases[0], kind, random).call;
    gradient.attributes.set("clip", 1.0);
    EXPECT_EQ(chosen(gradient), "cuda.gradloom." + kind.gradient);
    gradient.inputs.push_back(call.outputs[0]);
    EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, gradient), nullptr);
    if (kind.training.empty()) continue;
    KernelCall training = TrainingOf(call, kind);
    EXPECT_EQ(chosen(training), "cublas.gradloom." + kind.training);
    training.attributes.set("clip", 1.0);
    EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, training), nullptr);
  }
}

}  // namespace
}  // namespace gradloom
