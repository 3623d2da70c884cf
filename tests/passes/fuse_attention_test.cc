// Attention that an exporter wrote as products and a softmax gives the same results as one operator.
#include "compiler/passes/patterns/fuse_attention.h"

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
  Shape mask = {};  // of the operator's mask, if it is causal
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

// A causal condition [1, 1, 5, 5], and its conjunction with an input.
const std::string kEarlier = "low = Trilu <upper = 0> (mask1)\n b = Cast <to = 9> (low)\n";
const std::string kBoth = kEarlier + "both = And (b, mask)\n";
const std::string kSquare = ", float[1, 1, 5, 5] mask1 = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}";
const std::string kKeys = ", bool[N, 1, 1, 5] mask", kNumbers = ", float[N, 1, 1, 5] mask";

// A causal mask together with another one. A query that sees no key is left as it is, if finite numbers hide its keys.
std::vector<Case> CausalCases() {
  const Shape keys{4, 1, 1, kLength};
  const auto of = [&](const std::string& name, const std::string& masks, const std::string& inputs, const Shape& mask) {
    return Case{name, kSplit + kScaled + masks + kSoftmax + kJoin, kSquare, inputs, true, true, mask};
  };
  const auto left = [&](const std::string& name, const std::string& masks, const std::string& inputs, bool fuses) {
    return Case{name, kSplit + kScaled + masks + kSoftmax + kJoin, kSquare, inputs, fuses};
  };
  return {
      of("causal, of keys that are seen", kBoth + "m = Where (both, c, minus)\n", kKeys, keys),
      of("causal, of keys that are seen, added", kBoth + "w = Where (both, zero, minus)\n m = Add (c, w)\n", kKeys, keys),
      of("causal, or keys that are not seen",
         kEarlier + "nb = Not (b)\n nm = Not (mask)\n hidden = Or (nm, nb)\n m = Where (hidden, minus, c)\n", kKeys, keys),
      of("causal, expanded and reshaped",
         kEarlier + "bs = Squeeze (b, first)\n ms = Squeeze (mask, second)\n both = And (bs, ms)\n full = Expand (both, pairs)\n "
                    "two_axes = Unsqueeze (full, second)\n m = Where (two_axes, c, minus)\n",
         kKeys, keys),
      of("causal, then numbers", kEarlier + "m0 = Where (b, c, minus)\n m = Add (m0, mask)\n", kNumbers, keys),
      of("numbers, then causal", kEarlier + "m0 = Add (c, mask)\n m = Where (b, m0, minus)\n", kNumbers, keys),
      of("causal numbers in a sum", kEarlier + "w = Where (b, zero, minus)\n sum = Add (w, mask)\n m = Add (c, sum)\n", kNumbers, keys),
      of("small numbers, then causal by a finite one",
         kEarlier + "pad = Where (mask, zero, small)\n m0 = Add (pad, c)\n m = Where (b, m0, least)\n", kKeys, keys),
      of("causal, and numbers that depend on the query", kBoth + "w = Where (both, half, minus)\n m = Add (c, w)\n", kKeys,
         Shape{4, 1, kLength, kLength}),
      left("a finite number hides both", kBoth + "m = Where (both, c, least)\n", kKeys, false),
      left("a finite number hides both, added", kBoth + "w = Where (both, zero, least)\n m = Add (c, w)\n", kKeys, true),
      left("nothing is seen of some samples, by a finite number", kBoth + "w = Where (both, zero, least)\n m = Add (c, w)\n", kKeys, true),
      left("a finite number, then numbers", kEarlier + "m0 = Where (b, c, least)\n m = Add (m0, mask)\n", kNumbers, false),
      left("finite numbers, then a finite number",
           kEarlier + "pad = Where (mask, zero, least)\n m0 = Add (pad, c)\n m = Where (b, m0, least)\n", kKeys, false),
      left("later queries only", kEarlier + "t = Transpose <perm = [0, 1, 3, 2]> (b)\n both = And (t, mask)\n m = Where (both, c, minus)\n",
           ", bool[N, 1, 1, 5] mask", true),
  };
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
  text += Weights(random, "wz", {6, 2}) +
          ",\nfloat half = {0.5}, float two = {2}, float zero = {0}, float least = {-3e38}, float small = {-1e4}, float minus = {-1}, "
          "int64[1] first = {0}, int64[1] second = {1}, int64[3] pairs = {1, 5, 5}, int64[4] heads = {0, 0, 2, 3}, "
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
      const bool drawn = random() % 2 == 0, always = key == sample || key == (c.name.starts_with("later") ? kLength - 1 : 0);
      mask.as<bool>()[static_cast<size_t>(i)] = blind && sample == 1 ? !shown : always ? shown : drawn;
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
  for (const Case& c : CausalCases()) ExpectSameNumbers(c, "Attention");
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
  std::vector<Case> cases = Cases();
  for (const Case& c : CausalCases()) cases.push_back(c);
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    std::mt19937 random(7);
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, 1, {4});
    const Plan plan = Compile(ModelOf(Net(c, random)), options);
    const Program& program = plan.programs.at(0);
    for (const Instruction& instruction : program.instructions) {
      if (instruction.op != "Attention") continue;
      const bool causal = c.name.find("causal") != std::string::npos;
      EXPECT_EQ(instruction.attributes.Int("is_causal", 0), causal ? 1 : 0);
      if (!causal) continue;
      const KernelCall call = CallOf(plan, program, instruction);
      EXPECT_EQ(call.inputs.size() > 3 ? call.inputs[3].shape : Shape{}, c.mask);
    }
  }
}

// Attention that the file has as an operator. Queries whose keys are all hidden give 0.
TEST(FuseAttention, RecognizesACausalMaskOfAnOperator) {
  const std::string attention = "o = Attention <scale=0.5> (qh, kh, vh, both)\n";
  const std::string heads =
      "qh = Transpose <perm = [0, 2, 1, 3]> (q)\n kh = Transpose <perm = [0, 2, 1, 3]> (k)\n vh = Transpose <perm = [0, 2, 1, 3]> (v)\n";
  const std::string join = "ot = Transpose <perm = [0, 2, 1, 3]> (o)\n y = Reshape (ot, flat)\n";
  const Case c{"nothing is seen of some samples", heads + kBoth + attention + join, kSquare, kKeys};
  std::mt19937 random(7);
  std::string net = Net(c, random);
  const std::string mean = "ReduceMean <keepdims = 0, axes = [1]> (y)";
  net.replace(net.find(mean), mean.size(), "ReduceMean <keepdims = 0> (y, second)");
  const Model model = Model::FromText("<ir_version: 10, opset_import: [\"\" : 23]>\n" + net);
  const std::vector<Batch> batches = {BatchOf(c, random), BatchOf(c, random)};
  for (int devices : {1, 2}) {
    CompileOptions options = OptionsFor({{.type = "cross_entropy", .output = "z", .target = "target"}}, devices, {4});
    options.recipe.optimizer.type = "sgd";
    const Plan plan = Compile(model, options);
    const auto causal = [&](const Plan& made) {
      const auto& all = made.programs.at(0).instructions;
      return std::count_if(all.begin(), all.end(), [](const Instruction& i) { return i.attributes.Int("is_causal", 0) == 1; });
    };
    EXPECT_EQ(causal(plan), 2);  // and its gradient
    const auto divided = Train(model, options, batches);
    options.control.disabled = {"fuse_attention"};
    EXPECT_EQ(causal(Compile(model, options)), 0);
    ExpectNear(Train(model, options, batches), divided, 1e-5);
  }
}

// Conditions and numbers that are joined with themselves again and again: as many paths lead to the mask as 2 to the power of their number.
TEST(FuseAttention, FollowsNotAllPathsOfAMask) {
  for (const char* op : {"And", "Add"}) {
    std::string joined, last = "m";
    const bool condition = std::string(op) == "And";
    for (int i = 0; i < 60; ++i) {
      const std::string next = "c" + std::to_string(i);
      joined += next + " = " + op + " (" + last + ", " + last + ") ";
      last = next;
    }
    const Model model = ModelOf(
        std::string("g (float[N, 3, 4] x, ") + (condition ? "bool" : "float") +
        "[3, 3] m) => (float[N, 3, 4] z) <float[4, 4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, "
        "float minus = {-1}, float zero = {0}, int64[4] four = {0, 1, 3, 4}, int64[3] three = {0, 3, 4}> { " +
        joined +
        "low = Div (minus, zero) p = MatMul (x, w) q = Reshape (p, four) kt = Transpose <perm = [0, 1, 3, 2]> (q) s = MatMul (q, kt) " +
        (condition ? "masked = Where (" + last + ", s, low)" : "masked = Add (s, " + last + ")") +
        " a = Softmax <axis = -1> (masked) o = MatMul (a, q) z = Reshape (o, three) }");
    CompileOptions options = OptionsFor({{.type = "output", .output = "z"}}, 1, {2});
    EXPECT_GT(Count(Compile(model, options), "Attention"), 0) << op;
  }
}

}  // namespace
}  // namespace gradloom
