// Models whose batch size was exported as a number, used at other batch sizes.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "runtime/session/session.h"
#include "tests/onnx/baked_training.h"

namespace gradloom {
namespace {

constexpr char kFolder[] = "tests/onnx/baked/";

std::vector<double> LossesOf(const std::string& path, const std::vector<int64_t>& sizes) { return Train(Model::Load(path), sizes).losses; }

struct Network {
  const char* name;
  int64_t declared;
};

class BakedBatch : public ::testing::TestWithParam<Network> {};

// Matches the export of the same network with a dynamic batch: at larger, smaller, its own, and single-sample batches.
TEST_P(BakedBatch, MatchesTheDynamicExportAtOtherBatches) {
  const std::string path = kFolder + std::string(GetParam().name);
  const std::vector<int64_t> sizes = {7, 2, 7, GetParam().declared, 3, 1};
  const std::vector<double> fixed = LossesOf(path + "_fixed.onnx", sizes), dynamic = LossesOf(path + "_dynamic.onnx", sizes);
  for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(fixed[i], dynamic[i], 1e-5) << "step " << i << ", batch " << sizes[i];
  EXPECT_NE(fixed[0], fixed[2]);
}

INSTANTIATE_TEST_SUITE_P(Exports, BakedBatch,
                         ::testing::Values(Network{"mlp_script", 4}, Network{"mlp_dynamo", 4}, Network{"mlp_one_script", 1},
                                           Network{"mlp_one_dynamo", 1}, Network{"lstm_script", 4}, Network{"lstm_one_script", 1},
                                           Network{"lstm_one_dynamo", 1}, Network{"gru_script", 3}, Network{"gru_dynamo", 3},
                                           Network{"transformer_script", 4}, Network{"transformer_one_script", 1},
                                           Network{"transformer_one_dynamo", 1}, Network{"attention_script", 5},
                                           Network{"attention_dynamo", 5}, Network{"upsampler_script", 2}, Network{"upsampler_dynamo", 2}),
                         [](const auto& info) { return std::string(info.param.name); });

Shape OutputAt(const std::string& graph, int64_t batch) {
  const ImportedGraph imported = At(graph, batch);
  return imported.graph->value(imported.graph->outputs.at(0)).shape;
}

struct Rewritten {
  const char* what;
  const char* graph;
  Shape at3, at1;
};

// Exported for one sample, with the batch axis of its inputs made open afterwards.
std::string OpenFile(const std::string& shape, const std::string& out = "N, 2, 3") {
  return "g (float[N, 6] x) => (float[" + out +
         "] z) <float[6, 6] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, -0.1, -0.2, -0.3, "
         "0.4, 0.5, 0.6, 0.7, -0.8, 0.9, 1, -1.1, 1.2, 0.3, 0.1, 0.2, 0.5, -0.4, 0.6, 0.7, 0.2, 0.1, -0.3, 0.8, 0.9}, int64[3] s = {" +
         shape +
         "}> { h = MatMul (x, w) r = Reshape (h, s) t = Transpose <perm = [0, 2, 1]> (r) p = Softmax (t) q = MatMul (r, p) z = MatMul (q, "
         "r) }";
}

TEST(OpenBatch, FindsFilesForOneSample) {
  for (const char* shape : {"1, 2, 3", "1, -1, 3", "1, 2, -1"}) {
    for (const int64_t batch : {1, 3, 4}) {
      const ImportedGraph imported = At(OpenFile(shape), batch);
      EXPECT_EQ(imported.graph->value(imported.graph->outputs[0]).shape, (Shape{batch, 2, 3})) << shape;
      EXPECT_EQ(imported.declared_batch, batch == 1 ? 0 : 1);
      EXPECT_EQ(imported.warnings.size(), batch == 1 ? 0u : 1u);
      for (const std::string& warning : imported.warnings) {
        EXPECT_NE(warning.find("read as an export for a batch size of one"), std::string::npos) << warning;
      }
    }
  }
}

TEST(OpenBatch, LeavesFittingFilesUnchanged) {
  const ImportedGraph imported = At(OpenFile("-1, 2, 3"), 4);
  EXPECT_EQ(imported.declared_batch, 0);
  EXPECT_TRUE(imported.warnings.empty());
}

// Also one for two samples, in which the 2 is found among the numbers of its shapes.
TEST(OpenBatch, FilesForFewSamplesTrainAtAnyBatch) {
  const auto model = [](const std::string& shape) {
    return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\n" + OpenFile(shape));
  };
  const std::vector<int64_t> sizes = {3, 5, 1};
  const Trained open = Train(model("-1, 2, 3"), sizes);
  for (const int devices : {1, 2}) {
    for (const char* shape : {"1, 2, 3", "1, -1, 3", "2, 2, 3"}) {
      const Trained one = Train(model(shape), sizes, devices);
      for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(one.losses[i], open.losses[i], 1e-5 * open.losses[i]) << "step " << i;
    }
  }
}

// Extents of 4 that are the batch size and extents of 4 that are not.
const Rewritten kRewritten[] = {
    {"a target with the rest open",
     "g (float[4, 2, 4] x) => (float[4, 8] y) <int64[2] s = {4, -1}> { y = Reshape (x, s) }",
     {3, 8},
     {1, 8}},
    {"an open batch", "g (float[4, 2, 4] x) => (float[4, 8] y) <int64[2] s = {-1, 8}> { y = Reshape (x, s) }", {3, 8}, {1, 8}},
    {"one sample beside heads",
     "g (float[1, 3, 8] x) => (float[1, 3, 8] y) <int64[3] s = {3, 2, 4}, int64[3] t = {3, 1, 8}> "
     "{ a = Transpose <perm = [1, 0, 2]> (x) h = Reshape (a, s) q = Transpose <perm = [1, 0, 2]> (h) k = Transpose <perm = [1, 2, 0]> (h) "
     "p = MatMul (q, k) w = Softmax <axis = -1> (p) o = MatMul (w, q) b = Transpose <perm = [1, 0, 2]> (o) c = Reshape (b, t) "
     "y = Transpose <perm = [1, 0, 2]> (c) }",
     {3, 3, 8},
     {1, 3, 8}},
    {"rows of one sample",
     "g (float[1, 3, 2] x) => (float[1, 3, 2] y) <int64[2] s = {3, 2}, int64[3] t = {1, 3, 2}, float[3, 2] c = {1, 2, 3, 4, 5, 6}> "
     "{ a = Reshape (x, s) b = Add (a, c) y = Reshape (b, t) }",
     {3, 3, 2},
     {1, 3, 2}},
    {"a Transpose to time first that a tool has written as a Reshape",
     "g (float[1, 5, 3] x) => (float[1, 2] y) <int64[3] s = {5, 1, 3}, int64[1] first = {0}, "
     "float[1, 2, 3] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, float[1, 2, 2] r = {0.1, 0.2, 0.3, 0.4}> "
     "{ t = Reshape (x, s) a, h = RNN <hidden_size = 2> (t, w, r) y = Squeeze (h, first) }",
     {3, 2},
     {1, 2}},
    {"one of steps of one number",
     "g (float[1, 5, 1] x) => (float[1, 2] y) <int64[3] s = {5, 1, 1}, int64[1] first = {0}, float[1, 2, 1] w = {0.1, 0.2}, "
     "float[1, 2, 2] r = {0.1, 0.2, 0.3, 0.4}> { t = Reshape (x, s) a, h = RNN <hidden_size = 2> (t, w, r) y = Squeeze (h, first) }",
     {3, 2},
     {1, 2}},
    {"channels as rows",
     "g (float[1, 4, 3] x) => (float[1, 4, 3] y) <int64[3] s = {4, 1, 3}, int64[3] b = {1, 4, 3}, float[1, 1, 1] w = {0.5}> "
     "{ t = Reshape (x, s) a = Conv (t, w) y = Reshape (a, b) }",
     {3, 4, 3},
     {1, 4, 3}},
    {"everything of one sample in one row",
     "g (float[1, 2, 2] x) => (float[1, 3] y) <float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3}> "
     "{ a = Flatten <axis = 0> (x) y = MatMul (a, w) }",
     {3, 3},
     {1, 3}},
    {"the same with an axis from the end", "g (float[1, 2, 2] x) => (float[1, 4] y) { y = Flatten <axis = -3> (x) }", {3, 4}, {1, 4}},
    {"what is best, written into zeros",
     "g (float[1, 4] x) => (float[1, 4] y) <int64[1] k = {2}, float[1, 4] z = {0, 0, 0, 0}> "
     "{ v, i = TopK (x, k) y = ScatterElements <axis = -1> (z, i, v) }",
     {3, 4},
     {1, 4}},
    {"four features in two pairs",
     "g (float[4, 4] x) => (float[4, 2, 2] y) <int64[3] s = {4, 2, 2}> { y = Reshape (x, s) }",
     {3, 2, 2},
     {1, 2, 2}},
    {"time first, merged, and apart again",
     "g (float[4, 4, 5] x) => (float[4, 4, 5] y) <int64[2] s = {16, 5}, int64[3] t = {4, 4, 5}> "
     "{ a = Transpose <perm = [1, 0, 2]> (x) b = Reshape (a, s) c = Relu (b) y = Reshape (c, t) }",
     {4, 3, 5},
     {4, 1, 5}},
    {"rows that are all the same",
     "g (float[4, 2] x) => (float[4, 2] y) <float[4, 2] c = {1, 2, 1, 2, 1, 2, 1, 2}> { y = Add (x, c) }",
     {3, 2},
     {1, 2}},
    {"one row repeated",
     "g (float[4, 2] x) => (float[4, 4] y) <float[1, 2] c = {1, 2}, int64[2] s = {4, 2}> "
     "{ e = Expand (c, s) y = Concat <axis = 1> (x, e) }",
     {3, 4},
     {1, 4}},
    {"a batch that is expanded by features",
     "g (float[4, 1] x) => (float[4, 4] y) <int64[2] s = {4, 4}> { y = Expand (x, s) }",
     {3, 4},
     {1, 4}},
    {"all of the batch",
     "g (float[4, 5] x) => (float[4, 2] y) <int64[2] b = {0, 0}, int64[2] e = {4, 2}> { y = Slice (x, b, e) }",
     {3, 2},
     {1, 2}},
    {"all elements in order, as exporters write as_strided",
     "g (float[4, 2, 1] x) => (float[4, 2] y) <int64[1] s = {-1}, int64[4, 2] i = {0, 1, 2, 3, 4, 5, 6, 7}> "
     "{ a = Reshape (x, s) y = Gather (a, i) }",
     {3, 2},
     {1, 2}},
    {"a mask at all its places",
     "g (float[2, 2] x) => (float[2, 1, 2] y) <int64[2, 1, 2, 2] i = {0, 0, 0, 1, 1, 0, 1, 1}> { y = GatherND (x, i) }",
     {3, 1, 2},
     {1, 1, 2}},
    {"flattened, and all elements in order",
     "g (float[4, 3] x) => (float[4, 1, 3, 1] y) <int64[4, 1, 3] i = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}> "
     "{ a = Flatten <axis = 2> (x) y = Gather (a, i) }",
     {3, 1, 3, 1},
     {1, 1, 3, 1}},
    {"one row for each of two frames of a sample",
     "g (float[4, 2, 3] x) => (float[8, 4] y) <int64[2] s = {8, 3}, float[1, 1] c = {5}, int64[2] t = {8, 1}> "
     "{ a = Reshape (x, s) e = Expand (c, t) y = Concat <axis = 1> (a, e) }",
     {6, 4},
     {2, 4}},
    {"two heads of a sample, one after the other",
     "g (float[4, 2, 3] x) => (float[8, 3] y) <int64[2] s = {8, 3}, float[8, 1] c = {1, 2, 1, 2, 1, 2, 1, 2}> "
     "{ a = Reshape (x, s) y = Mul (a, c) }",
     {6, 3},
     {2, 3}},
    {"an equation over rows that are all the same",
     "g (float[4, 3] x) => (float[4, 2] y) <float[2, 4, 3] c = {1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6, 4, 5, 6}> "
     "{ y = Einsum <equation = \"bd,jbd->bj\"> (x, c) }",
     {3, 2},
     {1, 2}},
    {"slices written into zeros for the batch",
     "g (float[4, 2] x) => (float[3, 4] y) <float[3, 4] c = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, int64[2, 1] i = {0, 2}> "
     "{ t = Transpose <perm = [1, 0]> (x) y = ScatterND (c, i, t) }",
     {3, 3},
     {3, 1}},
    {"rows of all samples written by their number",
     "g (float[4, 2] x, int64[4, 2] k) => (float[4, 3] y) <int64[4, 1] n = {0, 3, 6, 9}, float[12] c = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
     "0}, "
     "int64[1] all = {-1}, int64[2] s = {4, 3}> "
     "{ i = Add (k, n) f = Reshape (i, all) u = Unsqueeze (f, all) t = Concat <axis = -1> (u) v = Reshape (x, all) w = ScatterND (c, t, v) "
     "y = Reshape (w, s) }",
     {3, 3},
     {1, 3}},
    {"a mean over the batch, for each sample again",
     "g (float[4, 2] x) => (float[4, 2] y) <int64[2] s = {4, 2}> { m = ReduceMean <axes = [0]> (x) e = Expand (m, s) y = Mul (x, e) }",
     {3, 2},
     {1, 2}},
    {"a target that is computed of a number that might be trained",
     "g (float[4, 2, 3] x) => (float[8, 3] y) <float h = {2}, int64 n = {16}, int64[1] first = {0}, int64[1] three = {3}> "
     "{ f = Cast <to = 1> (n) d = Div (f, h) e = Cast <to = 7> (d) u = Unsqueeze (e, first) s = Concat <axis = 0> (u, three) y = Reshape "
     "(x, s) }",
     {6, 3},
     {2, 3}},
};

TEST(BakedBatchGraphs, ShapesFollowTheBatch) {
  for (const Rewritten& rewritten : kRewritten) {
    SCOPED_TRACE(rewritten.what);
    EXPECT_EQ(OutputAt(rewritten.graph, 3), rewritten.at3);
    EXPECT_EQ(OutputAt(rewritten.graph, 1), rewritten.at1);
    EXPECT_NO_THROW(OutputAt(rewritten.graph, 4));
  }
}

// Indices and updates for each sample of the file's batch. They would also fit a larger batch, but leave the remaining samples unchanged.
TEST(BakedBatchElements, ScatterIntoAllSamples) {
  const auto model = [](const std::string& batch, const std::string& tensors, const std::string& before) {
    return Model::FromText("<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[" + batch + ", 4] x) => (float[" + batch +
                           ", 4] z) <float[4, 4] w = {1, 0, 0.5, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0.25, 0, 1}, " + tensors +
                           "> { h = MatMul (x, w) " + before + " s = ScatterElements <axis = 1> (h, i, u) z = Mul (s, h) }");
  };
  const std::vector<int64_t> sizes = {3, 5, 2, 7};
  const Trained any =
      Train(model("N", "int64[1, 2] j = {2, 0}, float[1, 1] v = {0.5}, int64[1] two = {2}, int64[1] b = {0}, int64[1] e = {1}",
                  "f = Shape (x) n = Slice (f, b, e) t = Concat <axis = 0> (n, two) i = Expand (j, t) u = Expand (v, t)"),
            sizes);
  for (const int devices : {1, 2}) {
    const Trained fixed =
        Train(model("3", "int64[3, 2] i = {2, 0, 2, 0, 2, 0}, float[3, 2] u = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5}", ""), sizes, devices);
    for (size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(fixed.losses[i], any.losses[i], 1e-5) << "step " << i << ", devices " << devices;
  }
}

// Each device gathers from a shared table by its own indices, and gradients sum over all samples. The indices must not be mistaken for
// sample numbers, which differ between devices.
TEST(BakedBatchElements, GatherFromASharedTableOnEachDevice) {
  const auto train = [](const std::string& taken, int devices) {
    const Model model = Model::FromText(
        "<ir_version: 10, opset_import: [\"\" : 17]>\ng (float[N, 2] x) => (float[N, 2] z) <float[2, 2] w = {1, 0.5, -0.5, 1}, "
        "float[9, 2] t = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}, float[3] s = {0.5, -2, 4}, float zero = {0}, "
        "int64[1] one = {1}> { h = MatMul (x, w) p = Greater (x, zero) i = Cast <to = 7> (p) c = ReduceMax <axes = [1], keepdims = 0> "
        "(i) " +
        taken + " z = Mul (h, v) }");
    CompileOptions options;
    options.recipe.losses = {{.type = "mse", .output = "z", .target = "y"}};
    options.recipe.freeze = {"t"};
    options.recipe.schedule.lr = 0.1;
    options.recipe.devices = devices;
    options.entries = {{EntryKind::kStep, 5}};
    const auto plan = std::make_shared<const Plan>(Compile(model, options));
    Session session(plan);
    const Tensor x = Random({5, 2}, 1), y = Random({5, 2}, 2);
    std::vector<double> losses;
    for (int step = 0; step < 3; ++step) losses.push_back(session.Step({{"x", x.view()}, {"y", y.view()}}).loss);
    return losses;
  };
  // With axis 1 sample n reads row n of the table, which is left to one device.
  for (const char* taken :
       {"v = GatherElements (t, i)", "g = GatherElements (s, c) v = Unsqueeze (g, one)", "v = GatherElements <axis = 1> (t, i)"}) {
    const std::vector<double> one = train(taken, 1), two = train(taken, 2);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], 1e-5 * one[i]) << taken;
    EXPECT_NE(one[0], one[2]);
  }
}

struct Refused {
  const char* what;
  const char* graph;
  const char* message;
};

const Refused kRefused[] = {
    {"a batch in two parts", "g (float[4, 6] x) => (float[2, 2, 6] y) <int64[3] s = {2, 2, 6}> { [node] y = Reshape (x, s) }",
     "the target [2,2,6] splits the batch axis"},
    {"a batch of one beside two axes",
     "g (float[1, 3, 4] x) => (float[3, 4] y) <int64[2] s = {3, 4}> { a = Transpose <perm = [1, 0, 2]> (x) [node] y = Reshape (a, s) }",
     "merges a batch of one"},
    {"tokens of all samples in a row, behind which a Transpose was taken for nothing",
     "g (float[1, 3, 4] x) => (float[1, 3, 4] y) <int64[2] f = {3, 4}, int64[4] h = {3, 1, 2, 2}, int64[3] s = {1, 3, 4}> "
     "{ a = Reshape (x, f) [node] b = Reshape (a, h) q = Transpose <perm = [1, 2, 0, 3]> (b) k = Transpose <perm = [1, 2, 3, 0]> (b) "
     "e = MatMul (q, k) p = Softmax (e) v = MatMul (p, q) r = Transpose <perm = [2, 0, 1, 3]> (v) y = Reshape (r, s) }",
     "has the batch of one after other axes"},
    {"places within a sample among rows of all, by tuples",
     "g (float[1, 3, 4] x, int64[1, 2] i) => (float[1, 2, 4] y) <int64[2] f = {3, 4}, int64[1] last = {-1}> "
     "{ a = Reshape (x, f) t = Unsqueeze (i, last) [node] y = GatherND (a, t) }",
     "selects samples of the batch by index"},
    {"what is made of all of one sample",
     "g (float[1, 4] x) => (float[1, 4] y) <int64[1] s = {-1}> { a = Reshape (x, s) m = ReduceSum (a) [node] y = Add (x, m) }",
     "each sample reads a result of all elements"},
    {"weights for all of one sample",
     "g (float[1, 3] x) => (float[2] y) <int64[1] s = {-1}, float[3, 2] w = {1, 2, 3, 4, 5, 6}> { a = Reshape (x, s) [node] y = MatMul (a, "
     "w) }",
     "Incompatible dim"},
    {"features of one sample without an axis for the batch",
     "g (float[4] x) => (float[2] y) <float[4, 2] w = {1, 2, 3, 4, 5, 6, 7, 8}> { [node] y = MatMul (x, w) }", "Incompatible dim"},
    {"steps of all samples, written as one sequence",
     "g (float[1, 5, 3] x) => (float[5, 2] y) <int64[3] s = {5, 1, 3}, int64[1] axis = {1}, "
     "float[1, 2, 3] w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}, float[1, 2, 2] r = {0.1, 0.2, 0.3, 0.4}, float[5, 2] c = {1, 2, 3, 4, 5, 6, 7, 8, "
     "9, 10}> { t = Reshape (x, s) [node] a, h = RNN <hidden_size = 2> (t, w, r) b = Squeeze (a, axis) d = Squeeze (b, axis) y = Add (d, "
     "c) }",
     "its sequence would have the steps of all samples"},
    {"a state that is an input",
     "g (float[1, 5, 3] x, float[1, 1, 2] h) => (float[1, 1, 2] y) <int64[1] axis = {1}, float[1, 2, 3] w = {0.1, 0.2, 0.3, 0.4, 0.5, "
     "0.6}, "
     "float[1, 2, 2] r = {0.1, 0.2, 0.3, 0.4}> "
     "{ t = Transpose <perm = [1, 0, 2]> (x) i = Mul (h, h) [node] a, y = RNN <hidden_size = 2> (t, w, r, , , i) }",
     "--value INPUT=0 makes it a constant"},
    {"rows that differ", "g (float[4, 1] x) => (float[4, 1] y) <float[4, 1] c = {1, 2, 3, 4}> { [node] y = Add (x, c) }",
     "Incompatible dim"},
    {"heads of which the samples come first",
     "g (float[4, 2, 1] x) => (float[8, 1] y) <int64[2] s = {8, 1}, float[8, 1] c = {1, 1, 1, 1, 2, 2, 2, 2}> "
     "{ a = Reshape (x, s) [node] y = Mul (a, c) }",
     "Incompatible dim"},
    {"one sample", "g (float[4, 2] x) => (float[2] y) <int64 i = {1}> { [node] y = Gather (x, i) }",
     "selects samples of the batch by index"},
    {"samples of the batch, all and in another order",
     "g (float[4, 2] x) => (float[4, 2] y) <int64[4] i = {1, 0, 2, 3}> { [node] y = Gather (x, i) }",
     "selects samples of the batch by index"},
    {"half of the batch", "g (float[4, 2] x) => (float[2, 2] y) <int64[1] b = {0}, int64[1] e = {2}> { [node] y = Slice (x, b, e) }",
     "selects samples of the batch by index"},
    {"the other half", "g (float[4, 2] x) => (float[2, 2] y) <int64[1] b = {2}, int64[1] e = {9}> { [node] y = Slice (x, b, e) }",
     "selects samples of the batch by index"},
    {"parts of fixed sizes", "g (float[4, 2] x) => (float[2, 2] y, float[2, 2] z) <int64[2] s = {2, 2}> { [node] y, z = Split (x, s) }",
     ""},
    {"rows of all samples written one after the other for each place",
     "g (float[4, 2] x, int64[4, 2] k) => (float[3, 4] y) <int64[4, 1] n = {0, 1, 2, 3}, float[12] c = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "
     "0}, "
     "int64[1] all = {-1}, int64[2] s = {3, 4}> "
     "{ i = Add (k, n) f = Reshape (i, all) t = Unsqueeze (f, all) v = Reshape (x, all) w = ScatterND (c, t, v) [node] y = Reshape (w, s) "
     "}",
     "in an unknown order"},
    {"written in some samples alone",
     "g (float[4, 2] x) => (float[4, 2] y) <int64[2, 1] i = {1, 1}, float[2, 1] u = {0, 0}> "
     "{ [node] y = ScatterElements <axis = 1> (x, i, u) }",
     "selects samples of the batch by index"},
    {"written otherwise in each sample",
     "g (float[4, 2] x) => (float[4, 2] y) <int64[4, 1] i = {1, 1, 1, 1}, float[4, 1] u = {0, 1, 2, 3}> "
     "{ [node] y = ScatterElements <axis = 1> (x, i, u) }",
     "the values that it writes differ between samples"},
    {"elements of some samples alone",
     "g (float[4, 2] x) => (float[2, 1] y) <int64[2, 1] i = {1, 1}> { [node] y = GatherElements <axis = 1> (x, i) }",
     "selects samples of the batch by index"},
    {"states that differ",
     "g (float[2, 2, 1] x) => (float[2, 1, 2, 1] y) <float[1, 1, 1] w = {1}, float[1, 1, 1] r = {1}, float[1, 2, 1] h = {1, 2}> "
     "{ t = Transpose <perm = [1, 0, 2]> (x) [node] y = RNN <hidden_size = 1> (t, w, r, , , h) }",
     "its operand 5 [1,2,1] has that batch size"},
};

TEST(BakedBatchGraphs, RefusalsNameTheNode) {
  for (const Refused& refused : kRefused) {
    SCOPED_TRACE(refused.what);
    try {
      OutputAt(refused.graph, 3);
      ADD_FAILURE() << "it imports";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kShape) << error.Describe();
      EXPECT_NE(error.message().find(refused.message), std::string::npos) << error.Describe();
      EXPECT_NE(error.where().find("'node'"), std::string::npos) << error.Describe();
      EXPECT_NE(error.help().find("dynamic batch"), std::string::npos) << error.Describe();
    }
  }
}

// Bodies are not rewritten for another batch size. If one of two branches had the file's batch size, the results would be padded to the
// larger one, and the loss would cover only some of the samples.
TEST(BakedBatch, RefusesDataDependentBranches) {
  const auto message_of = [](const std::string& taken, int64_t batch) {
    const std::string graph =
        "g (float[4, 6] x, bool on) => (float[4, 5] z) <float[5] c = {1, 2, 3, 4, 5}, int64[2] big = {4, 5}, int64[2] first = {0, 0}, "
        "int64[2] five = {9223372036854775807, 5}> { h = Slice (x, first, five) [pick] z = If (on) <then_branch = t () => (float[4, 5] "
        "y) { e = Expand (c, big) " +
        taken + " }, else_branch = f () => (float[4, 5] y2) { y2 = Relu (h) }> }";
    try {
      At(graph, batch);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kShape);
      return error.Describe();
    }
    return std::string();
  };
  for (const char* taken : {"y = Identity (e)", "y = Add (h, e)"}) {
    SCOPED_TRACE(taken);
    EXPECT_EQ(message_of(taken, 4), "");
    const std::string message = message_of(taken, 8);
    EXPECT_NE(message.find("a batch size of 4"), std::string::npos) << message;
    EXPECT_NE(message.find("pick"), std::string::npos) << message;
    EXPECT_EQ(message.find("float32["), std::string::npos) << message;  // the shape at a batch size that the user did not ask for
  }
  EXPECT_EQ(message_of("y = Mul (h, c)", 8), "");
}

}  // namespace
}  // namespace gradloom
