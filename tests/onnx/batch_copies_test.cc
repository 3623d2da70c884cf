// Weights of which a file for one batch size holds a copy for each sample.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "compiler/onnx/export/export.h"
#include "tests/onnx/baked_training.h"

namespace gradloom {
namespace {

struct Copies {
  const char* name;
  std::map<std::string, std::string> weights;  // tensor of the fixed export -> parameter of the dynamic export
};

// The exporter has folded an Expand, so the file holds a class token, a table of positions, or an initial state once per sample. Each
// becomes one weight at every batch size, including the file's own, and is exported as copies.
TEST(BakedBatchCopies, BecomeOneWeight) {
  for (const Copies& file : {Copies{"transformer_dynamo", {{"expand_1", "token"}, {"embedding", "places.weight"}}},
                             Copies{"lstm_dynamo", {{"val_15", "start"}}}}) {
    const std::string path = "tests/onnx/baked/" + std::string(file.name);
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 4, 4}, std::vector<int64_t>{7, 4, 1, 4}}) {
      for (const int devices : {1, 2}) {
        SCOPED_TRACE(file.name + std::string(", first batch ") + std::to_string(sizes[0]) + ", devices " + std::to_string(devices));
        const Trained fixed = Train(Model::Load(path + "_fixed.onnx"), sizes, devices),
                      dynamic = Train(Model::Load(path + "_dynamic.onnx"), sizes);
        for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(fixed.losses[i], dynamic.losses[i], 1e-5) << "step " << i;
        const std::string written = ::testing::TempDir() + "copies.onnx";
        ExportTrained(fixed.info, fixed.parameters, written);
        // Imported at its own batch size, where it becomes one weight again.
        const ImportedGraph again = Import(Model::Load(written));
        for (const auto& [copies, weight] : file.weights) {
          const Tensor &one = fixed.parameters.at(copies), &expected = dynamic.parameters.at(weight);
          ASSERT_EQ(one.elements(), expected.elements()) << copies;
          for (int64_t i = 0; i < one.elements(); ++i)
            EXPECT_NEAR(ElementAsDouble(one.view(), i), ElementAsDouble(expected.view(), i), 1e-5) << copies;
          const Tensor* read = again.graph->data(again.graph->Find(copies));
          ASSERT_NE(read, nullptr);
          ASSERT_EQ(read->shape(), one.shape());
          EXPECT_EQ(std::memcmp(read->data(), one.data(), static_cast<size_t>(one.bytes())), 0) << copies;
        }
        std::filesystem::remove(written);
      }
    }
  }
}

// A weight whose extent equals the batch size by chance, before values that are the same for each sample, is not a set of copies.
TEST(BakedBatchCopies, ExcludeWeightsThatAreReduced) {
  const std::string graph = R"(
g (float[BATCH, 4] x) => (float[BATCH, 4] z)
<float[3, 4] w = {1, 2, 0.5, -1, 0.3, -0.2, 1.1, 0.7, -0.6, 0.9, 0.4, 0.8}, int64[1] first = {0}, int64[2] times = {3, 1}>
{
  s = ReduceSum (w, first)
  t = Tanh (s)
  NODES
})";
  const auto made = [&](const std::string& batch, const std::string& nodes) {
    std::string text = graph;
    for (size_t at = text.find("BATCH"); at != std::string::npos; at = text.find("BATCH")) text.replace(at, 5, batch);
    return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + text.replace(text.find("NODES"), 5, nodes));
  };
  const std::vector<int64_t> sizes = {3, 5, 2};
  const Trained dynamic = Train(made("N", "z = Add (x, t)"), sizes);
  for (const int devices : {1, 2}) {
    const Trained fixed = Train(made("3", "r = Tile (t, times) z = Add (x, r)"), sizes, devices);
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(fixed.losses[i], dynamic.losses[i], 1e-5) << "step " << i;
  }
}

// Other readers of the copies see one copy per sample, all of the same weight, at the file's own batch size. At any other batch size it is
// unknown what they should see.
TEST(BakedBatchCopies, WithOtherReadersFitOnlyTheirOwnBatch) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[4, 2] x) => (float[4, 2] z) <float[4, 2] w = {1, 2, 1, 2, 1, 2, 1, 2}>
{
  h = Add (x, w)
  s = ReduceSum <keepdims = 0> (w)
  z = Mul (h, s)
})");
  const Model expanded = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[4, 2] x) => (float[4, 2] z) <float[1, 2] w = {1, 2}, int64[2] shape = {4, 2}>
{
  e = Expand (w, shape)
  h = Add (x, e)
  s = ReduceSum <keepdims = 0> (e)
  z = Mul (h, s)
})");
  EXPECT_TRUE(Import(model).warnings.empty());
  const Trained one = Train(model, {4, 4, 4}), expected = Train(expanded, {4, 4, 4});
  const Tensor &w = one.parameters.at("w"), &wanted = expected.parameters.at("w");
  ASSERT_EQ(w.shape(), wanted.shape());
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(w.as<float>()[i], wanted.as<float>()[i], 1e-4 * std::abs(wanted.as<float>()[i]));
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(one.losses[i], expected.losses[i], 1e-5 * expected.losses[i]);
  try {
    Train(model, {3});
    ADD_FAILURE() << "it is trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_NE(error.message().find("holds a copy of one weight for each of the 4 samples"), std::string::npos) << error.Describe();
    EXPECT_NE(error.help().find("--freeze '"), std::string::npos) << error.Describe();
  }
}

// A vector with one element for each sample becomes one number at every batch size.
TEST(BakedBatchCopies, MayBeVectors) {
  const auto model = [](const std::string& batch, const std::string& bias) {
    return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + batch + ", 3] x) => (float[" + batch +
                           "] z) <float[3] w = {0.5, -1, 0.25}, " + bias + "> { m = MatMul (x, w) t = Tanh (m) z = Add (t, b) }");
  };
  const std::vector<int64_t> sizes = {7, 4, 1, 4};
  const Trained expected = Train(model("N", "float[1] b = {0.5}"), sizes, 1, {}, {"b"});
  for (const int devices : {1, 2}) {
    for (const std::vector<int64_t>& first : {std::vector<int64_t>{}, {4}}) {
      SCOPED_TRACE("devices " + std::to_string(devices) + ", first entry " + (first.empty() ? "7" : "4"));
      const Trained fixed = Train(model("4", "float[4] b = {0.5, 0.5, 0.5, 0.5}"), sizes, devices, first, {"b"});
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(fixed.losses[i], expected.losses[i], 1e-5) << "step " << i;
      ASSERT_EQ(fixed.parameters.at("b").elements(), 1);
      EXPECT_NEAR(fixed.parameters.at("b").as<float>()[0], expected.parameters.at("b").as<float>()[0], 1e-5);
    }
  }
}

// Equal elements that are more than the samples are several weights, as a bias of zeros is: which of them are copies is unknown at another
// batch size.
TEST(BakedBatchCopies, VectorsOfSeveralBatchesFitOnlyTheirOwnBatch) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[4, 3] x) => (float[4] z) <float[3] w = {0.5, -1, 0.25}, float[8] b = {1, 1, 1, 1, 1, 1, 1, 1}, int64[2] parts = {4, 4}>
{
  j = Concat <axis = 0> (x, x)
  m = MatMul (j, w)
  t = Mul (m, b)
  p, q = Split <axis = 0> (t, parts)
  z = Mul (p, q)
})");
  EXPECT_EQ(Train(model, {4, 4}).parameters.at("b").shape(), (Shape{8}));
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{4, 7}, {7}}) {
    try {
      Train(model, sizes);
      ADD_FAILURE() << "it is trained";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kShape) << error.Describe();
      EXPECT_NE(error.message().find("'b' holds a copy of one weight for each of the 4 samples"), std::string::npos) << error.Describe();
    }
  }
}

// An exporter writes an instance normalization with running statistics as a batch normalization of one sample that has a channel for each
// channel of each sample. A scale of ones is not one number, although its elements are equal at the start.
TEST(BakedBatchCopies, OfAScaleOfOnesAreOnePerChannel) {
  const auto model = [](const std::string& batch, const std::string& weights, const std::string& nodes) {
    return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + batch + ", 2, 3] x) => (float[" + batch +
                           ", 2, 3] z) <float[2] scale = {1, 1}, float[2] bias = {0, 0}" + weights + "> { " + nodes + " }");
  };
  const Model fixed = model("4",
                            ", float[2] mean = {0, 0}, float[2] variance = {1, 1}, int64[1] times = {4}, int64[3] one = {1, 8, 3}, "
                            "int64[3] all = {4, 2, 3}",
                            "s = Tile (scale, times) b = Tile (bias, times) m = Tile (mean, times) v = Tile (variance, times) "
                            "r = Reshape (x, one) n = BatchNormalization (r, s, b, m, v) z = Reshape (n, all)");
  const std::vector<int64_t> sizes = {7, 4, 1, 4};
  const Trained expected = Train(model("N", "", "z = InstanceNormalization (x, scale, bias)"), sizes);
  for (const int devices : {1, 2}) {
    SCOPED_TRACE("devices " + std::to_string(devices));
    const Trained trained = Train(fixed, sizes, devices);
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(trained.losses[i], expected.losses[i], 1e-5) << "step " << i;
    for (const char* name : {"scale", "bias"}) {
      for (size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(trained.parameters.at(name).as<float>()[i], expected.parameters.at(name).as<float>()[i], 1e-5) << name;
    }
  }
}

// A tensor of copies that is fetched keeps its copies at the file's own batch size, and so do all others there.
TEST(BakedBatchCopies, FitOnlyTheirOwnBatchBesideFetchedOnes) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[4, 2] x) => (float[4, 2] z, float[4, 2] c) <float[4, 2] w = {1, 2, 1, 2, 1, 2, 1, 2}, float[4, 2] c = {1, 3, 1, 3, 1, 3, 1, 3}>
{
  h = Mul (x, w)
  z = Add (h, c)
})");
  try {
    Train(model, {4, 7});
    ADD_FAILURE() << "it is trained";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape) << error.Describe();
    EXPECT_NE(error.message().find("holds a copy of one weight for each of the 4 samples"), std::string::npos) << error.Describe();
  }
}

// If the file fits no other batch size, the readers that treat the copies as one weight cannot be found, so a warning names the tensor.
TEST(BakedBatchCopies, WarnIfTheyTrainSeparately) {
  const std::vector<std::string> warnings = Import(Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[4, 2] x) => (float[3, 2] z) <float[4, 2] w = {1, 2, 1, 2, 1, 2, 1, 2}, float[4, 2] ones = {1, 1, 1, 1, 1, 1, 1, 1}, int64[3] some = {0, 3, 2}>
{
  h = Mul (x, w)
  k = Add (h, ones)
  z = Gather (k, some)
})"))
                                                .warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].find("'w' holds a copy of one weight for each of the 4 samples"), std::string::npos) << warnings[0];
}

// Zeros with as many rows as there are samples are an ordinary weight.
TEST(BakedBatchCopies, ExcludeConstantWeights) {
  const Model model = Model::FromText(R"(<ir_version: 10, opset_import: ["" : 17]>
g (float[4, 4] x) => (float[4, 2] z) <float[4, 2] w = {0, 0, 0, 0, 0, 0, 0, 0}, float[2] b = {0, 0}>
{
  h = MatMul (x, w)
  z = Add (h, b)
})");
  EXPECT_EQ(Train(model, {4, 4}).parameters.at("w").shape(), (Shape{4, 2}));
}

// A learned initial state that is expanded to the batch and multiplied by weights whose extents equal the batch size by chance, as in
// recurrent cells that are written out.
TEST(BakedBatchCopies, ExcludeWeightsAppliedToInitialStates) {
  const char* graph = R"(
g (float[4, 4] x) => (float[4, 4] y)
<float[1, 4] start = {1, 2, 3, 4}, float[4, 4] w = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1}, float[4] b = {0, 0, 0, 0},
 float[4, 8] u = {1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0},
 float[4, 1, 1] into = {1, 2, 3, 4}, float[4] ib = {0, 0, 0, 0}, float[1, 4, 1] back = {1, 2, 3, 4}, int64[1] one = {1}, int64[2] s = {4, 4}>
{
  e = Expand (start, s)
  g = Gemm <transB = 1> (e, w, b)
  t = Softplus (g)
  row = Unsqueeze (t, one)
  channels = Conv (row, into, ib)
  joined = Conv (channels, back)
  flat = Squeeze (joined, one)
  m = MatMul (flat, u)
  p, q = Split <axis = 1> (m)
  y = Add (x, p)
})";
  for (const int64_t batch : {3, 5}) {
    const ImportedGraph imported = At(graph, batch);
    EXPECT_TRUE(imported.batch_copies.empty()) << *imported.batch_copies.begin();
    EXPECT_EQ(imported.graph->value(imported.graph->outputs.at(0)).shape, (Shape{batch, 4}));
  }
}

}  // namespace
}  // namespace gradloom
