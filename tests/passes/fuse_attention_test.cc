// Attention that an exporter wrote as products and a softmax gives the same results as one operator.
#include "compiler/passes/fuse_attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "tests/passes/small_training.h"

namespace gradloom {
namespace {

constexpr int64_t kHeads = 2, kSize = 3, kWidth = kHeads * kSize, kLength = 5;

struct Case {
  std::string name;
  // ONNX text from the model's q, k, v [N, T, 2, 3] to y [N, T, 6], and the initializers and inputs that it adds.
  std::string body;
  std::string initializers = "", inputs = "";
  bool fuses = true;
  bool flat = true;
};

// Reshapes q, k and v to [N, heads, T, size], with the last two axes of k exchanged.
const std::string kSplit =
    "qh = Transpose <perm = [0, 2, 1, 3]> (q)\n kt = Transpose <perm = [0, 2, 3, 1]> (k)\n vh = Transpose <perm = [0, 2, 1, 3]> (v)\n";
const std::string kJoin = "o = MatMul (p, vh)\n ot = Transpose <perm = [0, 2, 1, 3]> (o)\n y = Reshape (ot, flat)\n";
const std::string kScaled = "s = MatMul (qh, kt)\n c = Mul (s, half)\n";
const std::string kSoftmax = "p = Softmax <axis = -1> (m)\n";

std::string Triangle(const std::string& seen, const std::string& hidden) {
  std::string text;
  for (int64_t i = 0; i < kLength * kLength; ++i) text += (i ? ", " : "") + (i % kLength > i / kLength ? hidden : seen);
  return "[1, 1, 5, 5] mask = {" + text + "}";
}

// A weight that is added to the scores.
std::string Bias(int heads) {
  std::string text;
  for (int i = 0; i < heads * 25; ++i) text += (i ? ", " : "") + std::to_string(0.1 * (i % 7));
  return "float[1, " + std::to_string(heads) + ", 5, 5] bias = {" + text + "}";
}

std::vector<Case> Cases() {
  const std::string plain = "p = Softmax <axis = -1> (c)\n";
  return {
      {"plain", kSplit + kScaled + plain + kJoin},
      {"scale on both operands, softmax along axis 3",
       "qs = Mul (half, q)\n qh = Transpose <perm = [0, 2, 1, 3]> (qs)\n kt0 = Transpose <perm = [0, 2, 3, 1]> (k)\n kt = Div (kt0, two)\n"
       "vh = Transpose <perm = [0, 2, 1, 3]> (v)\n c = MatMul (qh, kt)\n p = Softmax <axis = 3> (c)\n" +
           kJoin},
      {"a scale that is computed", kSplit + "root = Sqrt (two)\n s = MatMul (qh, kt)\n c = Div (s, root)\n" + plain + kJoin},
      {"keys transposed twice",
       "qh = Transpose <perm = [0, 2, 1, 3]> (q)\n kh = Transpose <perm = [0, 2, 1, 3]> (k)\n kt = Transpose <perm = [0, 1, 3, 2]> (kh)\n"
       "vh = Transpose <perm = [0, 2, 1, 3]> (v)\n" +
           kScaled + plain + kJoin},
      {"a mask that is added", kSplit + kScaled + "m = Add (c, mask)\n" + kSoftmax + kJoin, "", ", float[N, 1, 1, 5] mask"},
      {"a causal mask that is added", kSplit + kScaled + "m = Add (mask, c)\n" + kSoftmax + kJoin, ", float" + Triangle("0", "-1e38")},
      {"a causal mask that is computed",
       kSplit + kScaled + "low = Trilu <upper = 0> (mask)\n b = Cast <to = 9> (low)\n m = Where (b, c, least)\n" + kSoftmax + kJoin,
       ", float" + Triangle("1", "1")},
      {"keys that are seen, as a condition", kSplit + kScaled + "m = Where (mask, c, minus)\n" + kSoftmax + kJoin, "",
       ", bool[N, 1, 1, 5] mask"},
      {"nothing is seen of some samples", kSplit + kScaled + "m = Where (mask, c, least)\n" + kSoftmax + kJoin, "",
       ", bool[N, 1, 1, 5] mask", false},
      {"nothing is seen by the first", kSplit + kScaled + "b = Cast <to = 9> (mask)\n m = Where (b, least, c)\n" + kSoftmax + kJoin,
       ", float[1, 1, 5, 5] mask = {1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}", "", false},
      {"keys that are hidden, as a condition, guarded",
       kSplit + kScaled + "m = Where (mask, minus, c)\n p0 = Softmax <axis = -1> (m)\n nan = IsNaN (p0)\n p = Where (nan, zero, p0)\n" +
           kJoin,
       "", ", bool[N, 1, 1, 5] mask"},
      {"a result of rank 4",
       kSplit + kScaled + plain +
           "o = MatMul (p, vh)\n oo = Relu (o)\n ot = Transpose <perm = [0, 2, 1, 3]> (oo)\n y = Reshape (ot, flat)\n",
       "", "", true, false},
      {"probabilities through a cast to their own type",
       kSplit + kScaled + "p0 = Softmax <axis = -1> (c)\n p = Cast <to = 1> (p0)\n" + kJoin},
      {"a trained mask", kSplit + kScaled + "m = Add (c, bias)\n" + kSoftmax + kJoin, ", " + Bias(2)},
      {"a trained mask and one that is added", kSplit + kScaled + "b = Add (bias, mask)\n m = Add (c, b)\n" + kSoftmax + kJoin,
       ", " + Bias(2), ", float[N, 1, 1, 5] mask"},
      {"a trained mask that heads share", kSplit + kScaled + "m = Add (c, bias)\n" + kSoftmax + kJoin, ", " + Bias(1), "", false},
      {"probabilities that are read twice", kSplit + kScaled + plain + "e = ReduceSum <keepdims = 0> (p, last)\n" + kJoin,
       ", int64[1] last = {-1}", "", false},
      {"softmax along the queries", kSplit + kScaled + "p = Softmax <axis = 2> (c)\n" + kJoin, "", "", false},
  };
}

// The case with Dropout applied to the probabilities.
Case WithDropout(Case c) {
  const std::string product = "o = MatMul (p, vh)";
  c.name += ", with dropout";
  c.body.replace(c.body.find(product), product.size(), "d, kept = Dropout (p, part, yes)\n o = MatMul (d, vh)");
  c.initializers += ", float part = {0.3}, bool yes = {1}";
  return c;
}

std::string Net(const Case& c, std::mt19937& random) {
  std::string text = "g (float[N, 5, 4] x" + c.inputs + ") => (float[N, 2] z" +
                     (c.body.find("e = ") == std::string::npos ? "" : ", float[N, 2, 5] e") + ")\n<";
  for (const char* w : {"wq", "wk", "wv"}) text += Weights(random, w, {4, 6}) + ",\n";
  text +=
      Weights(random, "wz", {6, 2}) +
      ",\nfloat half = {0.5}, float two = {2}, float zero = {0}, float least = {-3e38}, float minus = {-1}, int64[4] heads = {0, 0, 2, 3}, "
      "int64[3] flat = {0, 0, 6}" +
      c.initializers + ">\n{\n";
  std::string body = c.body;
  // ONNX text has no literal for infinity.
  if (const size_t at = body.find("minus"); at != std::string::npos) {
    body = "minus_inf = Div (minus, zero)\n" + body.replace(at, 5, "minus_inf");
  }
  for (const char* w : {"q", "k", "v"}) {
    text += std::string(w) + "0 = MatMul (x, w" + w + ")\n" + w + " = Reshape (" + w + "0, heads)\n";
  }
  return text + body + "r = ReduceMean <keepdims = 0, axes = [1]> (y)\n z = MatMul (r, wz)\n}\n";
}

Batch BatchOf(const Case& c, std::mt19937& random) {
  Batch batch = {{"x", Random(random, Shape{4, kLength, 4})}, {"target", Classes(random, 4, 2)}};
  if (c.inputs.find("float") != std::string::npos) {
    Tensor mask = Random(random, Shape{4, 1, 1, kLength});
    batch.emplace("mask", std::move(mask));
  } else if (!c.inputs.empty()) {
    Tensor mask(DType::kBool, {4, 1, 1, kLength});
    // Ensures that every row has a visible key.
    const bool blind = c.name.starts_with("nothing"), shown = c.name.find("hidden") == std::string::npos;
    for (int64_t i = 0; i < mask.elements(); ++i) {
      const int64_t sample = i / kLength, key = i % kLength;
      const bool drawn = random() % 2 == 0;
      mask.as<bool>()[static_cast<size_t>(i)] = blind && sample == 1 ? !shown : key == sample ? shown : drawn;
    }
    batch.emplace("mask", std::move(mask));
  }
  return batch;
}

// `attention` is the operator that must occur once.
void ExpectSameNumbers(const Case& c, const std::string& attention) {
  SCOPED_TRACE(c.name);
  std::mt19937 random(7);
  const Model model = ModelOf(Net(c, random));
  const std::vector<Batch> batches = {BatchOf(c, random), BatchOf(c, random)};
  for (int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {4});
    // Adam would turn the rounding error of a nearly zero gradient into a full step.
    options.recipe.optimizer.type = "sgd";
    const Plan plan = Compile(model, options);
    EXPECT_EQ(Count(plan, attention), c.fuses ? 1 : 0);
    EXPECT_EQ(Count(plan, attention + "Grad"), c.fuses ? 1 : 0);
    EXPECT_EQ(Count(plan, "Transpose") == 0, c.fuses && c.flat);
    const auto fused = Train(model, options, batches);
    options.control.disabled = {"fuse_attention"};
    EXPECT_EQ(Count(Compile(model, options), attention), 0);
    ExpectNear(Train(model, options, batches), fused, 1e-4);
  }
}

TEST(FuseAttention, KeepsResults) {
  for (const Case& c : Cases()) ExpectSameNumbers(c, "Attention");
}

// The same elements are dropped, also on two devices.
TEST(FuseAttention, DropoutDropsTheSameProbabilities) {
  for (const Case& c : Cases()) ExpectSameNumbers(WithDropout(c), "AttentionDropout");
}

// On a GPU in 16 bits, without dropout.
TEST(FuseAttention, OnAGpu) {
  for (const Precision precision : {Precision::kFloat32, Precision::kTf32, Precision::kBfloat16}) {
    for (bool drops : {false, true}) {
      for (const Case& c : Cases()) {
        SCOPED_TRACE(c.name);
        std::mt19937 random(7);
        CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4});
        options.recipe.device = DeviceKind::kCuda;
        options.recipe.precision = precision;
        const Plan plan = Compile(ModelOf(Net(drops ? WithDropout(c) : c, random)), options);
        const bool fuses = c.fuses && c.name.find("trained") == std::string::npos && precision == Precision::kBfloat16 && !drops;
        EXPECT_EQ(Count(plan, "Attention"), fuses ? 1 : 0);
        EXPECT_EQ(Count(plan, "AttentionDropout"), 0);
      }
    }
  }
}

// In every precision, and with dropout as well, if the attention is causal and long.
TEST(FuseAttention, OnAGpuIfCausalAndLong) {
  for (const int64_t length : {511, 512}) {
    for (const Precision precision : {Precision::kFloat32, Precision::kBfloat16}) {
      for (bool drops : {false, true}) {
        std::mt19937 random(7);
        Case c{"", kSplit + kScaled + "m = Where (mask, c, minus)\n" + kSoftmax + kJoin};
        if (drops) c = WithDropout(c);
        std::string net = Net(c, random);
        const auto replace = [&](const std::string& from, const std::string& to) { net.replace(net.find(from), from.size(), to); };
        const std::string n = std::to_string(length);
        replace("[N, 5, 4]", "[N, " + n + ", 4]");
        replace("{\n", "{\n l = Constant <value = int64[2] {" + n + ", " + n +
                           "}> ()\n ones = ConstantOfShape <value = float[1] {1}> (l)\n" +
                           " low = Trilu <upper = 0> (ones)\n mask = Cast <to = 9> (low)\n");
        CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4});
        options.recipe.device = DeviceKind::kCuda;
        options.recipe.precision = precision;
        const Plan plan = Compile(ModelOf(net), options);
        const bool fuses = length == 512 || (precision == Precision::kBfloat16 && !drops);
        EXPECT_EQ(Count(plan, drops ? "AttentionDropout" : "Attention"), fuses ? 1 : 0) << length;
        EXPECT_EQ(Count(plan, drops ? "AttentionDropoutGrad" : "AttentionGrad"), fuses ? 1 : 0) << length;
        for (const Instruction& instruction : plan.programs.at(0).instructions) {
          if (!instruction.op.starts_with("Attention")) continue;
          // cuDNN does not support vectors of three elements.
          EXPECT_TRUE(instruction.kernel.starts_with("cublas.")) << instruction.kernel;
        }
      }
    }
  }
}

TEST(FuseAttention, LeavesDropoutIfItsMaskIsRead) {
  std::mt19937 random(7);
  Case c = WithDropout(Cases()[0]);
  const std::string dropout = "d, kept = Dropout (p, part, yes)";
  c.body.replace(c.body.find(dropout), dropout.size(),
                 "d, kept = Dropout (p, part, yes)\n kf = Cast <to = 1> (kept)\n e = ReduceSum <keepdims = 0> (kf, last)");
  c.initializers += ", int64[1] last = {-1}";
  const Plan plan = Compile(ModelOf(Net(c, random)), OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4}));
  EXPECT_EQ(Count(plan, "AttentionDropout"), 0);
}

TEST(FuseAttention, RecognizesACausalMask) {
  for (const Case& c : Cases()) {
    std::mt19937 random(7);
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4});
    const Plan plan = Compile(ModelOf(Net(c, random)), options);
    for (const Instruction& instruction : plan.programs.at(0).instructions) {
      if (instruction.op != "Attention") continue;
      const bool causal = c.name.find("causal") != std::string::npos;
      EXPECT_EQ(instruction.attributes.Int("is_causal", 0), causal ? 1 : 0) << c.name;
    }
  }
}

}  // namespace
}  // namespace gradloom
