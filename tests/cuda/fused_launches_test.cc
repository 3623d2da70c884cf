// Launches that the compiler merges for GPUs: products with their epilogues, and updates of many parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "kernels/catalog/physical.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr char kGelu[] =
    " c3 = Mul (h, h)\n c2 = Mul (c3, h)\n c1 = Mul (c2, k)\n s = Add (h, c1)\n i = Mul (s, r)\n t = Tanh (i)\n o = Add (t, one)\n"
    " h2 = Mul (h, half)\n a = Mul (h2, o)\n";

struct Case {
  std::string name;
  std::string body;  // from x [N, 3, 16] or rows [N, 16] to a [N, 3, 24] or [N, 24]
  Precision precision = Precision::kFloat32;
  bool rows = false;
  int64_t relus = 0, gelus = 0, gelu_gradients = 0, bias_gradients = 0;
};

// The last layer has its own bias. tests/passes/fuse_epilogues_test.cc covers more forms, without a device.
const Case kCases[] = {
    {"a GELU as torch.onnx writes it", " h = Gemm (rows, w, b)\n" + std::string(kGelu), Precision::kBfloat16, true, 0, 1, 1, 1},
};

std::string Net(const Case& c, std::mt19937& random) {
  return "g (float[N, 3, 16] x) => (float[N, 2] z)\n<" + Weights(random, "w", {16, 24}) + ",\n" + Weights(random, "b", {24}) + ",\n" +
         Weights(random, "v", {24, 2}) + ",\n" + Weights(random, "u", {2}) +
         ",\nfloat k = {0.044715}, float r = {0.7978845608}, float one = {1}, float half = {0.5}, int64[1] first = {1}>\n{\n"
         " rows = ReduceMax <keepdims = 0> (x, first)\n" +
         c.body + (c.rows ? " f = Identity (a)\n" : " f = ReduceMean <keepdims = 0> (a, first)\n") + " z = Gemm (f, v, u)\n}\n";
}

CompileOptions OnGpu(Precision precision) {
  CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {5});
  // Adam would turn the rounding error of a nearly zero gradient into a full step.
  options.recipe.optimizer.type = "sgd";
  options.recipe.device = DeviceKind::kCuda;
  options.recipe.isa = "sm_90";
  options.recipe.precision = precision;
  return options;
}

std::vector<Batch> Batches(std::mt19937& random) {
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 16})}, {"target", Classes(random, 5, 2)}});
  return batches;
}

TEST(FuseEpilogues, KeepsResults) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(11);
    const Model model = Model::FromText("<ir_version: 10, opset_import: [\"\" : 20]>\n" + Net(c, random));
    const std::vector<Batch> batches = Batches(random);
    CompileOptions options = OnGpu(c.precision);
    const Plan plan = Compile(model, options);
    EXPECT_EQ(Count(plan, "GemmRelu"), c.relus);
    EXPECT_EQ(Count(plan, "GemmGelu"), c.gelus);
    EXPECT_EQ(Count(plan, "GemmGeluGrad"), c.gelu_gradients);
    EXPECT_EQ(Count(plan, "GemmBiasGrad"), c.bias_gradients);
    const auto fused = Train(model, options, batches);
    options.control.disabled = {"fuse_epilogues", "fuse_gelu"};
    // In 16 bits, fused operators round less often.
    ExpectNear(Train(model, options, batches), fused, c.precision == Precision::kFloat32 ? 1e-5 : 6e-2);
  }
}

// Two layers with norms before and after the residual addition. The bits stay the same, with fewer casts.
TEST(FuseCasts, ChangesNoBit) {
  std::mt19937 random(6);
  std::string weights;
  for (const char* name : {"s0", "b0", "s1", "b1"}) weights += Weights(random, name, {16}) + ",\n";
  const Model model = ModelOf("g (float[N, 3, 16] x) => (float[N, 2] z)\n<" + weights + Weights(random, "w0", {16, 16}) + ",\n" +
                              Weights(random, "w1", {16, 16}) + ",\n" + Weights(random, "v", {16, 2}) +
                              ">\n{\n  h = LayerNormalization (x, s0, b0)\n  m = MatMul (h, w0)\n  a = Add (m, x)\n"
                              "  n = LayerNormalization (a, s1, b1)\n  k = MatMul (n, w1)\n  r = Add (k, n)\n"
                              "  p = ReduceMean <keepdims = 0, axes = [1]> (r)\n  z = MatMul (p, v)\n}\n");
  const std::vector<Batch> batches = Batches(random);
  for (const Precision precision : {Precision::kFloat32, Precision::kFloat16, Precision::kBfloat16}) {
    CompileOptions options = OnGpu(precision);
    const Plan plan = Compile(model, options);
    EXPECT_EQ(Count(plan, "LayerNormCast"), precision == Precision::kFloat32 ? 0 : 2);
    const int64_t casts = Count(plan, "Cast");
    const auto fused = Train(model, options, batches);
    options.control.disabled = {"fuse_casts"};
    EXPECT_EQ(Count(Compile(model, options), "LayerNormCast"), 0);
    // Casts of both results, of the gradient that reaches only the first norm, and of the one that is added to another before the second.
    EXPECT_EQ(Count(Compile(model, options), "Cast") - casts, precision == Precision::kFloat32 ? 0 : 4);
    ExpectSameBits(Train(model, options, batches), fused);
  }
}

// The number of sums that normalize an operand.
int64_t InnerNorms(const Plan& plan) {
  int64_t found = 0;
  for (const Program& program : plan.programs) {
    for (const Instruction& instruction : program.instructions) found += instruction.attributes.Float("inner_epsilon", 0) > 0 ? 1 : 0;
  }
  return found;
}

// Residual sums in front of normalizations and behind them become parts of the normalizations, without a change of any bit.
TEST(FuseNormSums, ChangesNoBit) {
  std::mt19937 random(8);
  std::string weights = Weights(random, "s", {64}) + ",\n";
  for (const char* name : {"s0", "b0", "s1", "b1", "s2", "b2"}) weights += Weights(random, name, {64}) + ",\n";
  for (const char* name : {"w0", "w1", "w2"}) weights += Weights(random, name, {64, 64}, 0.3F) + ",\n";
  const std::string head = "g (float[N, 3, 64] x) => (float[N, 2] z)\n<" + weights + Weights(random, "v", {64, 2}) + ">\n{\n";
  const std::string tail = "  p = ReduceMean <keepdims = 0, axes = [1]> (t)\n  z = MatMul (p, v)\n}\n";
  const std::string before =
      "  x1 = Mul (x, s)\n  a = LayerNormalization (x1, s0, b0)\n  m = MatMul (a, w0)\n  x2 = Add (x1, m)\n"
      "  b = LayerNormalization (x2, s1, b1)\n  k = MatMul (b, w1)\n  x3 = Add (k, x2)\n"
      "  c = LayerNormalization (x3, s2, b2)\n  t = MatMul (c, w2)\n";
  const std::string after =
      "  x0 = Mul (x, s)\n  x1 = LayerNormalization (x0, s0, b0)\n  m = MatMul (x1, w0)\n  d = Add (m, x1)\n"
      "  y1 = LayerNormalization (d, s1, b1)\n  k = MatMul (y1, w1)\n  e = Add (y1, k)\n"
      "  y2 = LayerNormalization (e, s2, b2)\n  t = MatMul (y2, w2)\n";
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 64})}, {"target", Classes(random, 5, 2)}});
  for (const std::string& body : {before, after}) {
    const Model model = ModelOf(head + body + tail);
    for (const Precision precision : {Precision::kFloat32, Precision::kFloat16, Precision::kBfloat16}) {
      CompileOptions options = OnGpu(precision);
      const Plan plan = Compile(model, options);
      const bool fuses = precision != Precision::kFloat32;
      EXPECT_EQ(Count(plan, "SumLayerNorm"), fuses ? 2 : 0);
      // Those whose residual is a normalization's result normalize again, so that no result of one is written in float32.
      EXPECT_EQ(InnerNorms(plan), fuses && body == after ? 2 : 0);
      // In float32 without the one that only casts its result.
      EXPECT_EQ(Count(plan, "SumLayerNormGrad"), fuses ? 3 : 2);
      const auto fused = Train(model, options, batches);
      CompileOptions limited = options;
      limited.recipe.memory_limit = int64_t{1} << 30;
      EXPECT_EQ(Count(Compile(model, limited), "SumLayerNorm"), 0);
      options.control.disabled = {"fuse_norm_sums"};
      EXPECT_EQ(Count(Compile(model, options), "SumLayerNormGrad"), 0);
      ExpectSameBits(Train(model, options, batches), fused);
    }
  }
}

std::string Ones(int64_t count) {
  std::string ones = "1";
  for (int64_t i = 1; i < count; ++i) ones += ", 1";
  return ones;
}

// Scale, bias and running statistics of normalization `n`.
std::string NormWeights(std::mt19937& random, const std::string& n, int64_t channels) {
  std::string weights;
  for (const char* name : {"s", "b", "m"}) weights += Weights(random, name + n, {channels}) + ",\n";
  return weights + "float[" + std::to_string(channels) + "] v" + n + " = {" + Ones(channels) + "},\n";
}

std::string Norm(const std::string& to, const std::string& from, const std::string& n) {
  return "  " + to + " = BatchNormalization (" + from + ", s" + n + ", b" + n + ", m" + n + ", v" + n + ")\n";
}

// Two residual blocks, the first one with a normalization in both branches, behind layers with ReLU and ReLU6, whose gradients become parts
// of those of the normalizations, without a change of any bit.
TEST(FuseNormMasks, ChangesNoBit) {
  std::mt19937 random(12);
  std::string weights = Weights(random, "w0", {8, 3, 3, 3}, 0.5F) + ",\n" + NormWeights(random, "0", 8);
  for (const char* n : {"1", "2", "3", "4"})
    weights += Weights(random, std::string("w") + n, {8, 8, 1, 1}, 0.5F) + ",\n" + NormWeights(random, n, 8);
  const Model model =
      ModelOf("g (float[N, 3, 6, 5] x) => (float[N, 2] z)\n<" + weights + Weights(random, "u", {8, 2}) +
              ",\nfloat low = {0}, float high = {0.5}, int64[2] rest = {0, -1}>\n{\n  c0 = Conv <pads = [1, 1, 1, 1]> (x, w0)\n" +
              Norm("n0", "c0", "0") + "  r0 = Relu (n0)\n  c1 = Conv (r0, w1)\n" + Norm("n1", "c1", "1") +
              "  r1 = Clip (n1, low, high)\n  c2 = Conv (r1, w2)\n" + Norm("n2", "c2", "2") + "  c3 = Conv (r0, w3)\n" +
              Norm("n3", "c3", "3") + "  a1 = Add (n2, n3)\n  r2 = Relu (a1)\n  c4 = Conv (r2, w4)\n" + Norm("n4", "c4", "4") +
              "  a2 = Add (n4, r2)\n  r3 = Relu (a2)\n  p = GlobalAveragePool (r3)\n  f = Reshape (p, rest)\n  z = MatMul (f, u)\n}\n");
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 6, 5})}, {"target", Classes(random, 5, 2)}});
  struct Setting {
    Precision precision = Precision::kFloat32;
    RecomputeMode recompute = RecomputeMode::kNone;
    int streams = 1, accumulate = 1;
  };
  for (const Setting& setting : {Setting{}, Setting{Precision::kBfloat16}, Setting{Precision::kFloat16},
                                 Setting{Precision::kBfloat16, RecomputeMode::kFull}, Setting{.streams = 2, .accumulate = 2}}) {
    CompileOptions options = OnGpu(setting.precision);
    options.recipe.recompute = setting.recompute;
    options.recipe.streams = setting.streams;
    options.recipe.accumulate = setting.accumulate;
    const auto changed = [&] { return Count(Compile(model, options), "MaskedBatchNormGrad"); };
    // Those of n0 and n1; of one of n2 and n3, which read the same gradient; and of n4.
    const int64_t masked = changed();
    EXPECT_TRUE(setting.accumulate == 1 ? masked == 4 : masked >= 4) << masked;
    const auto fused = Train(model, options, batches);
    options.control.disabled = {"fuse_norm_masks"};
    EXPECT_EQ(changed(), 0);
    ExpectSameBits(Train(model, options, batches), fused);
  }
  // Sums over several devices are exposed, so their masks stay apart.
  CompileOptions divided = OnGpu(Precision::kFloat32);
  divided.recipe.devices = 2;
  divided.recipe.sync_bn = true;
  EXPECT_EQ(Count(Compile(model, divided), "MaskedBatchNormGrad"), 0);
}

// A float32 weight of a 16-bit convolution has the layout in which the convolution reads its 16-bit copy, so only the input is reordered.
TEST(AssignLayouts, MasterWeightsHaveTheLayoutOfTheirCopies) {
  std::mt19937 random(9);
  const std::string head = "g (float[N, 8, 6, 6] x) => (float[N, 2] z)\n<";
  const Model model = ModelOf(head + Weights(random, "w0", {16, 8, 3, 3}, 0.2F) + ",\n" + Weights(random, "w1", {8, 16, 3, 3}, 0.1F) +
                              ",\n" + Weights(random, "w2", {2, 8, 1, 1}) +
                              ",\nint64[2] rest = {0, -1}> {\n  a = Conv <pads = [1, 1, 1, 1]> (x, w0)\n  b = Tanh (a)\n"
                              "  c = Conv <strides = [2, 2]> (b, w1)\n  d = Tanh (c)\n  e = Conv (d, w2)\n"
                              "  f = GlobalAveragePool (e)\n  z = Reshape (f, rest)\n}\n");
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{5, 8, 6, 6})}, {"target", Classes(random, 5, 2)}});
  for (const char* optimizer : {"sgd", "adam"}) {
    CompileOptions options = OnGpu(Precision::kBfloat16);
    options.recipe.optimizer.type = optimizer;
    options.recipe.fetch_gradients = false;
    const Plan plan = Compile(model, options);
    options.recipe.fetch_gradients = true;
    int of_weights = 0, in_order = 0;
    for (const Program& program : plan.programs) {
      for (const Instruction& instruction : program.instructions) {
        if (instruction.op != "Reorder") continue;
        const Shape& shape = program.buffers[static_cast<size_t>(instruction.uses[0].buffer)].shape;
        of_weights += shape[2] == 3;
      }
    }
    for (const StateTensor& state : plan.state) in_order += state.layout == ChannelsLast(4);
    EXPECT_EQ(of_weights, 0);
    // The weights, their copies and their optimizer state.
    EXPECT_EQ(in_order, optimizer == std::string("adam") ? 8 : 4);
    const auto ordered = Train(model, options, batches);
    options.control.disabled = {"assign_layouts"};
    // Sums in another order, rounded to 16 bits.
    ExpectNear(Train(model, options, batches), ordered, 6e-2);
  }
}

TEST(SplitConvBias, ChangesNoBit) {
  std::mt19937 random(4);
  const Model model =
      ModelOf("g (float[N, 3, 6, 5] x) => (float[N, 2] z)\n<" + Weights(random, "w0", {8, 3, 3, 3}, 0.3F) + ",\n" +
              Weights(random, "b0", {8}) + ",\n" + Weights(random, "w1", {8, 4, 2, 2}, 0.3F) + ",\n" + Weights(random, "b1", {4}) + ",\n" +
              Weights(random, "w2", {2, 4, 3, 3}, 0.3F) + ",\n" + Weights(random, "b2", {2}) +
              ",\nint64[2] rest = {0, -1}> {\n  a = Conv (x, w0, b0)\n  b = Relu (a)\n"
              "  c = ConvTranspose <strides = [2, 2]> (b, w1, b1)\n  d = Tanh (c)\n  e = Conv (d, w2, b2)\n"
              "  f = GlobalMaxPool (e)\n  z = Reshape (f, rest)\n}\n");
  std::vector<Batch> batches;
  for (int i = 0; i < 2; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 6, 5})}, {"target", Classes(random, 5, 2)}});
  for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
    CompileOptions options = OnGpu(precision);
    const int64_t activations = Count(Compile(model, options), "Relu") + Count(Compile(model, options), "Tanh");
    EXPECT_EQ(activations, 0) << "what follows a sum is fused with it";
    const auto split = Train(model, options, batches);
    options.control.disabled = {"split_conv_bias"};
    ExpectSameBits(Train(model, options, batches), split);
  }
}

TEST(JoinUpdates, ChangesNoBit) {
  std::mt19937 random(5);
  std::string weights, body, last = "rows";
  for (int layer = 0; layer < 20; ++layer) {
    const std::string n = std::to_string(layer);
    weights += Weights(random, "w" + n, {16, 16}) + ",\n" + Weights(random, "b" + n, {16}) + ",\n";
    body += " h" + n + " = Gemm (" + last + ", w" + n + ", b" + n + ")\n a" + n + " = Tanh (h" + n + ")\n";
    last = "a" + n;
  }
  const Model model = ModelOf("g (float[N, 3, 16] x) => (float[N, 2] z)\n<" + weights + Weights(random, "v", {16, 2}) +
                              ">\n{\n rows = ReduceMax <keepdims = 0, axes = [1]> (x)\n" + body + " z = MatMul (" + last + ", v)\n}\n");
  const std::vector<Batch> batches = Batches(random);
  for (const char* optimizer : {"sgd", "adam", "lamb"}) {
    SCOPED_TRACE(optimizer);
    CompileOptions options = OnGpu(Precision::kFloat32);
    options.recipe.optimizer.type = optimizer;
    options.recipe.optimizer.clip_norm = 1;
    // 41 parameters, 32 per launch.
    EXPECT_EQ(Count(Compile(model, options), "MultiTensorUpdate"), std::string(optimizer) == "lamb" ? 0 : 2);
    const auto joined = Train(model, options, batches);
    options.control.disabled = {"join_updates"};
    EXPECT_EQ(Count(Compile(model, options), "MultiTensorUpdate"), 0);
    ExpectSameBits(Train(model, options, batches), joined);
    // Averages read what updates make, and are joined as well.
    options.recipe.optimizer.ema = 0.5;
    const auto averaged = Train(model, options, batches);
    EXPECT_EQ(averaged.size(), joined.size() + 41);
    for (const auto& [name, value] : joined) {
      EXPECT_EQ(std::memcmp(averaged.at(name).data(), value.data(), static_cast<size_t>(value.bytes())), 0) << name;
    }
    options.control.disabled.clear();
    EXPECT_EQ(Count(Compile(model, options), "MultiTensorUpdate"), std::string(optimizer) == "lamb" ? 2 : 4);
    ExpectSameBits(averaged, Train(model, options, batches));
  }
}

// Running means and variances, also of 16-bit layers, and sums of gradients over batches.
TEST(JoinPointwise, ChangesNoBit) {
  std::mt19937 random(8);
  std::string weights, body, last = "x";
  for (int layer = 0; layer < 3; ++layer) {
    const std::string n = std::to_string(layer);
    weights += Weights(random, "w" + n, {8 * (layer + 1), layer == 0 ? 3 : 8 * layer, 1, 1}, 0.3F) + ",\n";
    weights += NormWeights(random, n, 8 * (layer + 1));
    body += " c" + n + " = Conv (" + last + ", w" + n + ")\n n" + n + " = BatchNormalization (c" + n + ", s" + n + ", b" + n + ", m" + n +
            ", v" + n + ")\n a" + n + " = Relu (n" + n + ")\n";
    last = "a" + n;
  }
  const Model model = ModelOf("g (float[N, 3, 4, 4] x) => (float[N, 2] z)\n<" + weights + Weights(random, "u", {24, 2}) +
                              ",\nint64[2] rest = {0, -1}>\n{\n" + body + " p = GlobalAveragePool (" + last +
                              ")\n f = Reshape (p, rest)\n z = MatMul (f, u)\n}\n");
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({{"x", Random(random, Shape{5, 3, 4, 4})}, {"target", Classes(random, 5, 2)}});
  struct Setting {
    Precision precision = Precision::kFloat32;
    int streams = 1, accumulate = 1;
  };
  for (const Setting& setting :
       {Setting{}, Setting{Precision::kBfloat16}, Setting{.streams = 2}, Setting{Precision::kBfloat16, 2}, Setting{.accumulate = 2}}) {
    CompileOptions options = OnGpu(setting.precision);
    options.recipe.streams = setting.streams;
    options.recipe.accumulate = setting.accumulate;
    const Plan plan = Compile(model, options);
    int64_t joined_launches = 0, copies = 0;
    for (const Program& program : plan.programs) {
      for (const Instruction& instruction : program.instructions) {
        if (instruction.kind == InstructionKind::kCopy)
          copies += program.buffers[static_cast<size_t>(instruction.uses.back().buffer)].arena == Arena::kState;
        if (instruction.op != "FusedTensors") continue;
        // Two statistics of each layer, which are updated where they are. Sums of gradients are joined, too.
        EXPECT_GE(instruction.attributes.Int("tensors", 0), 6);
        EXPECT_EQ(instruction.kernel, "cuda.pointwise.FusedTensors2");
        ++joined_launches;
      }
    }
    // The labels are checked before. Accumulated gradients begin as copies.
    if (setting.streams == 1 && setting.accumulate == 1) {
      EXPECT_EQ(copies, 0);
    }
    if (setting.accumulate == 1) {
      EXPECT_EQ(joined_launches, 1);
    } else {
      EXPECT_GE(joined_launches, setting.accumulate);
    }
    const auto joined = Train(model, options, batches);
    options.control.disabled = {"join_pointwise"};
    EXPECT_EQ(Count(Compile(model, options), "FusedTensors"), 0);
    ExpectSameBits(Train(model, options, batches), joined);
  }
}

// Updates that also write the parameters' 16-bit copies, and read 16-bit gradients, joined and alone, with skipped ones.
TEST(KeepWeightCopies, ChangesNoBit) {
  std::mt19937 random(6);
  const Model model =
      ModelOf("g (float[N, 3, 16] x) => (float[N, 2] z)\n<" + Weights(random, "w", {16, 32}) + ",\n" + Weights(random, "b", {32}) + ",\n" +
              Weights(random, "v", {32, 2}) + ",\n" + Weights(random, "large", {32, 2100}, 0.02F) + ",\n" +
              Weights(random, "back", {2100, 32}, 0.02F) +
              ">\n{\n rows = ReduceMax <keepdims = 0, axes = [1]> (x)\n h = Gemm (rows, w, b)\n a = Tanh (h)\n c = MatMul (a, large)\n"
              " d = MatMul (c, back)\n z = MatMul (d, v)\n}\n");
  const std::vector<Batch> batches = Batches(random);
  for (const char* optimizer : {"sgd", "adam", "adamax", "lamb"}) {
    for (const Precision precision : {Precision::kBfloat16, Precision::kFloat16}) {
      SCOPED_TRACE(optimizer);
      CompileOptions options = OnGpu(precision);
      options.recipe.optimizer.type = optimizer;
      options.recipe.fetch_gradients = false;
      if (precision == Precision::kFloat16) options.recipe.loss_scale = {.initial = 0x1p23, .dynamic = true};
      const Plan plan = Compile(model, options);
      const auto copies = std::count_if(plan.state.begin(), plan.state.end(), [](const StateTensor& state) { return state.derived(); });
      EXPECT_EQ(copies, 5);
      const auto kept = Train(model, options, batches);
      options.control.disabled = {"keep_weight_copies", "narrow_gradients"};
      ExpectSameBits(Train(model, options, batches), kept);
      EXPECT_GE(Count(Compile(model, options), "Cast"), Count(plan, "Cast") + 5);
    }
  }
}

}  // namespace
}  // namespace gradloom
