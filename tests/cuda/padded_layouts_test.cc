// Plans with operands that are padded to whole words for tensor cores: what has which layout, and trainings with such plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/rows/padded_rows.h"
#include "tests/cuda/library_bits.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

CompileOptions OnGpu(Precision precision, const std::vector<int64_t>& batches) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, batches);
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.precision = precision;
  return options;
}

CompileOptions OnlyTraining(CompileOptions options) {
  options.recipe.fetch_outputs = options.recipe.fetch_gradients = false;
  return options;
}

int64_t StatesIn(const Plan& plan, const Layout& layout) {
  return std::count_if(plan.state.begin(), plan.state.end(), [&](const StateTensor& state) { return state.layout == layout; });
}

// Scores over a number of classes that tensor cores do not take well have padded rows, from the product that makes them to those that read
// their gradient, without a reorder.
TEST(PaddedLayouts, ScoresOfLargeProducts) {
  std::mt19937 random(6);
  const std::string transposed = Weights(random, "w", {67, 64}), plain = Weights(random, "w", {64, 67});
  for (const bool tied : {true, false}) {
    SCOPED_TRACE(tied ? "weights as the embedding stores them" : "weights of a MatMul");
    const Model model =
        ModelOf("g (float[N, 4, 64] x) => (float[M, 67] z)\n<" + (tied ? transposed : plain) + ",\n" + Weights(random, "v", {64, 64}) +
                ", int64[2] flat = {-1, 67}>\n{\n h = MatMul (x, v)\n" + (tied ? " t = Transpose <perm = [1, 0]> (w)\n" : "") +
                " s = MatMul (h, " + (tied ? "t" : "w") + ")\n z = Reshape (s, flat)\n}\n");
    const Plan plan = Compile(model, OnlyTraining(OnGpu(Precision::kBfloat16, {int64_t{1} << 16})));
    EXPECT_EQ(Count(plan, "Reorder"), 0);
    int padded = 0;
    for (const Buffer& buffer : plan.programs[0].buffers) {
      const int rank = buffer.shape.rank();
      padded += rank > 0 && buffer.shape[rank - 1] == 67 && buffer.shape[0] != 64 && buffer.layout == PaddedRows(DType::kBfloat16, rank);
    }
    // The scores, and their gradient over them.
    EXPECT_GE(padded, 1);
    // The weights of a MatMul, their moments and their 16-bit copy.
    EXPECT_EQ(StatesIn(plan, PaddedRows(DType::kBfloat16)), tied ? 0 : 4);
  }
}

// Pointwise operators between a large product and the loss keep the padding. A larger operand is not padded for them.
TEST(PaddedLayouts, PointwiseOperatorsOverScores) {
  std::mt19937 random(9);
  for (const bool shifted : {false, true}) {
    SCOPED_TRACE(shifted ? "shifted by an input" : "capped");
    const Model model = ModelOf("g (float[N, 64] x" + std::string(shifted ? ", float[N, 67] b" : "") + ") => (float[N, 67] z)\n<" +
                                Weights(random, "v", {64, 64}) + ",\n" + Weights(random, "w", {64, 67}) +
                                ", float cap = {30}>\n{\n h = MatMul (x, v)\n s = MatMul (h, w)\n d = Div (s, cap)\n t = Tanh (d)\n" +
                                (shifted ? " m = Mul (t, cap)\n z = Add (m, b)\n" : " z = Mul (t, cap)\n") + "}\n");
    const Plan plan = Compile(model, OnlyTraining(OnGpu(Precision::kBfloat16, {int64_t{1} << 18})));
    const Program& program = plan.programs[0];
    int moved = 0, wide = 0;
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != "Reorder") continue;
      ++moved;
      wide += program.buffers[static_cast<size_t>(instruction.uses[0].buffer)].dtype == DType::kFloat32;
    }
    EXPECT_EQ(moved > 0, shifted);
    EXPECT_EQ(wide, 0);
  }
}

// A weight whose rows are its classes is padded, too, with its optimizer's state and its 16-bit copy.
TEST(PaddedLayouts, WeightsOfLargeProducts) {
  std::mt19937 random(7);
  for (const char* op : {"Gemm", "MatMul"}) {
    const Model model = ModelOf("g (float[N, 64] x) => (float[N, 67] z)\n<" + Weights(random, "w", {64, 67}) + ",\n" +
                                Weights(random, "v", {64, 64}) + ">\n{\n h = Gemm (x, v)\n z = " + op + " (h, w)\n}\n");
    for (const Precision precision : {Precision::kTf32, Precision::kBfloat16}) {
      const Plan plan = Compile(model, OnlyTraining(OnGpu(precision, {int64_t{1} << 18})));
      const bool tf32 = precision == Precision::kTf32;
      EXPECT_EQ(StatesIn(plan, PaddedRows(tf32 ? DType::kFloat32 : DType::kBfloat16)), tf32 ? 3 : 4) << op;
    }
  }
}

// A hidden layer of odd width: its activations are padded where products write and read them, also through views of more axes.
TEST(PaddedLayouts, HiddenLayersOfLargeProducts) {
  std::mt19937 random(5);
  const Model model =
      ModelOf("g (float[N, 4, 64] x) => (float[N, 4, 64] z)\n<" + Weights(random, "u", {64, 67}) + ",\n" + Weights(random, "b", {67}) +
              ",\n" + Weights(random, "w", {67, 64}) + ">\n{\n p = MatMul (x, u)\n q = Add (p, b)\n h = Relu (q)\n z = MatMul (h, w)\n}\n");
  CompileOptions options = OnlyTraining(OnGpu(Precision::kBfloat16, {int64_t{1} << 16}));
  options.recipe.losses = {{.type = "mse", .output = "z", .target = "target"}};
  const Plan plan = Compile(model, options);
  int64_t relus = 0;
  for (const Instruction& instruction : plan.programs[0].instructions) {
    if (instruction.op != "GemmRelu" && instruction.op != "MatMul") continue;
    for (const Use& use : instruction.uses) {
      const Buffer& buffer = plan.programs[0].buffers[static_cast<size_t>(use.buffer)];
      const int rank = buffer.shape.rank();
      if (rank < 2 || buffer.shape[rank - 1] != 67) continue;
      EXPECT_EQ(buffer.layout, PaddedRows(DType::kBfloat16, rank));
      relus += instruction.op == "GemmRelu" && use.access == Access::kWrite;
    }
  }
  EXPECT_EQ(relus, 1);
}

// The weights have the layout that the large entry needs. The small one trains with it, and fetches gradients and scores in row-major
// order.
TEST(PaddedLayouts, TrainingWithPaddedWeights) {
  std::mt19937 random(8);
  const Model model = ModelOf("g (float[N, 2, 256] x) => (float[N, 259] z)\n<" + Weights(random, "v", {256, 256}, 0.1F) + ",\n" +
                              Weights(random, "w", {256, 259}, 0.1F) +
                              ">\n{\n h = MatMul (x, v)\n a = Tanh (h)\n s = MatMul (a, w)\n"
                              " z = ReduceMean <axes = [1], keepdims = 0> (s)\n}\n");
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{5, 2, 256})}, {"target", Classes(random, 5, 259)}});
  struct Setting {
    Precision precision;
    const char* optimizer;
    int states;  // with padding
  };
  // LAMB and Adamax update in row-major order.
  for (const Setting& setting : {Setting{Precision::kTf32, "adam", 3}, Setting{Precision::kBfloat16, "adam", 4},
                                 Setting{Precision::kBfloat16, "lamb", 2}, Setting{Precision::kFloat16, "adamax", 2}}) {
    SCOPED_TRACE(setting.optimizer);
    CompileOptions options = OnGpu(setting.precision, {8192, 5});
    options.recipe.optimizer.type = setting.optimizer;
    options.recipe.optimizer.clip_norm = 1;
    if (setting.precision == Precision::kFloat16) options.recipe.loss_scale = {.initial = 0x1p8, .dynamic = true};
    const Layout layout = PaddedRows(setting.precision == Precision::kTf32 ? DType::kFloat32 : DType::kBfloat16);
    EXPECT_GE(StatesIn(Compile(model, options), layout), setting.states);
    const auto padded = Train(model, options, batches);
    options.control.disabled = {"assign_layouts"};
    EXPECT_EQ(StatesIn(Compile(model, options), layout), 0);
    // Adam and Adamax turn the rounding errors of a nearly zero gradient into full steps.
    ExpectSameBitsOfLibraries(Train(model, options, batches), padded, 0.1);
  }
}

// Whether cuDNN runs the instruction on an operand in this layout.
bool ConvolvesIn(const Layout& layout, const Program& program, const Instruction& instruction) {
  return instruction.kernel.starts_with("cudnn.") && std::any_of(instruction.uses.begin(), instruction.uses.end(), [&](const Use& use) {
           return program.buffers[static_cast<size_t>(use.buffer)].layout == layout;
         });
}

// Images of three channels, of which the first convolution reads eight. Its weights, their copy and their optimizer's state have eight,
// too.
TEST(PaddedLayouts, ImagesHaveWholeWordsOfChannels) {
  std::mt19937 random(9);
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 9, 8})}, {"target", Classes(random, 5, 4)}});
  struct Setting {
    bool scaled;  // by trained numbers, so that the gradient of the images is needed
    const char* optimizer;
    Precision precision;
  };
  for (const Setting& setting : {Setting{false, "adam", Precision::kBfloat16}, Setting{true, "sgd", Precision::kBfloat16},
                                 Setting{true, "adam", Precision::kFloat16}}) {
    SCOPED_TRACE(setting.optimizer);
    const Model model = ModelOf("g (float[N, 3, 9, 8] x) => (float[N, 4] z)\n<" + Weights(random, "w0", {16, 3, 5, 5}, 0.2F) + ",\n" +
                                Weights(random, "w1", {4, 16, 3, 3}, 0.2F) + ",\n" + Weights(random, "s", {3, 1, 1}) +
                                ",\nint64[2] rest = {0, -1}> {\n" + (setting.scaled ? " i = Mul (x, s)\n" : " i = Identity (x)\n") +
                                " a = Conv <pads = [2, 2, 2, 2]> (i, w0)\n b = Tanh (a)\n"
                                " c = Conv <strides = [2, 2]> (b, w1)\n d = Tanh (c)\n"
                                " f = GlobalAveragePool (d)\n z = Reshape (f, rest)\n}\n");
    CompileOptions options = OnGpu(setting.precision, {5});
    options.recipe.optimizer.type = setting.optimizer;
    // Without the fetches, for which gradients and images of the plan are reordered.
    const Plan plan = Compile(model, OnlyTraining(options));
    const Layout padded = PaddedChannels(DType::kBfloat16, 4);
    EXPECT_EQ(StatesIn(plan, padded), setting.optimizer == std::string("adam") ? 4 : 2);
    // After the last pooling; with trained scales, also the images and their gradient. Otherwise the cast of the images writes their
    // padding.
    EXPECT_LE(Count(plan, "Reorder"), setting.scaled ? 3 : 1);
    int64_t convolutions = 0, casts = 0;
    for (const Program& program : plan.programs) {
      for (const Instruction& instruction : program.instructions) {
        convolutions += ConvolvesIn(padded, program, instruction);
        casts += instruction.kernel == "cuda.CastIntoWords";
      }
    }
    EXPECT_EQ(casts, setting.scaled ? 0 : 1);
    EXPECT_EQ(convolutions, setting.scaled ? 3 : 2);
    const auto with = Train(model, options, batches);
    options.control.disabled = {"assign_layouts"};
    EXPECT_EQ(StatesIn(Compile(model, options), padded), 0);
    // Sums in another order, rounded to 16 bits.
    ExpectNear(Train(model, options, batches), with, 6e-2);
  }
}

}  // namespace
}  // namespace gradloom
