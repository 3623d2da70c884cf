// Extents of inputs and outputs: symbols, placeholders, the batch.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "compiler/graph/text.h"
#include "compiler/onnx/import.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"
#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

TEST(ImportExtents, SymbolicDimensionsNeedAnExtent) {
  std::string message;
  EXPECT_EQ(FailureOf(Onnx(kLinear), {}, &message), ErrorCode::kConfig);
  EXPECT_NE(message.find("input 'x'"), std::string::npos) << message;
  EXPECT_NE(message.find("--batch"), std::string::npos) << message;
  EXPECT_EQ(ImportText(Onnx(kLinear), {.batch = 0, .shapes = {{"N", 3}}}).batch, 3);
  const std::string text = Onnx("g (float[N, S] x) => (float[N, S] y) { y = Relu(x) }");
  EXPECT_EQ(FailureOf(text, {.batch = 2, .shapes = {}}, &message), ErrorCode::kConfig);
  EXPECT_NE(message.find("--shape S=16"), std::string::npos) << message;
  EXPECT_EQ(ToText(*ImportText(text, {.batch = 2, .shapes = {{"S", 7}}}).graph),
            "graph g\ninput x float32[2,7]\ny float32[2,7] = Relu(x)\noutput y\n");
}

// tf2onnx and the list form of PyTorch's dynamic_axes give each input's batch axis its own symbol.
TEST(ImportExtents, GeneratedFirstDimensionsAreTheBatch) {
  const auto axes = [](const std::string& inputs, const ImportOptions& options) {
    return ImportText(Onnx("g (" + inputs + ") => (float[M, 2] y) { y = Relu(x)\n other = Relu(z) }"), options).batch_axes;
  };
  const std::vector<int> both = {0, 0}, first = {0, -1};
  EXPECT_EQ(axes("float[unk__1, 2] x, float[unk__2, 3] z", {.batch = 4, .shapes = {}}), both);
  EXPECT_EQ(axes("float[x_dynamic_axes_1, 2] x, float[z_dynamic_axes_1, 3] z", {.batch = 4, .shapes = {}}), both);
  EXPECT_EQ(axes("float[N, 2] x, float[?, 3] z", {.batch = 4, .shapes = {}}), both);
  EXPECT_EQ(axes("float[s0, 2] x, float[s77, 3] z", {.batch = 4, .shapes = {}}), both);
  EXPECT_EQ(axes("float[None, 2] x, float[None, 3] z", {.batch = 4, .shapes = {{"z[0]", 5}}}), first);
  EXPECT_EQ(axes("float[unk__1, 2] x, float[unk__2, 3] z", {.batch = 4, .shapes = {{"unk__2", 5}}}), first);
  const std::map<std::string, Shape> equal = {{"x", Shape{4, 2}}, {"z", Shape{4, 3}}}, unequal = {{"x", Shape{4, 2}}, {"z", Shape{5, 3}}};
  EXPECT_EQ(axes("float[unk__1, 2] x, float[unk__2, 3] z", {.batch = 4, .shapes = {}, .inputs = equal}), both);
  EXPECT_EQ(axes("float[unk__1, 2] x, float[unk__2, 3] z", {.batch = 4, .shapes = {}, .inputs = unequal}), first);
  // A symbol that a person chose has a meaning of its own.
  EXPECT_EQ(FailureOf(Onnx("g (float[N, 2] x, float[nodes, 3] z) => (float[M, 2] y) { y = Relu(x) }"), {.batch = 4, .shapes = {}}),
            ErrorCode::kConfig);
}

// Some converters give every open extent the same placeholder, such as "?" or "None". Such extents are independent.
TEST(ImportExtents, PlaceholdersAreNotSymbols) {
  const std::string text = Onnx("g (float[None, 3, None, None] x) => (float[None, 3, None, None] y) { y = Relu(x) }");
  const ImportedGraph imported = ImportText(text, {.batch = 2, .shapes = {{"x[2]", 4}, {"x[3]", 6}}});
  EXPECT_EQ(imported.graph->value(imported.graph->outputs[0]).shape, (Shape{2, 3, 4, 6}));
  EXPECT_EQ(FailureOf(text, {.batch = 2, .shapes = {{"x[2]", 4}}}), ErrorCode::kConfig);
}

// Recurrent models may have time first. The symbol for the batch says where it is.
TEST(ImportExtents, BatchMayBeTheSecondDimension) {
  const auto axes = [](const std::string& input, const ImportOptions& options) {
    return ImportText(Onnx("g (float[" + input + "] x) => (float[T, B, 3] y) { y = Relu(x) }"), options).batch_axes;
  };
  EXPECT_EQ(axes("time, batch, 3", {.batch = 4, .shapes = {{"time", 7}}}), std::vector<int>{1});
  EXPECT_EQ(axes("time, batch_size, 3", {.batch = 4, .shapes = {{"time", 7}}}), std::vector<int>{1});
  EXPECT_EQ(axes("5, time, batch, 3", {.batch = 4, .shapes = {{"time", 7}}}), std::vector<int>{2});
  EXPECT_EQ(axes("batch, batch_of_words, 3", {.batch = 4, .shapes = {{"batch_of_words", 7}}}), std::vector<int>{0});
  EXPECT_EQ(axes("time, N, 3", {.batch = 4, .shapes = {{"N", 7}}}), std::vector<int>{0});
}

// If the inputs have a number of steps first, the batch is the symbol with which outputs begin and which all inputs have later. A symbol
// that is first in a single place is ambiguous.
TEST(ImportExtents, BatchIsTheFirstDimensionOfOutputs) {
  const auto axes = [](const std::string& inputs, const std::string& outputs, const ImportOptions& options) {
    return ImportText(Onnx("g (" + inputs + ") => (" + outputs + ") { y = Identity(x) }"), options).batch_axes;
  };
  const ImportOptions batch{.batch = 4}, length{.batch = 2, .shapes = {{"N", 4}}};
  EXPECT_EQ(axes("float[5, N, 3] x", "float[N, 2] y", batch), std::vector<int>{1});
  EXPECT_EQ(axes("float[5, N, 3] x, float[7, N] z", "float[N, 2] y", batch), (std::vector<int>{1, 1}));
  EXPECT_EQ(axes("float[T, N, 3] x, int64[N] lengths", "float[N, 2] y", {.batch = 4, .shapes = {{"T", 6}}}), (std::vector<int>{1, 0}));
  EXPECT_EQ(axes("float[5, 7, N, 3] x", "float[N, 2] y", batch), std::vector<int>{2});
  EXPECT_EQ(axes("float[2, 3, 5, N] x, float[7, N] z, float[N] w", "float[N] y", batch), (std::vector<int>{3, 1, 0}));
  EXPECT_EQ(axes("float[5, N, 3] x, float t", "float[N, 2] y", batch), (std::vector<int>{1, -1}));
  EXPECT_EQ(axes("float[N, T, 3] x, int64[N] lengths", "float[N, 2] y", {.batch = 4, .shapes = {{"T", 6}}}), (std::vector<int>{0, 0}));
  // The output is transposed for a loss that expects time first.
  EXPECT_EQ(axes("float[N, T, 3] x", "float[T, N, 3] y", {.batch = 4, .shapes = {{"T", 6}}}), std::vector<int>{0});
  EXPECT_EQ(axes("float[1, N, 3] x", "float[N, 2] y", length), std::vector<int>{0});
  EXPECT_EQ(axes("float[5, N, 3] x", "float[5, N, 3] y", length), std::vector<int>{0});
  EXPECT_EQ(axes("float[5, N, 3] x, float[7, M] z", "float[N, 2] y", {.batch = 2, .shapes = {{"N", 4}, {"M", 3}}}),
            (std::vector<int>{0, -1}));
}

// torch.export names extents that it computes from others by the expression.
TEST(ImportExtents, ExtentsComputedFromOthers) {
  const auto model = [](const std::string& rows, const std::string& steps) {
    onnx::ModelProto proto;
    const std::string text =
        "g (float[R, 6] others, float[N, T, 2] x, float[N, U] z) => (float[N, T, 2] y) { y = Relu(x)\n o = Relu(others) }";
    EXPECT_TRUE(onnx::OnnxParser(Onnx(text).c_str()).Parse(proto).IsOK());
    const auto set = [&](int input, int axis, const std::string& name) {
      proto.mutable_graph()->mutable_input(input)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(axis)->set_dim_param(
          name);
    };
    set(0, 0, rows);
    set(2, 1, steps);
    return Model::FromBytes(proto.SerializeAsString(), "derived");
  };
  const auto shapes = [](const Model& of, const ImportOptions& options) {
    const ImportedGraph imported = Import(of, options);
    EXPECT_EQ(imported.batch_axes, (std::vector<int>{-1, 0, 0}));
    EXPECT_TRUE(imported.warnings.empty());
    std::vector<Shape> all;
    for (ValueId id : imported.graph->inputs) all.push_back(imported.graph->value(id).shape);
    return all;
  };
  const auto failure = [](const Model& of, const ImportOptions& options) {
    try {
      Import(of, options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  const Model usual = model("3*N", "T + 1");
  const ImportOptions given{.batch = 4, .shapes = {{"T", 7}}};
  EXPECT_EQ(shapes(usual, given), (std::vector<Shape>{{12, 6}, {4, 7, 2}, {4, 8}}));
  EXPECT_EQ(shapes(model("3*N", "2*T - 1"), given), (std::vector<Shape>{{12, 6}, {4, 7, 2}, {4, 13}}));
  EXPECT_EQ(shapes(usual, {.shapes = {}, .inputs = {{"others", Shape{15, 6}}, {"z", Shape{5, 4}}}}),
            (std::vector<Shape>{{15, 6}, {5, 3, 2}, {5, 4}}));
  std::string open;
  for (const OpenExtent& extent : OpenExtents(usual, given)) open += extent.symbol + "=" + std::to_string(extent.value) + " ";
  EXPECT_EQ(open, "N=4 T=7 ");
  // As given by an option, as before these names were read.
  EXPECT_EQ(shapes(usual, {.batch = 4, .shapes = {{"T", 7}, {"3*N", 9}}})[0], (Shape{9, 6}));
  EXPECT_EQ(failure(usual, {.shapes = {}, .inputs = {{"others", Shape{14, 6}}, {"z", Shape{5, 4}}}}), ErrorCode::kShape);
  EXPECT_EQ(failure(usual, {.shapes = {}, .inputs = {{"others", Shape{15, 6}}, {"z", Shape{4, 4}}}}), ErrorCode::kShape);
  EXPECT_EQ(failure(model("3*N", "T - 7"), given), ErrorCode::kShape);
  // Not an extent of another input, or not such an expression.
  for (const std::string name : {"3*M", "N*3", "3*N + T", "N//2", "N + 1000000000000"})
    EXPECT_EQ(failure(model(name, "T"), given), ErrorCode::kConfig) << name;
}

// Older exporters write -1 for an unknown extent.
TEST(ImportExtents, ExtentMinusOneIsOpen) {
  onnx::ModelProto proto;
  ASSERT_TRUE(onnx::OnnxParser(Onnx("g (float[N, 2] x) => (float[N, 2] y) { y = Relu(x) }").c_str()).Parse(proto).IsOK());
  for (auto* info : {proto.mutable_graph()->mutable_input(0), proto.mutable_graph()->mutable_output(0)}) {
    info->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(-1);
  }
  const Model model = Model::FromBytes(proto.SerializeAsString(), "open");
  const ImportedGraph imported = Import(model, {.batch = 3});
  EXPECT_EQ(imported.batch_axes, std::vector<int>{0});
  EXPECT_EQ(imported.graph->value(imported.graph->outputs[0]).shape, (Shape{3, 2}));
  EXPECT_TRUE(imported.warnings.empty());
}

// An input that all samples share, whose first extent happens to equal the batch size of the export.
TEST(ImportExtents, SharedInputsHaveNoBatch) {
  const std::string scores = "g (float[4, 8] x, float[4, 8] table) => (float[4, 4] y) { t = Transpose(table)\n y = MatMul(x, t) }";
  const std::string swapped = "g (float[4, 8] table, float[4, 8] x) => (float[4, 4] y) { t = Transpose(table)\n y = MatMul(x, t) }";
  const std::string longer = "g (float[9, 8] table, float[4, 8] x) => (float[4, 9] y) { t = Transpose(table)\n y = MatMul(x, t) }";
  const auto shapes = [](const std::string& text, const ImportOptions& options) {
    const ImportedGraph imported = ImportText(Onnx(text), options);
    std::string found = std::to_string(imported.batch) + ":";
    for (size_t i = 0; i < imported.graph->inputs.size(); ++i) {
      found += " " + imported.graph->value(imported.graph->inputs[i]).shape.ToString() + "@" + std::to_string(imported.batch_axes[i]);
    }
    return found + " -> " + imported.graph->value(imported.graph->outputs[0]).shape.ToString();
  };
  const std::map<std::string, Shape> given = {{"x", Shape{6, 8}}, {"table", Shape{4, 8}}},
                                     long_given = {{"x", Shape{6, 8}}, {"table", Shape{9, 8}}};
  EXPECT_EQ(shapes(scores, {.inputs = given}), "6: [6,8]@0 [4,8]@-1 -> [6,4]");
  EXPECT_EQ(shapes(swapped, {.inputs = given}), "6: [4,8]@-1 [6,8]@0 -> [6,4]");
  EXPECT_EQ(shapes(longer, {.inputs = long_given}), "6: [9,8]@-1 [6,8]@0 -> [6,9]");
  EXPECT_EQ(shapes(scores, {.batch = 6, .shapes = {{"table[0]", 4}}}), "6: [6,8]@0 [4,8]@-1 -> [6,4]");
  EXPECT_EQ(shapes(swapped, {.batch = 6, .shapes = {{"table[0]", 4}}}), "6: [4,8]@-1 [6,8]@0 -> [6,4]");
  EXPECT_EQ(shapes(swapped, {.shapes = {{"table[0]", 4}}}), "4: [4,8]@-1 [4,8]@0 -> [4,4]");
  std::string message;
  EXPECT_EQ(FailureOf(Onnx(scores), {.batch = 6, .shapes = {{"table[0]", 5}}}, &message), ErrorCode::kConfig);
  EXPECT_NE(message.find("--shape table[0]=5: the file fixes this dimension to 4"), std::string::npos) << message;
  EXPECT_EQ(FailureOf(Onnx(scores), {.inputs = {{"x", Shape{6, 8}}, {"table", Shape{5, 8}}}}), ErrorCode::kShape);
}

}  // namespace
}  // namespace gradloom
