// Nodes of old opsets become those of the newest.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/defs/parser.h"
#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

// Imports a graph in an old opset, whose nodes are upgraded.
Graph UpgradedGraph(const std::string& graph, int opset) { return *ImportText(Onnx(graph, opset)).graph; }

TEST(Upgrade, AttributesThatBecameInputs) {
  Graph graph = UpgradedGraph("g (float[2,3] x) => (float[2,1,3] y) { y = Unsqueeze<axes = [1]>(x) }", 11);
  EXPECT_EQ(graph.data(graph.nodes[0].inputs[1])->as<int64_t>()[0], 1);
  graph = UpgradedGraph("g (float[2,3] x) => (float[2,1] y) { y = ReduceMean<axes = [1]>(x) }", 13);
  EXPECT_EQ(graph.data(graph.nodes[0].inputs[1])->as<int64_t>()[0], 1);
  graph = UpgradedGraph("g (float[2,3] x) => (float[2,3] y) { y = Clip<max = 6.0>(x) }", 7);
  EXPECT_EQ(graph.nodes[0].inputs[1], kNoValue);
  EXPECT_EQ(graph.data(graph.nodes[0].inputs[2])->as<float>()[0], 6.0f);
  graph = UpgradedGraph("g (float[2,3] x) => (float[2,1] y) { y = Slice<axes = [1], starts = [1], ends = [2]>(x) }", 9);
  EXPECT_EQ(graph.nodes[0].inputs.size(), 4u);
  graph = UpgradedGraph("g (float[2,3] x) => (float[2,2] y, int64[2,2] i) { y, i = TopK<k = 2>(x) }", 9);
  EXPECT_EQ(graph.value(graph.outputs[0]).shape, (Shape{2, 2}));
  graph = UpgradedGraph("g (float[2,4] x) => (float[2,2] y, float[2,2] z) { y, z = Split<axis = 1>(x) }", 11);
  EXPECT_EQ(graph.nodes[0].attributes.Int("num_outputs", 0), 2);
  graph = UpgradedGraph("g (float[2,3] x) => (float[2,5] y) { y = Pad<pads = [0,1,0,1], value = 2.0>(x) }", 9);
  EXPECT_EQ(graph.value(graph.outputs[0]).shape, (Shape{2, 5}));
}

// The number of equal parts is that of the outputs, with a name or without.
TEST(Upgrade, SplitCountsPartsWithoutNames) {
  const Graph graph = UpgradedGraph("g (float[6] x) => (float[2] a, float[2] b) { a, b, \"\" = Split(x) }", 13);
  EXPECT_EQ(graph.nodes[0].attributes.Int("num_outputs", 0), 3);
  EXPECT_EQ(graph.value(graph.outputs[0]).shape, (Shape{2}));
}

// Operators that took integers, and rounded towards zero.
TEST(Upgrade, FunctionsOfIntegers) {
  const auto values = [](const std::string& node, int opset, const std::string& type = "int64") {
    const Graph graph = UpgradedGraph(
        "g (float[2] x) => (" + type + "[N] y) <" + type + "[2, 3] v = {1, 2, 3, 40, 50, 60}> { y = " + node + "(v) }", opset);
    return IntValues(graph.data(graph.nodes.back().inputs[0])->view());
  };
  // log(6), log(150)
  EXPECT_EQ(values("ReduceLogSum <axes = [1], keepdims = 0>", 11), (std::vector<int64_t>{1, 5}));
  EXPECT_EQ(values("ReduceLogSum <keepdims = 0>", 27, "uint32"), (std::vector<int64_t>{5}));
  // log(e^1 + e^2 + e^3) = 3.41, log(e^40 + e^50 + e^60) = 60.00005
  EXPECT_EQ(values("ReduceLogSumExp <axes = [1], keepdims = 0>", 13, "int32"), (std::vector<int64_t>{3, 60}));
  const Graph graph = UpgradedGraph("g (int8[2] x) => (int8[2] y) { y = Erf (x) }", 9);
  EXPECT_EQ(Operators(graph), "Cast Erf Cast");
  EXPECT_EQ(graph.value(graph.outputs[0]).dtype, DType::kInt8);
  // ONNX permits these in the newest opset, too.
  const auto operators = [](const std::string& graph) { return Operators(UpgradedGraph(graph, 28)); };
  EXPECT_EQ(operators("g (uint8[1,1,2,2] x, float[1,3,3,2] p) => (uint8[1,1,3,3] y) { y = GridSample (x, p) }"), "Cast GridSample Cast");
  EXPECT_EQ(operators("g (int32[4] x, float s, int8 z) => (int8[4] y) { y = QuantizeLinear (x, s, z) }"), "Cast QuantizeLinear");
  EXPECT_EQ(operators("g (int64[4] x) => (float[4,3] y) <uint8 d = {3}, float[2] v = {0, 1}> { y = OneHot (x, d, v) }"), "OneHot");
  EXPECT_NE(operators("g (float[4,3] x) => (float[2,5] y) <int32[2] s = {2, 5}> { y = CenterCropPad (x, s) }"), "");
}

TEST(Upgrade, SoftmaxOverSeveralAxes) {
  EXPECT_EQ(Operators(UpgradedGraph("g (float[2,3] x) => (float[2,3] y) { y = Softmax(x) }", 11)), "Softmax");
  EXPECT_EQ(Operators(UpgradedGraph("g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }", 11)), "Flatten Softmax Reshape");
  const Graph graph = UpgradedGraph("g (float[2,3,4] x) => (float[2,3,4] y) { y = LogSoftmax<axis = 2>(x) }", 9);
  EXPECT_EQ(graph.nodes[0].attributes.Int("axis", 0), 2);
}

TEST(Upgrade, OldSamplers) {
  for (const int opset : {7, 9}) {
    const std::string node = opset == 7 ? "y = Upsample<scales = [1.0,1.0,2.0,2.0]>(x)" : "y = Upsample(x, s)";
    const Graph graph = UpgradedGraph("g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}> { " + node + " }", opset);
    EXPECT_EQ(graph.nodes[0].op, "Resize");
    EXPECT_EQ(graph.nodes[0].attributes.String("coordinate_transformation_mode", ""), "asymmetric");
    EXPECT_EQ(graph.nodes[0].attributes.String("nearest_mode", ""), "floor");
  }
}

// Old nodes sample the nearest element below along growing axes, and above along shrinking ones. A node with both becomes two Resize nodes.
TEST(Upgrade, OldSamplersThatGrowAndShrink) {
  const Graph graph =
      UpgradedGraph("g (float[1,1,2,4] x) => (float[1,1,4,2] y) <float[4] s = {1,1,2,0.5}> { y = Resize<mode = \"nearest\">(x, s) }", 10);
  EXPECT_EQ(Operators(graph), "Resize Resize");
  EXPECT_EQ(graph.nodes[0].attributes.String("nearest_mode", ""), "ceil");
  EXPECT_EQ(graph.value(graph.nodes[0].outputs[0]).shape, (Shape{1, 1, 2, 2}));
  EXPECT_EQ(graph.nodes[1].attributes.String("nearest_mode", ""), "floor");
  EXPECT_EQ(graph.value(graph.outputs[0]).shape, (Shape{1, 1, 4, 2}));
}

TEST(Upgrade, NearestOfTensorFlow) {
  const auto upgraded = [](const std::string& attributes, int opset = 11) {
    return UpgradedGraph(
        "g (float[1,1,2,2] x) => (float[1,1,4,4] y) <float[4] s = {1,1,2,2}, float[0] e = {}> { y = Resize<mode = \"nearest\", "
        "coordinate_transformation_mode = \"tf_half_pixel_for_nn\"" +
            attributes + ">(x, e, s) }",
        opset);
  };
  const Graph graph = upgraded(", nearest_mode = \"floor\"");
  EXPECT_EQ(graph.nodes[0].attributes.String("coordinate_transformation_mode", ""), "half_pixel");
  EXPECT_EQ(graph.nodes[0].attributes.String("nearest_mode", ""), "round_prefer_ceil");
  EXPECT_EQ(upgraded("").nodes[0].attributes.String("nearest_mode", ""), "ceil");
  // tf2onnx writes it into newer files, too.
  EXPECT_EQ(upgraded("", 15).nodes[0].attributes.String("nearest_mode", ""), "ceil");
  EXPECT_THROW(upgraded(", nearest_mode = \"ceil\""), Error);
}

TEST(Upgrade, Dropout) {
  const Graph graph = UpgradedGraph("g (float[2,3] x) => (float[2,3] y) { y = Dropout<ratio = 0.25>(x) }", 10);
  EXPECT_EQ(graph.data(graph.nodes[0].inputs[1])->as<float>()[0], 0.25f);
  // AlexNet, VGG and similar models name a mask that nothing reads. Its type used to be that of the data.
  const Graph named = UpgradedGraph("g (float[2,3] x) => (float[2,3] y) { d, mask = Dropout<ratio = 0.25>(x) y = Add (d, mask) }", 7);
  EXPECT_EQ(Operators(named), "Dropout Cast Add");
}

// x.clamp(min=0) of PyTorch's default exporter, unlike torch.maximum(x, a_tensor).
TEST(Upgrade, ClampsOfTorch) {
  const auto operators = [](const std::string& graph) { return Operators(UpgradedGraph(graph, 18)); };
  EXPECT_EQ(operators("g (float[2] x) => (float[2] y) { val_0 = Constant<value_float = 0.0>() y = Max(x, val_0) }"), "Clip");
  Graph graph = UpgradedGraph("g (float[2] x) => (float[2] y) <float val_4 = {1}> { y = Min(x, val_4) }", 18);
  EXPECT_EQ(Operators(graph), "Clip");
  EXPECT_EQ(graph.nodes[0].inputs[1], kNoValue);
  EXPECT_EQ(graph.data(graph.nodes[0].inputs[2])->as<float>()[0], 1.0f);
  EXPECT_EQ(operators("g (float[2] x) => (float[2] y) <float clone = {0}> { y = Max(x, clone) }"), "Max");
  EXPECT_EQ(operators("g (float[2] x) => (float[2] y) <float[2] val_0 = {0, 1}> { y = Max(x, val_0) }"), "Max");
  EXPECT_EQ(operators("g (float x) => (float y) { val_0 = Exp(x) y = Max(x, val_0) }"), "Exp Max");
  // A learned bound stays an operand.
  EXPECT_EQ(operators("g (float[2] x) => (float[2] y) <float alpha = {1}> { val_0 = CastLike(alpha, x) y = Min(x, val_0) }"), "Min");
  EXPECT_EQ(operators("g (float[2] x) => (float[2] y) <float alpha = {1}> { a = Abs(alpha) val_0 = Neg(a) y = Max(x, val_0) }"),
            "Abs Neg Max");
  EXPECT_EQ(operators("g (float[2] x) => (float[2] y) <float val_1 = {1}> { val_0 = Neg(val_1) y = Max(x, val_0) }"), "Neg Clip");
  EXPECT_EQ(operators("g (int64[2] x) => (int64[2] y) <int64 val_0 = {0}> { y = Max(x, val_0) }"), "Max");

  const auto noted = [](const std::string& source) {
    onnx::ModelProto model;
    const std::string text = Onnx("g (float[2] x) => (float[2] y) <float val_0 = {0}> { y = Max(x, val_0) }");
    EXPECT_TRUE(onnx::OnnxParser::Parse(model, text.c_str()).IsOK());
    onnx::StringStringEntryProto* note = model.mutable_graph()->mutable_node(0)->add_metadata_props();
    note->set_key("pkg.torch.onnx.fx_node");
    note->set_value("%y : [num_users=1] = call_function[target=torch.ops.aten." + source + ", kwargs = {})");
    return Operators(*Import(Model::FromBytes(model.SerializeAsString(), "noted")).graph);
  };
  EXPECT_EQ(noted("clamp.Tensor](args = (%x, %scalar_tensor_default)"), "Clip");
  EXPECT_EQ(noted("clamp.Tensor](args = (%x, %p_least)"), "Max");
  EXPECT_EQ(noted("maximum.default](args = (%x, %clone)"), "Max");
}

}  // namespace
}  // namespace gradloom
