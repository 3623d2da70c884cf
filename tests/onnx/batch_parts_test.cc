// Files for one batch size in which whole batches are joined, such as two views of each sample that go through one network, and taken
// apart.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/philox.h"
#include "runtime/session/session.h"

namespace gradloom {
namespace {

constexpr char kWeights[] = "float[3, 2] w = {0.5, -1, 0.25, 2, 1, -0.5}";

// A network over x and z, joined to h [2 batch, 2], which `parts` takes apart into a and b.
std::string Twins(const std::string& batch, const std::string& parts, const std::string& tensors, int opset) {
  return "<ir_version: 10, opset_import: [\"\" : " + std::to_string(opset) + "]>\ng (float[" + batch + ", 3] x, float[" + batch +
         ", 3] z) => (float[" + batch + ", 2] out) <" + std::string(kWeights) + (tensors.empty() ? "" : ", ") + tensors +
         "> { j = Concat <axis = 0> (x, z) m = MatMul (j, w) h = Tanh (m) " + parts + " q = Mul (a, a) out = Sub (q, b) }";
}

Tensor Random(const Shape& shape, uint64_t seed, int64_t batch) {
  Tensor tensor(DType::kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const PhiloxBlock block = Philox({static_cast<uint32_t>(i), 0, 0, 0}, NodeKey(seed, static_cast<uint64_t>(batch), 0));
    tensor.as<float>()[static_cast<size_t>(i)] = static_cast<float>(block[0]) * 0x1p-31f - 1;
  }
  return tensor;
}

std::vector<double> Losses(const std::string& text, const std::vector<int64_t>& sizes, int devices) {
  CompileOptions options;
  options.recipe.losses = {{.type = "mse", .output = "out", .target = "y"}};
  options.recipe.schedule.lr = 0.2;
  options.recipe.devices = devices;
  for (const int64_t size : sizes) options.entries.push_back({EntryKind::kStep, size});
  Session session(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
  std::vector<double> losses;
  for (const int64_t size : sizes) {
    const Tensor x = Random({size, 3}, 1, size), z = Random({size, 3}, 2, size), y = Random({size, 2}, 3, size);
    losses.push_back(session.Step({{"x", x.view()}, {"z", z.view()}, {"y", y.view()}}).loss);
  }
  return losses;
}

struct Parts {
  const char* what;
  const char* parts;
  std::string (*tensors)(int64_t batch);  // with the file's batch size
  int opset = 17;
};

std::string Of(const char* before, int64_t number, const char* after) { return before + std::to_string(number) + after; }

const Parts kParts[] = {
    {"a Split with sizes", "a, b = Split <axis = 0> (h, s)", [](int64_t n) { return Of("int64[2] s = {", n, ", ") + Of("", n, "}"); }},
    {"a Split into equal parts", "a, b = Split <axis = 0, num_outputs = 2> (h)", [](int64_t) { return std::string(); }, 18},
    // What PyTorch's default exporter writes for chunk(2).
    {"a sequence of parts of one size",
     "s = SplitToSequence <axis = 0, keepdims = 1> (h, n) a = SequenceAt (s, zero) b = SequenceAt (s, one)",
     [](int64_t n) { return Of("int64 n = {", n, "}, int64 zero = {0}, int64 one = {1}"); }},
    {"a sequence of parts of given sizes",
     "s = SplitToSequence <axis = 0, keepdims = 1> (h, n) a = SequenceAt (s, zero) b = SequenceAt (s, one)",
     [](int64_t n) { return Of("int64[2] n = {", n, ", ") + Of("", n, "}, int64 zero = {0}, int64 one = {1}"); }},
    {"slices", "a = Slice (h, zero, n, zero) b = Slice (h, n, end, zero)",
     [](int64_t n) { return Of("int64[1] n = {", n, "}, int64[1] zero = {0}, int64[1] end = {9223372036854775807}"); }},
    {"slices from the end", "a = Slice (h, zero, n, zero) b = Slice (h, n, end, zero, one)",
     [](int64_t n) {
       return Of("int64[1] n = {", -n, "}, int64[1] zero = {0}, int64[1] one = {1}, ") + Of("int64[1] end = {", 2 * n, "}");
     }},
    {"a view with an axis of batches", "v = Reshape (h, t) s0 = Gather (v, zero) s1 = Gather (v, one) a = Identity (s0) b = Identity (s1)",
     [](int64_t n) { return Of("int64[3] t = {2, ", n, ", 2}, int64 zero = {0}, int64 one = {1}"); }},
};

TEST(BatchParts, FollowTheBatch) {
  const std::vector<int64_t> sizes = {5, 2, 4, 1, 7};
  // The same network, without joining.
  const std::string apart = "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 3] x, float[N, 3] z) => (float[N, 2] out) <" +
                            std::string(kWeights) +
                            "> { k = MatMul (x, w) a = Tanh (k) l = MatMul (z, w) b = Tanh (l) q = Mul (a, a) out = Sub (q, b) }";
  const std::vector<double> expected = Losses(apart, sizes, 1);
  for (const Parts& parts : kParts) {
    for (const int64_t declared : {1, 4}) {
      for (const int devices : {1, 2}) {
        SCOPED_TRACE(std::string(parts.what) + ", file for " + std::to_string(declared) + ", devices " + std::to_string(devices));
        const std::string text = Twins(std::to_string(declared), parts.parts, parts.tensors(declared), parts.opset);
        const std::vector<double> losses = Losses(text, sizes, devices);
        for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
      }
    }
  }
}

// Two views of each sample that follow each other are taken apart by slices with a step.
TEST(BatchParts, InterleavedViewsFollowTheBatch) {
  const std::vector<int64_t> sizes = {5, 2, 4, 1, 7};
  const auto model = [](const std::string& batch, const std::string& tensors, const std::string& body) {
    return "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + batch + ", 3] x, float[" + batch + ", 3] z) => (float[" + batch +
           ", 2] out) <" + kWeights + tensors + "> { " + body + " q = Mul (a, a) out = Sub (q, b) }";
  };
  const std::vector<double> expected = Losses(model("N", "", "k = MatMul (x, w) a = Tanh (k) l = MatMul (z, w) b = Tanh (l)"), sizes, 1);
  const std::string stacked =
      "u = Unsqueeze (x, one) v = Unsqueeze (z, one) c = Concat <axis = 1> (u, v) j = Reshape (c, t) m = MatMul (j, w) "
      "h = Tanh (m) a = Slice (h, zero, end, zero, two) b = Slice (h, one, end, zero, two)";
  const std::string tensors = ", int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, ";
  for (const int devices : {1, 2}) {
    for (const int64_t n : {1, 4}) {
      for (const std::string& end : {std::to_string(INT64_MAX), std::to_string(2 * n)}) {
        SCOPED_TRACE("file for " + std::to_string(n) + ", end " + end + ", devices " + std::to_string(devices));
        const std::string shape = Of("int64[2] t = {", 2 * n, ", 3}, int64[1] end = {") + end + "}";
        const std::vector<double> losses = Losses(model(std::to_string(n), tensors + shape, stacked), sizes, devices);
        for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
      }
    }
    const std::string open = "int64[2] t = {-1, 3}, int64[1] end = {" + std::to_string(INT64_MAX) + "}";
    const std::vector<double> losses = Losses(model("N", tensors + open, stacked), sizes, devices);
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i << ", devices " << devices;
  }
}

// A file with an open batch that takes parts of a fixed size, as PyTorch's older exporter writes chunk(2) with dynamic axes.
TEST(BatchParts, OfAnOpenBatchFollowTheBatch) {
  const std::vector<int64_t> sizes = {5, 2, 4, 1, 7};
  const std::string whole = "a0 = MatMul (x, w) a = Tanh (a0) b0 = MatMul (z, w) b = Tanh (b0) q = Mul (a, a) out = Sub (q, b) }";
  const std::vector<double> expected =
      Losses("<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 3] x, float[N, 3] z) => (float[N, 2] out) <" +
                 std::string(kWeights) + "> { " + whole,
             sizes, 1);
  for (const Parts& parts : kParts) {
    if (parts.opset != 17 || std::string(parts.what).find("view") != std::string::npos) continue;
    for (const int64_t exported : {3, 4}) {
      for (const int devices : {1, 2}) {
        SCOPED_TRACE(std::string(parts.what) + ", exported for " + std::to_string(exported) + ", devices " + std::to_string(devices));
        const std::vector<double> losses = Losses(Twins("N", parts.parts, parts.tensors(exported), parts.opset), sizes, devices);
        for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
      }
    }
  }
}

// A batch that a Tile repeats consists of whole batches, too.
TEST(BatchParts, OfARepeatedBatch) {
  const auto model = [](const std::string& batch, const std::string& tensors, const std::string& body) {
    return "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + batch + ", 3] x, float[" + batch + ", 3] z) => (float[" + batch +
           ", 2] out) <" + kWeights + ", " + tensors + "> { s = Add (x, z) " + body + " out = Tanh (q) }";
  };
  const std::vector<int64_t> sizes = {5, 2, 4, 1};
  const std::vector<double> expected = Losses(model("N", "float two = {2}", "m = MatMul (s, w) q = Mul (m, two)"), sizes, 1);
  for (const int64_t n : {1, 4}) {
    const std::string text = model(std::to_string(n), Of("int64[2] r = {2, 1}, int64[3] v = {2, ", n, ", 2}, int64[1] first = {0}"),
                                   "t = Tile (s, r) m = MatMul (t, w) p = Reshape (m, v) q = ReduceSum <keepdims = 0> (p, first)");
    for (const int devices : {1, 2}) {
      SCOPED_TRACE("file for " + std::to_string(n) + ", devices " + std::to_string(devices));
      const std::vector<double> losses = Losses(text, sizes, devices);
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
    }
  }
}

// Parts that are not whole batches, and rows of which the order is not known, are refused.
TEST(BatchParts, OthersAreRefused) {
  for (const char* parts :
       {"a, b = Split <axis = 0> (h, s)", "s0 = SplitToSequence <axis = 0> (h, s) a = SequenceAt (s0, zero) b = Relu (a)",
        "a = Slice (h, zero1, three, zero1) b = Relu (a)"}) {
    SCOPED_TRACE(parts);
    const std::string text = Twins("4", parts, "int64[2] s = {2, 6}, int64 zero = {0}, int64[1] zero1 = {0}, int64[1] three = {3}", 17);
    EXPECT_THROW(Import(Model::FromText(text), {.batch = 6}), Error);
  }
}

// StyleGAN2: a learned image that the file repeats for each sample, and filters of each sample.
TEST(LearnedImage, FollowsTheBatch) {
  const auto losses_of = [](const std::string& text, const std::vector<int64_t>& sizes, int devices) {
    CompileOptions options;
    options.recipe.losses = {{.type = "mse", .output = "out", .target = "y"}};
    options.recipe.trainable = {"c"};
    options.recipe.schedule.lr = 0.2;
    options.recipe.devices = devices;
    for (const int64_t size : sizes) options.entries.push_back({EntryKind::kStep, size});
    Session session(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
    std::vector<double> losses;
    for (const int64_t size : sizes) {
      const Tensor z = Random({size, 2}, 1, size), y = Random({size, 4}, 2, size);
      losses.push_back(session.Step({{"z", z.view()}, {"y", y.view()}}).loss);
    }
    return losses;
  };
  const auto model = [](const std::string& batch, const std::string& tensors, const std::string& body) {
    return "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + batch + ", 2] z) => (float[" + batch +
           ", 4] out) <float[1, 2, 2, 2] c = {0.5, -1, 0.25, 2, 1, -0.5, 0.75, -2}, " + tensors + "> { " + body + " }";
  };
  const std::vector<int64_t> sizes = {5, 2, 4, 1};
  const std::vector<double> expected =
      losses_of(model("N", "int64[2] s = {2, 4}", "v = Reshape (c, s) h = MatMul (z, v) out = Tanh (h)"), sizes, 1);
  for (const int64_t n : {1, 2, 3}) {
    const std::string number = std::to_string(n);
    const std::string text = model(
        number,
        Of("int64[4] r = {", n, ", 1, 1, 1}, ") + Of("int64[4] f = {1, ", 2 * n, ", 2, 2}, ") + Of("int64[4] k = {", n, ", 2, 1, 1}, ") +
            Of("int64[2] s = {", n, ", 4}"),
        "t = Tile (c, r) x = Reshape (t, f) w = Reshape (z, k) q = Conv <group = " + number + "> (x, w) h = Reshape (q, s) out = Tanh (h)");
    for (const int devices : {1, 2}) {
      SCOPED_TRACE("file for " + number + ", devices " + std::to_string(devices));
      const std::vector<double> losses = losses_of(text, sizes, devices);
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
    }
  }
}

// Each sample of z is the filter of a sample of x (SiamFC). PyTorch's default exporter adds a bias of zeros with the file's batch size.
TEST(FiltersOfSamples, MayHaveOneBiasForAll) {
  const auto losses_of = [](const std::string& text, int devices) {
    CompileOptions options;
    options.recipe.losses = {{.type = "mse", .output = "out", .target = "y"}};
    options.recipe.trainable = {"w"};
    options.recipe.devices = devices;
    std::vector<double> losses;
    const std::vector<int64_t> sizes = {3, 5, 2, 1};
    for (const int64_t size : sizes) options.entries.push_back({EntryKind::kStep, size});
    Session session(std::make_shared<const Plan>(Compile(Model::FromText(text), options)));
    for (const int64_t size : sizes) {
      const Tensor x = Random({size, 2, 3, 3}, 1, size), z = Random({size, 2, 2, 2}, 2, size), y = Random({size, 1, 2, 2}, 3, size);
      losses.push_back(session.Step({{"x", x.view()}, {"z", z.view()}, {"y", y.view()}}).loss);
    }
    return losses;
  };
  const auto one = [](const std::string& bias) {
    return "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[1, 2, 3, 3] x, float[1, 2, 2, 2] z) => (float[1, 1, 2, 2] out) "
           "<float[1, 2, 1, 1] w = {0.5, -1}, float[1] b = {0.25}> { h = Mul (x, w) " +
           (bias.empty() ? std::string("c = Conv (h, z) out = Add (c, b)") : "out = Conv (h, z, " + bias + ")") + " }";
  };
  const std::string two =
      "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[2, 2, 3, 3] x, float[2, 2, 2, 2] z) => (float[2, 1, 2, 2] out) "
      "<float[1, 2, 1, 1] w = {0.5, -1}, int64[4] f = {1, 4, 3, 3}, int64[4] s = {2, 1, 2, 2}> "
      "{ b = Constant <value = float[2] {0.25, 0.25}> () h = Mul (x, w) r = Reshape (h, f) c = Conv <group = 2> (r, z, b) out = Reshape "
      "(c, s) }";
  const std::vector<double> expected = losses_of(one(""), 1);
  for (const std::string& text : {one("b"), two}) {
    for (const int devices : {1, 2}) {
      SCOPED_TRACE("devices " + std::to_string(devices) + ": " + text);
      const std::vector<double> losses = losses_of(text, devices);
      for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << "step " << i;
    }
  }
}

// The queries pass through a Dropout that drops nothing before they meet the samples, as in a decoder exported in training mode.
TEST(BatchParts, QueriesAfterAnEmptyDropoutFollowTheBatch) {
  for (const char* outputs : {"d", "d, mask"}) {
    const std::string text = std::string(
                                 "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[4, 3, 2] x) => (float[4, 3, 3] y) "
                                 "<float[3, 2] q = {1, 2, 3, 4, 5, 6}, int64[3] e = {4, 1, 1}, int64[1] zero = {0}, float ratio = {0}, "
                                 "bool training = {1}> { t = Unsqueeze (q, zero) r = Tile (t, e) ") +
                             outputs + " = Dropout (r, ratio, training) p = Transpose <perm = [0, 2, 1]> (x) y = MatMul (d, p) }";
    const ImportedGraph imported = Import(Model::FromText(text), {.batch = 6});
    EXPECT_EQ(imported.graph->value(imported.graph->outputs.at(0)).shape, (Shape{6, 3, 3}));
  }
}

}  // namespace
}  // namespace gradloom
