// Files for one batch size whose first input does not begin with the samples: the outputs say how many there are.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

// The nodes of several graphs, added up for each graph: only the output says how many graphs there are.
TEST(BatchOfOutputs, IsTheOnlyOneIfInputsHaveSeveralRowsForEachSample) {
  const auto with = [](const std::string& node) {
    return Onnx(
        "g (float[6, 4] nodes, int64[6, 4] owner) => (float[2, 4] y) <float[2, 4] zeros = {0, 0, 0, 0, 0, 0, 0, 0}, float[6, 1] "
        "w = {1, 2, 3, 4, 5, 6}> { h = " +
        node + " y = ScatterElements <axis = 0, reduction = \"add\"> (zeros, owner, h) }");
  };
  // Nodes of two graphs would be accepted as two nodes; with a number for each node they are not.
  for (const char* node : {"Tanh(nodes)", "Mul(nodes, w)"}) {
    const ImportedGraph imported = ImportText(with(node), {.batch = 2});
    EXPECT_EQ(imported.batch, 2) << node;
    EXPECT_EQ(imported.graph->value(imported.graph->inputs[0]).shape.ToString(), "[6,4]") << node;
    EXPECT_EQ(imported.graph->value(imported.graph->outputs[0]).shape.ToString(), "[2,4]") << node;
    EXPECT_EQ(imported.batch_axes, (std::vector<int>{-1, -1})) << node;
  }
  EXPECT_EQ(FailureOf(with("Mul(nodes, w)"), {.batch = 3}), ErrorCode::kShape);
  // A sample has two rows of the output, which follow the input.
  const std::string rows = Onnx("g (float[2, 4] x) => (float[4, 2] y) <int64[2] two = {-1, 2}> { y = Reshape(x, two) }");
  const ImportedGraph follows = ImportText(rows, {.batch = 4});
  EXPECT_EQ(follows.graph->value(follows.graph->inputs[0]).shape.ToString(), "[4,4]");
  EXPECT_EQ(follows.graph->value(follows.graph->outputs[0]).shape.ToString(), "[8,2]");
}

// Inputs that all samples share before the samples, and steps before samples, in files for one batch size.
TEST(BatchOfOutputs, CountsIfTheFirstInputHasNoSamples) {
  const auto shapes = [](const std::string& graph, const ImportOptions& options) {
    const ImportedGraph imported = ImportText(Onnx(graph), options);
    std::string found = std::to_string(imported.batch) + " of " + std::to_string(imported.declared_batch) + ":";
    for (size_t i = 0; i < imported.graph->inputs.size(); ++i) {
      found += " " + imported.graph->value(imported.graph->inputs[i]).shape.ToString() + "@" + std::to_string(imported.batch_axes[i]);
    }
    return found + " -> " + imported.graph->value(imported.graph->outputs[0]).shape.ToString();
  };
  const std::string graph =
      "g (float[3, 3] edges, float[5, 3, 2] x) => (float[5, 3, 2] y) <float[3, 1] b = {1, 2, 3}> { m = MatMul(edges, x)\n y = Add(m, b) }";
  for (const bool divided : {false, true}) {
    EXPECT_EQ(shapes(graph, {.batch = 5, .any_batch = divided}), "5 of 5: [3,3]@-1 [5,3,2]@0 -> [5,3,2]");
    EXPECT_EQ(shapes(graph, {.batch = 4, .any_batch = divided}), "4 of 5: [3,3]@-1 [4,3,2]@0 -> [4,3,2]");
  }
  // The extent of the first input by chance: which input is meant shows if the batch is divided.
  EXPECT_EQ(shapes(graph, {.batch = 3}), "3 of 3: [3,3]@0 [5,3,2]@-1 -> [5,3,2]");
  EXPECT_EQ(shapes(graph, {.batch = 3, .any_batch = true}), "3 of 5: [3,3]@-1 [3,3,2]@0 -> [3,3,2]");
  // The outputs have the rows of the table along their second axis.
  const std::string scores = "g (float[7, 2] table, float[5, 2] x) => (float[5, 7] y) { t = Transpose (table) y = MatMul (x, t) }";
  EXPECT_EQ(shapes(scores, {.batch = 5}), "5 of 5: [7,2]@-1 [5,2]@0 -> [5,7]");
  EXPECT_EQ(shapes(scores, {.batch = 4, .any_batch = true}), "4 of 5: [7,2]@-1 [4,2]@0 -> [4,7]");
  const std::string steps = R"(g (float[6, 5, 2] x, int64[5] n) => (float[5, 2] y) <int64[1] axis = {0}, int64[1] last = {1}> {
  s = ReduceSum <keepdims = 0> (x, axis)
  one = Unsqueeze(n, last)
  f = Cast <to = 1> (one)
  y = Div(s, f)
})";
  EXPECT_EQ(shapes(steps, {.batch = 5}), "5 of 5: [6,5,2]@-1 [5]@0 -> [5,2]");
  EXPECT_EQ(shapes(steps, {.batch = 4}), "4 of 5: [6,4,2]@1 [4]@0 -> [4,2]");
}

}  // namespace
}  // namespace gradloom
