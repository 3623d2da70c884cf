// Nodes that the import writes as others, whatever their opset.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/graph/graph.h"
#include "runtime/base/error.h"
#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

// tf.keras writes LayerNormalization so: rows are channels, and their means are computed. It is the same in training and in inference.
TEST(RewrittenNodes, WritesOutBatchNormalizationWithComputedStatistics) {
  const auto operators = [](const std::string& mean) {
    return Operators(*ImportText(Onnx(R"(g (float[1, 4, 3, 1] x) => (float[1, 4, 3, 1] y)
<float[4] one = {1, 1, 1, 1}, float[4] zero = {0, 0, 0, 0}, float[4] v = {1, 2, 1, 2}, int64[3] axes = {0, 2, 3}>
{
  m = )" + mean + R"(
  y = BatchNormalization (x, one, zero, m, v)
})"))
                          .graph);
  };
  EXPECT_EQ(operators("Identity (zero)").find("Sqrt"), std::string::npos);
  const std::string written = operators("ReduceMean <keepdims = 0> (x, axes)");
  EXPECT_EQ(written.find("BatchNormalization"), std::string::npos) << written;
  EXPECT_NE(written.find("Sqrt"), std::string::npos) << written;
}

// ONNX permits [N], whose elements are samples of one channel.
TEST(RewrittenNodes, NormalizesVectorsAsOneChannel) {
  const auto imported = [](const std::string& outputs, const std::string& attributes) {
    return *ImportText(Onnx("g (float[5] x) => (float[5] y) <float[1] s = {2}, float[1] b = {1}, float[1] m = {0}, float[1] v = "
                            "{4}> { " +
                            outputs + " = BatchNormalization " + attributes + " (x, s, b, m, v) }"))
                .graph;
  };
  for (const char* attributes : {"<epsilon = 0.5>", "<epsilon = 0.5, training_mode = 1>"}) {
    const bool training = std::string(attributes).find("training_mode") != std::string::npos;
    const Graph graph = imported(training ? "y, m2, v2" : "y", attributes);
    ASSERT_EQ(Operators(graph), "Unsqueeze BatchNormalization Squeeze");
    EXPECT_EQ(graph.value(graph.nodes[1].inputs[0]).shape, (Shape{5, 1}));
    EXPECT_EQ(graph.nodes[1].attributes.Float("epsilon", 0), 0.5);
    EXPECT_EQ(graph.nodes[1].outputs.size(), training ? 3u : 1u);
    EXPECT_EQ(graph.value(graph.outputs[0]).shape, Shape{5});
  }
}

// A pooling of sequences with channels last is written out, but not if it returns indices, which are positions in the tensor as it is.
TEST(RewrittenNodes, KeepsPoolingThatReturnsIndices) {
  const std::string shape = "float[1, 1, 2, 4, 3]";
  EXPECT_NE(Operators(*ImportText(Onnx("g (" + shape + " x) => (float y) { y = MaxPool <kernel_shape = [1, 2, 1]> (x) }")).graph),
            "MaxPool");
  EXPECT_EQ(
      Operators(*ImportText(Onnx("g (" + shape + " x) => (float y, int64 i) { y, i = MaxPool <kernel_shape = [1, 2, 1]> (x) }")).graph),
      "MaxPool");
}

// Negative pads remove elements before the rest is repeated. The numbers are onnxruntime's.
TEST(RewrittenNodes, WrappedPadsThatRemoveElements) {
  const auto padded = [](const std::string& pads) {
    return *ImportText(Onnx("g (float[5] x) => (int64[N] y) <int64[5] v = {0, 1, 2, 3, 4}, int64[2] p = {" + pads +
                            "}> { y = Pad<mode = \"wrap\">(v, p) }"))
                .graph;
  };
  const auto values = [&](const std::string& pads) {
    const Graph graph = padded(pads);
    return IntValues(graph.data(graph.nodes.back().inputs[0])->view());
  };
  EXPECT_EQ(values("2, -1"), (std::vector<int64_t>{2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(values("-2, 3"), (std::vector<int64_t>{2, 3, 4, 2, 3, 4}));
  EXPECT_EQ(values("7, -1"), (std::vector<int64_t>{1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(values("-1, -1"), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_THROW(padded("-5, 4"), Error);
  EXPECT_THROW(padded("2, -9223372036854775808"), Error);
  const Graph graph =
      *ImportText(
           Onnx("g (float[2,5] x) => (float[2,6] y) <int64[2] p = {2, -1}, int64[1] a = {-1}> { y = Pad<mode = \"wrap\">(x, p, \"\", a) }"))
           .graph;
  EXPECT_EQ(Operators(graph), "Slice Pad");
}

}  // namespace
}  // namespace gradloom
