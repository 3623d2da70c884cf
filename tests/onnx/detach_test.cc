// Values that the module detached: by the notes of exporters, or by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compiler/graph/text.h"
#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"
#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

// The name that torch.export gives to the result of detach().
TEST(Import, DetachedValuesStopGradients) {
  const std::string text = Onnx(
      "g (float[2] x, int64[2] i) => (float[2] y, int64[2] j) <float[2] w = {1, 2}, float half = {0.5}> { a = Mul(x, w) [node_detach] "
      "detach "
      "= Identity(a) [node_detach_1] detach_1 = Identity(half) b = Mul(detach, detach_1) [node_detach_2] detach_2 = Identity(i) j = "
      "Neg(detach_2) [detach] same = Identity(b) y = Relu(same) }");
  const std::string kept = ToText(*ImportText(text).graph);
  EXPECT_NE(kept.find("detach float32[2] = gradloom.StopGradient(a)\n"), std::string::npos) << kept;
  // A scalar may be an operand that must be known at compile time, integers have no gradient, and the last Identity has this name by
  // chance.
  EXPECT_EQ(Operators(*ImportText(text).graph), "Mul StopGradient Mul Neg Relu");
  ImportOptions through;
  through.detach = false;
  EXPECT_EQ(Operators(*ImportText(text, through).graph), "Mul Mul Neg Relu");
}

// Files of PyTorch's older exporter do not record it.
TEST(Import, DetachesValuesByName) {
  const std::string text = Onnx(
      "g (float[2] x) => (float[2] y, float[2] z, float[2] o) <float[2] w = {1, 2}> { a = Mul(x, w) [first] b = Relu(a) [second] c = "
      "Neg(a) "
      "same = Identity(a) d = Sub(same, w) y = Sum(b, c, d) z = Abs(y) o = Exp(x) }");
  const auto imported = [&](const std::vector<std::string>& names) {
    return ToText(*ImportText(text, {.shapes = {}, .detached = names}).graph);
  };
  const auto has = [](const std::string& graph, const std::string& line) {
    EXPECT_NE(graph.find(line + "\n"), std::string::npos) << line << "\n" << graph;
  };
  // For all readers.
  std::string graph = imported({"a"});
  has(graph, "a/detached float32[2] = gradloom.StopGradient(a) {by_name=1}");
  has(graph, "b float32[2] = Relu(a/detached)");
  has(graph, "c float32[2] = Neg(a/detached)");
  has(graph, "d float32[2] = Sub(a/detached, w)");
  // For one reader, given by its name or by its output. Works for a weight as well.
  graph = imported({"a@second", "w@d"});
  has(graph, "b float32[2] = Relu(a)");
  has(graph, "c float32[2] = Neg(second/a/detached)");
  has(graph, "d float32[2] = Sub(a, d/w/detached)");
  // By another name of the value; and for an output, which keeps its name.
  has(imported({"same"}), "d float32[2] = Sub(same/detached, w)");
  graph = imported({"y"});
  has(graph, "z float32[2] = Abs(y/detached)");
  has(imported({"?"}), "c float32[2] = Neg(a/detached)");

  ImportOptions options{.shapes = {}, .outputs = {"o"}, .detached = {"a", "a@first"}};
  EXPECT_EQ(Operators(*ImportText(text, options).graph), "Exp");
  options = {.shapes = {}, .detached = {"same@d", "b"}};
  EXPECT_EQ(Operators(*ImportText(text, options).graph), "Mul Relu StopGradient Neg StopGradient Sub Sum Abs Exp");
}

TEST(Import, DetachesValuesInFunctionsAndBodies) {
  const std::string text = R"(<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[2] x, bool c) => (float[2] y) <float[2] w = {1, 2}> {
  [call] a = own.twice (w)
  [branch] b = If (c) <then_branch = t () => (float[2] p) { [inner] p = Mul (a, x) }, else_branch = e () => (float[2] q) { q = Neg (a) }>
  y = Add (b, a) }
<domain: "own", opset_import: ["" : 18]> twice (v) => (u) { h = Neg (v) u = Add (h, v) }
)";
  const auto imported = [&](const std::string& name) { return ToText(*ImportText(text, {.shapes = {}, .detached = {name}}).graph); };
  EXPECT_NE(imported("call/h").find("a float32[2] = Add(call/h/detached, w)"), std::string::npos) << imported("call/h");
  EXPECT_NE(imported("call/v@call/h").find("call/h float32[2] = Neg(call/h/v/detached)"), std::string::npos) << imported("call/v@call/h");
  EXPECT_NE(imported("a@branch/then/inner").find("= Mul(branch/then/inner/a/detached, "), std::string::npos)
      << imported("a@branch/then/inner");
  EXPECT_NE(imported("a@y").find("y float32[2] = Add(b, y/a/detached)"), std::string::npos) << imported("a@y");
}

TEST(Import, RejectsUnknownDetachedNames) {
  const std::string text =
      Onnx("g (float[2] x) => (float[2] out) <float[2] w = {1, 2}> { [scale] scaled = Mul(x, w) [last] out = Relu(scaled) }");
  const auto refused = [&](const std::string& name) {
    std::string message;
    EXPECT_EQ(FailureOf(text, {.shapes = {}, .detached = {name}}, &message), ErrorCode::kConfig) << name;
    return message;
  };
  const auto has = [](const std::string& message, const std::string& words) {
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  has(refused("scaledd"), "did you mean 'scaled'?");
  has(refused("scaled,out"), "the values are: out, scaled   give the name of a node's output or a pattern, one --detach for each");
  has(refused("w"), "--freeze 'w'");
  has(refused("x"), "is an input");
  has(refused("scaled@lasst"), "did you mean 'last'?");
  has(refused("w@last"), "it reads: scaled");
  has(refused("@last"), "VALUE@NODE");
  has(refused("scaled@"), "VALUE@NODE");
  has(refused(""), "VALUE@NODE");
}

namespace {

void AddNote(onnx::NodeProto& node, const std::string& key, const std::string& value) {
  onnx::StringStringEntryProto* note = node.add_metadata_props();
  note->set_key("pkg.torch.onnx." + key);
  note->set_value(value);
}

std::string Frame(const std::string& file, const std::string& code) {
  return "  File \"" + file + "\", line 7, in forward\n    " + code + "\n";
}

}  // namespace

// x.detach().clone(): the exporter has removed both, and the node reads x as %clone.
TEST(Import, DetachedValuesWhoseReadersWereRemoved) {
  const auto warnings = [](const std::string& operand, const std::string& code, const std::string& other = "") {
    onnx::ModelProto model;
    const std::string text = Onnx(
        "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { tanh = Mul (x, w) sigmoid = Sigmoid (tanh) mul = "
        "Mul (tanh, sigmoid) y = Neg (mul) }");
    EXPECT_TRUE(onnx::OnnxParser::Parse(model, text.c_str()).IsOK());
    onnx::NodeProto& sigmoid = *model.mutable_graph()->mutable_node(1);
    sigmoid.set_name("node_sigmoid");
    AddNote(sigmoid, "fx_node",
            "%sigmoid : [num_users=1] = call_function[target=torch.ops.aten.sigmoid.default](args = (" + operand + ",), kwargs = {})");
    AddNote(sigmoid, "stack_trace", Frame("net.py", code));
    onnx::NodeProto& mul = *model.mutable_graph()->mutable_node(2);
    if (!other.empty()) {
      AddNote(mul, "fx_node",
              "%mul : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%tanh, " + other + "), kwargs = {})");
      AddNote(mul, "stack_trace", Frame("net.py", code));
    }
    return Import(Model::FromBytes(model.SerializeAsString(), "detached"), {}).warnings;
  };
  const std::string detaches = "return h * torch.sigmoid(h.detach().clone())";
  ASSERT_EQ(warnings("%clone", detaches).size(), 1U);
  EXPECT_NE(warnings("%clone", detaches)[0].find("1 node reads a value that the module detached"), std::string::npos);
  EXPECT_NE(warnings("%clone", detaches)[0].find("'node_sigmoid'"), std::string::npos);
  // Without a detach() in the line, of a value that the file has, of a parameter, and where another node of the line reads what is
  // detached.
  EXPECT_EQ(warnings("%clone", "return h * torch.sigmoid(h.clone())").size(), 0U);
  EXPECT_EQ(warnings("%tanh", detaches).size(), 0U);
  EXPECT_EQ(warnings("%p_w", detaches).size(), 0U);
  EXPECT_EQ(warnings("%view", detaches, "%detach").size(), 0U);
  EXPECT_EQ(warnings("%clone", detaches, "%sigmoid").size(), 1U);
}

// The forward() of a torch.autograd.Function is one more than there are modules.
TEST(Import, CodeOfAutogradFunctions) {
  const auto code = [](const std::string& classes, const std::string& trace) {
    onnx::ModelProto model;
    EXPECT_TRUE(onnx::OnnxParser::Parse(model, Onnx("g (float[2] x) => (float[2] y) { y = Neg (x) }").c_str()).IsOK());
    onnx::NodeProto& node = *model.mutable_graph()->mutable_node(0);
    AddNote(node, "class_hierarchy", classes);
    AddNote(node, "stack_trace", trace);
    return CodeOfFunctions(Model::FromBytes(model.SerializeAsString(), "functions"));
  };
  const std::string net = Frame("/home/net.py", "return self.layer(x)"), layer = Frame("/home/net.py", "return Step.apply(x)");
  const std::string step = Frame("/home/steps.py", "return (x > 0).float()"), two = "['net.Net', 'net.Layer', 'aten.neg.default']";
  EXPECT_EQ(code(two, net + layer).nodes, 0);
  ASSERT_EQ(code(two, net + layer + step).nodes, 1);
  EXPECT_EQ(code(two, net + layer + step).places, std::vector<std::string>{"steps.py:7"});
  // A module that calls what it inherits, and PyTorch's own functions.
  EXPECT_EQ(code(two, net + Frame("net.py", "return super().forward(x)") + layer).nodes, 0);
  EXPECT_EQ(code(two, Frame("/lib/torch/_dynamo/functional_export.py", "res = self._export_root(*args)") + net + layer).nodes, 0);
  EXPECT_EQ(code(two, net + Frame("/lib/torch/utils/checkpoint.py", "outputs = run_function(*args)") + layer).nodes, 0);
  // Broken notes.
  for (const std::string& trace :
       {std::string(), std::string("File \""), std::string("File \"a\", line 3, in"), net.substr(0, 25), net + "File \"x"})
    EXPECT_EQ(code(two, trace).nodes, 0) << trace;
  EXPECT_EQ(code("", net + layer + step).nodes, 0);
  // The time to read one does not grow with its square.
  std::string places;
  for (int i = 0; i < 200'000; ++i) places += "File \"a";
  EXPECT_EQ(code(two, places).nodes, 0);
  EXPECT_EQ(code(two, places + "\n").nodes, 0);
}

// The row of nn.Embedding's padding_idx.
TEST(Import, PaddingRowsHaveNoGradient) {
  const auto operators_of = [](const std::string& text, const std::string& arguments, ImportOptions options = {}) {
    onnx::ModelProto model;
    EXPECT_TRUE(onnx::OnnxParser::Parse(model, Onnx(text).c_str()).IsOK());
    for (onnx::NodeProto& node : *model.mutable_graph()->mutable_node()) {
      if (node.op_type() != "Gather") continue;
      onnx::StringStringEntryProto* note = node.add_metadata_props();
      note->set_key("pkg.torch.onnx.fx_node");
      note->set_value("%e : [num_users=1] = call_function[target=torch.ops.aten.embedding.default](args = (" + arguments);
    }
    return Operators(*Import(Model::FromBytes(model.SerializeAsString(), "padded"), options).graph);
  };
  const auto operators = [&](const std::string& arguments, ImportOptions options = {}) {
    return operators_of(
        "g (int64[2, 3] ids) => (float[2, 3, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { g = Gather (w, ids) y = Neg (g) }", arguments,
        options);
  };
  EXPECT_EQ(operators("%p_w, %ids, 1), kwargs = {})"), "Gather Equal Unsqueeze MaskGradient Neg");
  EXPECT_EQ(operators("%p_w, %ids, 1, True), kwargs = {})"), "Gather Equal Unsqueeze MaskGradient Neg");
  for (const char* none :
       {"%p_w, %ids), kwargs = {})", "%p_w, %ids, -1), kwargs = {})", "%p_w, %ids, ", "%p_w, %ids, 1", "%p_w", "", ", , 7x)"})
    EXPECT_EQ(operators(none), "Gather Neg") << none;
  ImportOptions through;
  through.detach = false;
  EXPECT_EQ(operators("%p_w, %ids, 1), kwargs = {})", through), "Gather Neg");
  // Columns have no such row.
  EXPECT_EQ(operators_of(
                "g (int64[3] ids) => (float[3, 3] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { g = Gather <axis = 1> (w, ids) y = Neg (g) }",
                "%p_w, %ids, 1), kwargs = {})"),
            "Gather Neg");
  // The data may decide how many rows are taken.
  const std::string selected = operators_of(
      "g (int64[4] ids, bool[4] c) => (float[1, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}, int64[1] first = {0}> "
      "{ s = Compress <axis = 0> (ids, c) g = Gather (w, s) y = ReduceSum (g, first) }",
      "%p_w, %ids, 1), kwargs = {})");
  EXPECT_NE(selected.find("MaskGradient"), std::string::npos) << selected;
}

TEST(Import, AcceptsDetachNotesOnAbsentInputs) {
  onnx::ModelProto model;
  const char* text = R"(<ir_version: 10, opset_import: ["" : 18, "own" : 1]>
g (float[2] x) => (float[2] y, float[2] z) { y = own.bounded (x) least = Neg (x) z = own.bounded (x, least) }
<domain: "own", opset_import: ["" : 18]> bounded (a, b) => (c) { low = Neg (a) c = Max (a, b) }
)";
  ASSERT_TRUE(onnx::OnnxParser::Parse(model, text).IsOK());
  onnx::StringStringEntryProto* note = model.mutable_functions(0)->mutable_node(1)->add_metadata_props();
  note->set_key("pkg.torch.onnx.fx_node");
  note->set_value("%c : [num_users=1] = call_function[target=torch.ops.aten.max.other](args = (%a, %detach), kwargs = {})");
  const ImportedGraph imported = Import(Model::FromBytes(model.SerializeAsString(), "absent"));
  const Graph& graph = *imported.graph;
  EXPECT_EQ(std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.op == "StopGradient"; }), 1);
}

}  // namespace
}  // namespace gradloom
