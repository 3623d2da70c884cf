#include "compiler/onnx/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "compiler/graph/text.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"
#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

TEST(Import, KeepsNamesAndTypes) {
  const ImportedGraph imported = ImportText(Onnx(kLinear), {.batch = 4, .shapes = {}});
  const Graph& graph = *imported.graph;
  EXPECT_EQ(ToText(graph),
            "graph linear\n"
            "input x float32[4,5]\n"
            "const w float32[2,5]\n"
            "const b float32[2] = [0.5,-1]\n"
            "pred float32[4,2] = Gemm(x, w, b) {transB=1}\n"
            "output pred\n");
  EXPECT_EQ(graph.nodes[0].origin, "fc");
  EXPECT_EQ(imported.batch, 4);
  EXPECT_EQ(imported.batch_axes, std::vector<int>{0});
  EXPECT_EQ(graph.data(graph.Find("w"))->as<float>()[7], 8.0f);
}

TEST(Import, OtherTensorsMakeAnotherModel) {
  const Model model = Model::FromText(Onnx(kLinear));
  const auto bias_of = [](const Model& of) {
    const ImportedGraph imported = Import(of, {.batch = 4});
    return imported.graph->data(imported.graph->Find("b"))->as<float>()[1];
  };
  const auto with = [&](float first) {
    return model.WithTensors({{"b", Tensor::From<double>({first, 7}, {2})}, {"absent", Tensor::Scalar<float>(1)}});
  };
  EXPECT_EQ(bias_of(with(3)), 7.0f);
  EXPECT_EQ(bias_of(model), -1.0f);
  // A plan stores the tensors and the hash.
  EXPECT_EQ(with(3).info().hash, with(3).info().hash);
  EXPECT_NE(with(3).info().hash, with(4).info().hash);
  EXPECT_NE(with(3).info().hash, model.info().hash);
  EXPECT_EQ(bias_of(Model::FromBytes(with(3).info().bytes, "stored")), 7.0f);
  EXPECT_EQ(model.WithTensors({{"b", Tensor::From<float>({0.5f, -1}, {2})}}).info().hash, model.info().hash);
  try {
    model.WithTensors({{"w", Tensor::From<float>({1, 2, 3}, {3})}});
    FAIL() << "another shape was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kShape);
    EXPECT_NE(error.where().find("'w'"), std::string::npos) << error.where();
  }
}

// An input whose numbers are given is no input of the graph, and decides shapes and branches. It does not have the batch, even if it is
// the first one.
TEST(Import, InputsWithGivenNumbers) {
  const std::string text = Onnx(
      "g (int64[3] s, float[2, 6] x, bool go, float[3] scale) => (float[2, 2, 3] y) { h = Reshape(x, s) k = If(go) <then_branch = a () => "
      "(float[2, 2, 3] p) { p = Relu(h) }, else_branch = b () => (float[2, 2, 3] q) { q = Neg(h) }> y = Mul(k, scale) }");
  EXPECT_EQ(FailureOf(text, {.batch = 4}), ErrorCode::kUnsupported);
  const ImportedGraph imported = ImportText(text, {.batch = 4, .numbers = {{"s", {-1, 2, 3}}, {"go", {0}}, {"scale", {0.5}}}});
  const Graph& graph = *imported.graph;
  EXPECT_EQ(graph.inputs.size(), 1u);
  EXPECT_EQ(graph.value(graph.outputs[0]).shape, (Shape{4, 2, 3}));
  std::vector<std::string> ops;
  for (const Node& node : graph.nodes) ops.push_back(node.op);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "Neg"), 1);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "Relu"), 0);
  const Tensor* scale = graph.data(graph.Find("scale"));
  ASSERT_NE(scale, nullptr);
  EXPECT_EQ(ElementAsDouble(scale->view(), 2), 0.5);
  EXPECT_TRUE(graph.value(graph.Find("scale")).derived);  // not trained
  for (const std::map<std::string, std::vector<double>>& wrong : {std::map<std::string, std::vector<double>>{{"s", {1, 2}}},
                                                                  {{"t", {1}}},
                                                                  {{"s", {4.5, 2, 3}}},
                                                                  {{"s", {1e30}}},
                                                                  {{"go", {2}}},
                                                                  {{"scale", {1e39}}}}) {
    EXPECT_EQ(FailureOf(text, {.batch = 4, .numbers = wrong}), ErrorCode::kConfig);
  }
  // The names of its dimensions do not decide which one is the batch. If it has the batch, one number can fill it.
  const std::string rows = Onnx(
      "g (float[batch_rows] a, float[T, batch, 8] x, float[batch] w) => (float[T, batch, 8] y) { "
      "s = ReduceSum <keepdims = 0> (a) t = ReduceSum <keepdims = 0> (w) z = Mul(x, s) y = Mul(z, t) }");
  ImportOptions options{.batch = 4, .shapes = {{"T", 5}, {"batch_rows", 3}}, .numbers = {{"a", {1, 2, 3}}, {"w", {0.5}}}};
  EXPECT_EQ(ImportText(rows, options).batch_axes, std::vector<int>{1});
  options.numbers["w"] = {1, 2, 3, 4};
  EXPECT_EQ(FailureOf(rows, options), ErrorCode::kConfig);
}

// A model in memory has a name but no folder: nothing is read from the current one.
TEST(Import, MemoryHasNoFolderOfExternalData) {
  const std::string folder = testing::TempDir() + "/external";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/w.bin") << std::string(40, '\0');
  onnx::ModelProto proto;
  ASSERT_TRUE(onnx::OnnxParser(Onnx(kLinear).c_str()).Parse(proto).IsOK());
  onnx::TensorProto& w = *proto.mutable_graph()->mutable_initializer(0);
  w.clear_float_data();
  w.set_data_location(onnx::TensorProto::EXTERNAL);
  onnx::StringStringEntryProto& location = *w.add_external_data();
  location.set_key("location");
  location.set_value("w.bin");
  const std::string bytes = proto.SerializeAsString(), name = folder + "/model.onnx";
  try {
    Model::FromBytes(bytes, name);
    FAIL() << "read the folder of the name";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_NE(error.message().find("their folder is unknown"), std::string::npos) << error.Describe();
  }
  EXPECT_NO_THROW(Model::FromBytes(bytes, name, {.external_dir = folder}));
  std::ofstream(name, std::ios::binary) << bytes;
  EXPECT_NO_THROW(Model::Load(name));
}

// ONNX's function body of AffineGrid squeezes the batch axis if there is one sample.
TEST(Import, AffineGridForOneSample) {
  const std::string text = Onnx(R"(g (float[N, 2, 3] theta) => (float[N, 4, 5, 2] grid) <int64[3] rest = {1, 4, 5}>
{ n = Shape <start = 0, end = 1> (theta)  size = Concat <axis = 0> (n, rest)  grid = AffineGrid (theta, size) })");
  for (const int64_t batch : {1, 3}) {
    const ImportedGraph imported = ImportText(text, {.batch = batch});
    EXPECT_EQ(imported.graph->value(imported.graph->outputs[0]).shape, (Shape{batch, 4, 5, 2}));
  }
}

// If an intermediate shape that the file declares is wrong, the inferred shape is used, and the first such value is named in a warning.
TEST(Import, WarnsAboutContradictoryDeclaredShapes) {
  const auto warnings = [](const std::string& declared, const ImportOptions& options) {
    return ImportText(Onnx("g (float[2, 3] x) => (float[2, 3] y) <float" + declared + " h> { h = Relu(x) y = Tanh(h) }"), options).warnings;
  };
  const std::vector<std::string> wrong = warnings("[2, 7]", {});
  ASSERT_EQ(wrong.size(), 1u);
  EXPECT_NE(wrong[0].find("declares 'h' as [2,7]"), std::string::npos) << wrong[0];
  EXPECT_NE(wrong[0].find("produces [2,3]"), std::string::npos) << wrong[0];
  for (const char* right : {"[2, 3]", "[N, 3]", "[?, 3]", "[0, 3]"}) EXPECT_TRUE(warnings(right, {}).empty()) << right;
  // The file's own batch size.
  EXPECT_TRUE(warnings("[2, 3]", {.batch = 5}).empty());
}

// As in onnxruntime, the type of an output is the one in the list of outputs, whatever value_info says of it. A converter to float16
// changes only the latter.
TEST(Import, TypeOfAnOutputPrecedesItsValueInfo) {
  const std::string text = Onnx("g (float[2, 3] x) => (float[2, 3] y) <TYPE[2, 3] y> { y = Relu(x) }");
  const auto with = [&](const std::string& type) { return std::string(text).replace(text.find("TYPE"), 4, type); };
  const ImportedGraph imported = ImportText(with("float16"), {});
  EXPECT_EQ(imported.graph->value(imported.graph->outputs[0]).dtype, DType::kFloat32);
  EXPECT_TRUE(imported.warnings.empty());
}

// onnx's type inference ignores the addend of a Gemm. Constants that did not fit caused an internal error in a kernel.
TEST(Import, ChecksTheAddendOfGemm) {
  const auto failure = [](const std::string& c) {
    return FailureOf(
        Onnx("g (float[2, 3] x, " + c + " c) => (float[2, 4] y) <float[3, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3}> { y = Gemm(x, w, c) }"), {});
  };
  for (const char* c : {"float[2, 3]", "float[3, 4]", "float[2]", "float[1, 2, 4]"}) EXPECT_EQ(failure(c), ErrorCode::kShape) << c;
  for (const char* c : {"float[2, 4]", "float[2, 1]", "float[4]", "float[1]", "float"}) {
    EXPECT_NO_THROW(ImportText(Onnx("g (float[2, 3] x, " + std::string(c) +
                                    " c) => (float[2, 4] y) <float[3, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3}> { y = Gemm(x, w, c) }")))
        << c;
  }
}

// onnx's type inference does not check these shapes, and a kernel would read past the updates.
TEST(Import, ChecksElementwiseGatherAndScatter) {
  const auto failure = [](const std::string& graph) { return FailureOf(Onnx(graph, 18), {}); };
  const std::string scatter = " => (float[2, 3] y) { y = ScatterElements <axis = 1> (x, i, u) }",
                    gather = " => (float[M, K] y) { y = GatherElements <axis = 1> (x, i) }";
  EXPECT_EQ(failure("g (float[2, 3] x, int64[2, 2] i, float[1, 2] u)" + scatter), ErrorCode::kShape);
  EXPECT_EQ(failure("g (float[2, 3] x, int64[3, 2] i, float[3, 2] u)" + scatter), ErrorCode::kShape);
  EXPECT_EQ(failure("g (float[2, 3] x, int64[2] i, float[2] u)" + scatter), ErrorCode::kShape);
  EXPECT_EQ(failure("g (float[2, 3] x, int64[3, 2] i)" + gather), ErrorCode::kShape);
  EXPECT_EQ(failure("g (float[2, 3] x, int64[6] i)" + gather), ErrorCode::kShape);
  EXPECT_EQ(Operators(*ImportText(Onnx("g (float[2, 3] x, int64[1, 4] i, float[1, 4] u)" + scatter, 18)).graph), "ScatterElements");
  EXPECT_EQ(Operators(*ImportText(Onnx("g (float[2, 3] x, int64[1, 4] i)" + gather, 18)).graph), "GatherElements");
}

TEST(Import, RejectsMissingRequiredInputs) {
  const auto scan = [](const std::string& scanned) {
    return Onnx(
        "g (float[2, 3] x) => (float[2, 3] y) { y = Scan <num_scan_inputs = 1, body = b (float[3] e) => (float[3] d) { d = Tanh(e) }> (" +
        scanned + ") }");
  };
  EXPECT_EQ(FailureOf(scan("\"\""), {}), ErrorCode::kArity);
  EXPECT_NE(Operators(*ImportText(scan("x")).graph), "");
  const auto sequence = [](const std::string& nodes) { return Onnx("g (float[2] x) => (float[N] y) { " + nodes + " }"); };
  EXPECT_EQ(FailureOf(sequence("s = SequenceConstruct(x, \"\") y = ConcatFromSequence<axis = 0>(s)"), {}), ErrorCode::kArity);
  EXPECT_EQ(FailureOf(sequence("s = SequenceConstruct(x) t = SequenceInsert(s, \"\") y = ConcatFromSequence<axis = 0>(t)"), {}),
            ErrorCode::kArity);
  EXPECT_EQ(FailureOf(sequence("s = SplitToSequence(\"\") y = ConcatFromSequence<axis = 0>(s)"), {}), ErrorCode::kArity);
  EXPECT_EQ(FailureOf(sequence("s = SequenceConstruct(x) y = SequenceAt(s, \"\")"), {}), ErrorCode::kArity);
  // A name that stands for nothing.
  EXPECT_EQ(FailureOf(sequence("o = Optional() s = SplitToSequence(o) y = ConcatFromSequence<axis = 0>(s)"), {}), ErrorCode::kArity);
  EXPECT_EQ(FailureOf(sequence("y = RMSNormalization(\"\", x)"), {}), ErrorCode::kArity);
}

TEST(Import, RejectsIndexTuplesLongerThanTheRank) {
  const auto graph = [](const std::string& node) {
    return Onnx(
        "g (float[2, 3] x, float[6] u) => (float[k] y) <float zero = {0}> { p = Greater(x, zero) i = NonZero(p) t = Transpose<perm = [1, "
        "0]>(i) " +
        node + " }");
  };
  EXPECT_EQ(FailureOf(graph("y = GatherND(zero, t)"), {}), ErrorCode::kShape);
  EXPECT_EQ(FailureOf(graph("y = GatherND<batch_dims = 2>(x, t)"), {}), ErrorCode::kShape);
  EXPECT_EQ(FailureOf(graph("y = GatherND<batch_dims = -1>(x, t)"), {}), ErrorCode::kShape);
  EXPECT_EQ(FailureOf(graph("y = ScatterND(zero, t, u)"), {}), ErrorCode::kShape);
  EXPECT_NE(Operators(*ImportText(graph("y = GatherND(x, t)")).graph), "");
}

TEST(Import, AcceptsADomainImportedTwice) {
  const auto text = [](const std::string& second) {
    return "<ir_version: 10, opset_import: [\"\" : 17, \"\" : " + second + "]>\ng (float[2] x) => (float[2] y) { y = Relu(x) }";
  };
  EXPECT_EQ(Operators(*ImportText(text("17")).graph), "Relu");
  EXPECT_EQ(FailureOf(text("18"), {}), ErrorCode::kSchema);
}

// skl2onnx writes such nodes around the layers of a classifier.
TEST(Import, TraditionalOperatorsSuggestAFix) {
  std::string message;
  const std::string head =
      "<ir_version: 10, opset_import: [\"\" : 17, \"ai.onnx.ml\" : 1]>\ng (float[2, 3] x) => (float[2, 3] y) { y = ai.onnx.ml.";
  EXPECT_EQ(FailureOf(head + "ZipMap <classlabels_int64s = [0, 1, 2]> (x) }", {}, &message), ErrorCode::kUnsupported);
  EXPECT_NE(message.find("'zipmap': False"), std::string::npos) << message;
  EXPECT_EQ(FailureOf(head + "SVMRegressor (x) }", {}, &message), ErrorCode::kUnsupported);
  EXPECT_NE(message.find("MLPRegressor"), std::string::npos) << message;
}

// Pipeline steps before a network are its preprocessing, and their numbers are not weights.
TEST(Import, ExpandsPipelineSteps) {
  const auto import = [](const std::string& node) {
    return ImportText(
        "<ir_version: 10, opset_import: [\"\" : 17, \"ai.onnx.ml\" : 1]>\ng (float[2, 3] x) => (float[2, 3] y) { y = ai.onnx.ml." + node +
        " (x) }");
  };
  EXPECT_EQ(Operators(*import("Scaler <offset = [1.0], scale = [2.0, 3.0, 0.5]>").graph), "Sub Mul");
  EXPECT_EQ(Operators(*import("Normalizer <norm = \"L2\">").graph), "ReduceL2 Equal Where Div");
  EXPECT_EQ(Operators(*import("Imputer <imputed_value_floats = [1.0, 2.0, 3.0], replaced_value_float = 5.0>").graph), "Equal Where");
  EXPECT_THROW(import("Normalizer <norm = \"L3\">"), Error);
}

// Half-precision converters append their casts at the end, and onnxruntime sorts the nodes it reads.
TEST(Import, SortsNodes) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[2, 3] x) => (float[2, 3] y) <bool on = {1}> {
  y = own.late (k)
  k = If (on) <then_branch = t () => (float[2, 3] p) { p = Neg (q) q = Exp (h) }, else_branch = e () => (float[2, 3] r) { r = Identity (h) }>
  h = Relu (x) }
<domain: "own", opset_import: ["" : 18]> late (a) => (b) { b = Sin (c) c = Cos (a) }
)";
  const Model model = Model::FromText(text);
  ASSERT_EQ(model.warnings().size(), 1u);
  EXPECT_NE(model.warnings()[0].find("sorted"), std::string::npos);
  EXPECT_EQ(Operators(*Import(model).graph), "Relu Exp Neg Cos Sin");
  std::string message;
  EXPECT_EQ(FailureOf(Onnx("g (float[2] x) => (float[2] y) { y = Add (x, b) b = Neg (a) a = Exp (b) }"), {}, &message), ErrorCode::kGraph);
  EXPECT_NE(message.find("cycle"), std::string::npos) << message;
}

// tests/conformance:contrib_operators_test covers the supported operators of onnxruntime.
TEST(Import, RejectsUnsupportedFormsOfContribOperators) {
  std::string message;
  const auto refused = [&](const std::string& inputs, const std::string& node, const char* why) {
    const std::string head =
        "<ir_version: 10, opset_import: [\"\" : 17, \"com.microsoft\" : 1, \"com.microsoft.nchwc\" : 1]>\ng (" + inputs;
    EXPECT_EQ(FailureOf(head + ") => (float[2, 3, 4] y) { [here] y = " + node + " }", {}, &message), ErrorCode::kUnsupported);
    EXPECT_NE(message.find(why), std::string::npos) << message;
    EXPECT_NE(message.find("here"), std::string::npos) << message;
    EXPECT_NE(message.find("help: "), std::string::npos) << message;
  };
  const std::string heads =
      "float[2, 3, 4] q, float[2, 5, 4] k, float[2, 2, 5, 2] h, float[4, 12] w, float[2, 2, 2, 5, 2] past, int32[4] m";
  refused(heads, "com.microsoft.Attention <num_heads = 2> (q, w, , , past, , m)", "shared by past and present");
  refused(heads, "com.microsoft.Attention <num_heads = 2> (q, w, , m)", "start and end positions");
  refused(heads, "com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, k)", "as many keys as past keys and queries");
  refused(heads, "com.microsoft.MultiHeadAttention <num_heads = 2, unidirectional = 1> (q, k, k, , , , h, h)",
          "as many keys as past keys and queries");
  refused(heads, "com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, k, , , , h, h, m)", "shared by past and present");
  refused("float[2, 3, 4] x", "com.microsoft.MatMulNBits (x)", "before onnxruntime's optimizer or quantizer");
  refused("float[2, 3, 4] x", "com.microsoft.nchwc.ReorderOutput (x)", "ORT_ENABLE_EXTENDED");
  refused("float[2, 3, 4] x, float[4, 4] w", "com.microsoft.FusedGemm <activation = \"Celu\"> (x, w)", "'Celu'");
}

TEST(Import, RemovesAliasesAndKeepsOutputNames) {
  const ImportedGraph imported =
      ImportText(Onnx("g (float[2] x) => (float[2] y, float[2] z, float[2] w) { a = Identity(x) b = Relu(a) y = Identity(b) z = "
                      "Identity(b) w = Identity(x) }"));
  EXPECT_EQ(ToText(*imported.graph),
            "graph g\ninput x float32[2]\nb float32[2] = Relu(x)\ny float32[2] = Identity(b)\nz float32[2] = Identity(b)\nw float32[2] = "
            "Identity(x)\n"
            "output y\noutput z\noutput w\n");
}

TEST(Import, InlinesFunctions) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[2, 3] x) => (float[2, 3] y) { [first] h = own.twice <factor = 3.0> (x) [second] y = own.twice (h) }
<domain: "own", opset_import: ["" : 18]> twice <factor: float = 2.0> (a) => (b) { f = Constant <value_float: float = @factor> () c = Mul (a, f) b = Relu (c) }
)";
  const ImportedGraph imported = ImportText(text);
  const Graph& graph = *imported.graph;
  EXPECT_EQ(Operators(graph), "Mul Relu Mul Relu");
  EXPECT_EQ(graph.nodes[0].origin, "first/Mul/c");
  EXPECT_EQ(graph.value(graph.nodes[1].outputs[0]).name, "h");
  EXPECT_EQ(graph.data(graph.nodes[0].inputs[1])->as<float>()[0], 3.0f);
  EXPECT_EQ(graph.data(graph.nodes[2].inputs[1])->as<float>()[0], 2.0f);
}

TEST(Import, ReportsAllUnknownOperators) {
  std::string message;
  EXPECT_EQ(FailureOf(Onnx("g (float[2] x) => (float[2] y) { a = Foo(x) b = Bar(a) y = Relu(b) }"), {}, &message), ErrorCode::kUnsupported);
  EXPECT_NE(message.find("'Foo'"), std::string::npos) << message;
  EXPECT_NE(message.find("'Bar'"), std::string::npos) << message;
}

// Which elements of a weight are positive, and which is the largest, is known only for its initial values.
TEST(Import, KeepsDecisionsThatDependOnWeights) {
  const ImportedGraph imported = ImportText(Onnx(R"(g (float[N, 3] x) => (float[N, 3] y, int64[1] k)
<float[3] w = {1, -2, 3}, float zero = {0}, float one = {1}, float minus = {-1}>
{
  up = GreaterOrEqual (w, zero)
  sign = Where (up, one, minus)
  y = Mul (x, sign)
  k = ArgMax <axis = 0> (w)
})"),
                                            {.batch = 2});
  EXPECT_EQ(Operators(*imported.graph), "GreaterOrEqual Where Mul ArgMax");
}

// Nodes that only another output needs are removed, and may be unknown operators.
TEST(Import, OmitsUnrequestedOutputs) {
  const std::string text = Onnx(R"(g (float[N, 2] x) => (float[N, 2] y, float[N, 2] z) <float[2] w = {1, 2}, float[2] v = {3, 4}>
{
  a = Mul (x, w)
  y = Relu (a)
  b = Mul (a, v)
  z = Unknown (b)
})");
  std::string message;
  EXPECT_EQ(FailureOf(text, {.batch = 3}, &message), ErrorCode::kUnsupported);
  const ImportedGraph imported = ImportText(text, {.batch = 3, .outputs = {"y"}});
  EXPECT_EQ(Operators(*imported.graph), "Mul Relu");
  EXPECT_EQ(imported.graph->outputs.size(), 1u);
  EXPECT_EQ(FailureOf(text, {.batch = 3, .outputs = {"z"}}, &message), ErrorCode::kUnsupported);
  EXPECT_NE(message.find("Unknown"), std::string::npos) << message;
  EXPECT_EQ(FailureOf(text, {.batch = 3, .outputs = {"yy"}}, &message), ErrorCode::kConfig);
  EXPECT_NE(message.find("did you mean 'y'?"), std::string::npos) << message;
}

// A value inside the model can be an output, too. What only others need is removed then.
TEST(Import, MakesInnerValuesOutputs) {
  const std::string text = Onnx(R"(g (float[N, 2] x) => (int64[N] c) <float[2, 3] w = {1, 2, 3, 4, 5, 6}>
{
  s = MatMul (x, w)
  c = ArgMax <axis = 1, keepdims = 0> (s)
})");
  const ImportedGraph inner = ImportText(text, {.batch = 4, .outputs = {"s"}});
  EXPECT_EQ(Operators(*inner.graph), "MatMul");
  ASSERT_EQ(inner.graph->outputs.size(), 1u);
  EXPECT_EQ(inner.graph->value(inner.graph->outputs[0]).name, "s");
  const ImportedGraph both = ImportText(text, {.batch = 4, .outputs = {"s", "c"}});
  ASSERT_EQ(both.graph->outputs.size(), 2u);
  EXPECT_EQ(both.graph->value(both.graph->outputs[0]).name, "c");
  EXPECT_EQ(both.graph->value(both.graph->outputs[1]).name, "s");
  for (const char* none : {"w", "x", ""}) EXPECT_EQ(FailureOf(text, {.batch = 4, .outputs = {none}}), ErrorCode::kConfig) << none;
}

TEST(Import, ErrorsNameTheNode) {
  std::string message;
  EXPECT_EQ(FailureOf(Onnx("g (float[2,3] x, float[4,5] z) => (float[2,5] y) { [bad] y = MatMul(x, z) }"), {}, &message),
            ErrorCode::kShape);
  EXPECT_NE(message.find("MatMul 'bad'"), std::string::npos) << message;
  EXPECT_EQ(FailureOf(Onnx("g (float[2] x) => (float[2] y) { y = Relu(xx) }"), {}, &message), ErrorCode::kGraph);
  EXPECT_NE(message.find("did you mean 'x'"), std::string::npos) << message;
  EXPECT_EQ(FailureOf(Onnx("g (float[2] x) => (float[2] y) { y = Relu<alpha=1.0>(x) }"), {}, &message), ErrorCode::kAttr);
}

// As converters to older opsets leave them behind.
TEST(Import, AcceptsDefaultsOfNewerAttributes) {
  const auto reduced = [](const std::string& attribute) {
    return Onnx("g (float[2, 3] x) => (float[2] y) { y = ReduceMean <axes = [1], keepdims = 0, " + attribute + "> (x) }", 17);
  };
  EXPECT_EQ(Import(Model::FromText(reduced("noop_with_empty_axes = 0")), {}).graph->nodes.size(), 1U);
  std::string message;
  EXPECT_EQ(FailureOf(reduced("noop_with_empty_axes = 1"), {}, &message), ErrorCode::kAttr);
}

// PyTorch's scale of ones for a norm without weights.
TEST(Import, ScalesOfAllExtents) {
  const auto text = [](const std::string& scale) {
    return Onnx("g (float[2,3,4] x) => (float[2,3,4] y) <float[3,1] s = {1,2,3}> { " + scale + "y = RMSNormalization<axis = -1>(x, t) }");
  };
  const ImportedGraph ones = ImportText(text("e = Shape(x) t = ConstantOfShape<value = float[1] {1}>(e) "));
  EXPECT_EQ(Operators(*ones.graph), "RMSNormalization");
  EXPECT_EQ(ones.graph->value(ones.graph->nodes[0].inputs[1]).shape, (Shape{1}));
  // Exported for four samples, and imported for two.
  const std::string folded = "g (float[N,3] x) => (float[N,3] y) <float[4,3] t = {1,1,1,1,1,1,1,1,1,1,1,1}> { y = RMSNormalization(x, t) }";
  EXPECT_EQ(ImportText(Onnx(folded), {.batch = 2}).graph->nodes[0].op, "RMSNormalization");
  EXPECT_EQ(Operators(*ImportText(text("t = Exp(s) ")).graph), "Exp RMSNormalization Mul");
  EXPECT_EQ(FailureOf(Onnx("g (float[2,3,4] x, float[3,2] t) => (float[2,3,4] y) { y = RMSNormalization(x, t) }"), {}), ErrorCode::kShape);
}

// The result has the type of the input.
TEST(Import, ScalesOfOtherTypes) {
  const auto text = [](const std::string& x, const std::string& scale) {
    return Onnx("g (" + x + "[N,3,4] x, " + scale + " s) => (" + x + "[N,3,4] y) { y = RMSNormalization(x, s) }");
  };
  for (const auto& [x, scale, operators] : {std::array<std::string, 3>{"float16", "float[4]", "Cast RMSNormalization Cast"},
                                            {"float", "float16[4]", "Cast RMSNormalization"},
                                            {"float", "double[4]", "Cast RMSNormalization Cast"},
                                            {"bfloat16", "float16[4]", "Cast Cast RMSNormalization Cast"},
                                            {"float16", "float[3,1]", "Cast RMSNormalization Mul Cast"}}) {
    SCOPED_TRACE(x + " " + scale);
    EXPECT_EQ(Operators(*ImportText(text(x, scale), {.batch = 2}).graph), operators);
  }
}

}  // namespace
}  // namespace gradloom
