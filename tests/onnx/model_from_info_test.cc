// Models made of what a plan stores and the values that it leaves out.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/text.h"
#include "compiler/onnx/export/export.h"
#include "compiler/onnx/import.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/unknown_field_set.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/file.h"
#include "tests/base/temporary_folder.h"
#include "tests/onnx/import_text.h"

namespace gradloom {
namespace {

// With dropout and batch statistics, weights of 16 bits, in a Constant node, in a branch, and a sparse one.
Model SmallModel() {
  Model dense = Model::FromText(Onnx(R"(
net (float[N, 3] x) => (float[N, 3] y)
<float[3, 3] w = {1,2,3,4,5,6,7,8,9}, float16[3] half = {1,2,3}, float[3] scale = {1,1,1}, float[3] bias = {0,0,0},
 float[3] mean = {0,0,0}, float[3] var = {1,1,1}, float ratio = {0.5}, bool training = {1}, bool yes = {1}, float[3] frozen = {7,8,9}>
{
  [fc] h = MatMul (x, w)
  n, next_mean, next_var = BatchNormalization <training_mode = 1> (h, scale, bias, mean, var)
  d = Dropout (n, ratio, training)
  shift = Constant <value = float[3] {1,2,3}> ()
  wide = Cast <to = 1> (half)
  a = Add (d, shift)
  b = Add (a, wide)
  c = If (yes) <then_branch = g () => (float[N, 3] t) <float[3] inner = {4,5,6}> { t = Add (b, inner) },
                else_branch = g () => (float[N, 3] e) { e = Identity (b) }>
  y = Add (c, frozen)
})"));
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(dense.info().bytes));
  onnx::SparseTensorProto& sparse = *proto.mutable_graph()->add_sparse_initializer();
  sparse.add_dims(3);
  sparse.mutable_values()->set_name("few");
  sparse.mutable_values()->set_data_type(onnx::TensorProto::FLOAT);
  sparse.mutable_values()->add_dims(1);
  sparse.mutable_values()->add_float_data(2);
  sparse.mutable_indices()->set_data_type(onnx::TensorProto::INT64);
  sparse.mutable_indices()->add_dims(1);
  sparse.mutable_indices()->add_int64_data(1);
  onnx::NodeProto& last = *proto.mutable_graph()->mutable_node(proto.graph().node_size() - 1);
  last.set_output(0, "z");
  onnx::NodeProto& node = *proto.mutable_graph()->add_node();
  node.set_op_type("Add");
  node.add_input("z");
  node.add_input("few");
  node.add_output("y");
  return Model::FromBytes(proto.SerializeAsString(), "small.onnx");
}

// The graph, with all elements of its constants.
std::string TextOf(const Model& model) {
  const ImportedGraph imported = Import(model, {.batch = 4});
  const Graph& graph = *imported.graph;
  std::string text = ToText(graph);
  for (const Value& value : graph.values()) {
    const Tensor* const data = graph.data(graph.Find(value.name));
    if (data == nullptr) continue;
    text += value.name + ":";
    for (int64_t i = 0; i < data->elements(); ++i) text += " " + std::to_string(ElementAsDouble(data->view(), i));
    text += "\n";
  }
  return text;
}

std::string Exported(const ModelInfo& info, const std::map<std::string, Tensor>& values) {
  const TemporaryFolder folder;
  ExportTrained(info, values, folder / "model.onnx");
  return ReadWholeFile(folder / "model.onnx");
}

TEST(ModelFromInfo, IsTheFileThatAnExportWouldWrite) {
  const Model model = SmallModel();
  std::map<std::string, Tensor> values{{"w", Tensor::From<float>({9, 8, 7, 6, 5, 4, 3, 2, 1}, {3, 3})},
                                       {"half", Tensor::From<float>({4, 5, 6}, {3})},
                                       {"shift", Tensor::From<float>({7, 7, 7}, {3})},
                                       {"few", Tensor::From<float>({1, 2, 3}, {3})},
                                       {"mean", Tensor::From<float>({3, 3, 3}, {3})},
                                       {"absent", Tensor::From<float>({1}, {1})}};
  std::vector<std::string> replaced;
  for (const auto& [name, value] : values) replaced.push_back(name);
  const ModelInfo info = model.info(replaced);
  for (const ModelForm form : {ModelForm::kInference, ModelForm::kAsWritten}) {
    const Model made = Model::FromInfo(info, values, form);
    const std::string exported = TextOf(Model::FromBytes(Exported(info, values), info.name));
    EXPECT_EQ(TextOf(Model::FromBytes(Exported(made.info(), {}), info.name)), exported);
    EXPECT_EQ(TextOf(made) == exported, form == ModelForm::kInference);
    EXPECT_EQ(made.name(), "small.onnx");
    // What is stored again is complete.
    EXPECT_EQ(TextOf(Model::FromBytes(made.info().bytes, info.name)), TextOf(made));
  }
  EXPECT_EQ(Model::FromInfo(info, values).hash(), Model::FromInfo(info, values).hash());
  EXPECT_EQ(model.hash(), model.info().hash);
  const std::string before = Model::FromInfo(info, values).hash();
  values.at("w").as<float>()[0] = 5;
  EXPECT_NE(Model::FromInfo(info, values).hash(), before);
  values.at("w") = Tensor::From<float>({1, 2, 3}, {3});
  EXPECT_THROW(Model::FromInfo(info, values), Error);
  values.erase("w");
  EXPECT_THROW(Model::FromInfo(info, values), Error);
}

// More than a file of protobuf can have. The weights are pages that are never written, so they take no memory.
TEST(ModelFromInfo, MayHaveMoreThanTwoGibibytes) {
  constexpr int64_t kInputs = 512, kOutputs = int64_t{1} << 20;
  ModelInfo info =
      Model::FromText(Onnx(R"(large (float[N, 512] x) => (float[N, M] y) <float[1, 1] w = {1}> { y = MatMul (x, w) })")).info({"w"});
  onnx::ModelProto proto;
  ASSERT_TRUE(proto.ParseFromString(info.bytes));
  proto.mutable_graph()->mutable_initializer(0)->set_dims(0, kInputs);
  proto.mutable_graph()->mutable_initializer(0)->set_dims(1, kOutputs);
  info.bytes = proto.SerializeAsString();
  const std::map<std::string, Tensor> values{{"w", Tensor(DType::kFloat32, {kInputs, kOutputs})}};
  ASSERT_GE(values.at("w").bytes(), int64_t{2} << 30);
  const Model model = Model::FromInfo(info, values);
  const ImportedGraph imported = Import(model, {.batch = 4});
  const Tensor* const w = imported.graph->data(imported.graph->Find("w"));
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->data(), values.at("w").data()) << "a copy";
  EXPECT_EQ(imported.graph->value(imported.graph->Find("y")).shape, (Shape{4, kOutputs}));
}

// A model without the elements of `w`. `mark`: every tensor refers to moved elements with this number, as tensors do while a model is
// written.
onnx::ModelProto MarkedModel(std::optional<uint64_t> mark) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  const auto fill = [&](onnx::TensorProto& tensor, const char* name, onnx::TensorProto::DataType type,
                        int64_t count) -> onnx::TensorProto& {
    tensor.set_name(name);
    tensor.set_data_type(type);
    tensor.add_dims(count);
    if (mark) tensor.mutable_unknown_fields()->AddVarint((1 << 29) - 1, *mark);
    return tensor;
  };
  const auto one = [&](onnx::TensorProto& tensor, const char* name) { fill(tensor, name, onnx::TensorProto::FLOAT, 1).add_float_data(3); };
  const auto constant = [&](onnx::NodeProto& node, const char* output) {
    node.set_op_type("Constant");
    node.add_output(output);
    onnx::AttributeProto& value = *node.add_attribute();
    value.set_name("value");
    value.set_type(onnx::AttributeProto::TENSOR);
    one(*value.mutable_t(), "");
  };
  onnx::GraphProto& graph = *model.mutable_graph();
  graph.set_name("marked");
  fill(*graph.add_initializer(), "w", onnx::TensorProto::FLOAT, 512);
  one(*graph.add_initializer(), "kept");
  onnx::SparseTensorProto& sparse = *graph.add_sparse_initializer();
  sparse.add_dims(3);
  one(*sparse.mutable_values(), "few");
  fill(*sparse.mutable_indices(), "", onnx::TensorProto::INT64, 1).add_int64_data(1);
  constant(*graph.add_node(), "c");
  onnx::FunctionProto& function = *model.add_functions();
  function.set_name("f");
  constant(*function.add_node(), "d");
  one(*model.add_training_info()->mutable_initialization()->add_initializer(), "state");
  return model;
}

// A plan may come from anyone. So may unknown fields of its model, nested as deep as it may be read.
TEST(ModelFromInfo, StoredModelsCannotReferToMovedElements) {
  std::map<std::string, Tensor> values;
  values.emplace("w", Tensor(DType::kFloat32, Shape{512}));
  for (int64_t i = 0; i < 512; ++i) values.at("w").as<float>()[i] = static_cast<float>(i);
  const auto exported = [&](onnx::ModelProto model) {
    google::protobuf::UnknownFieldSet* fields = model.mutable_unknown_fields();
    for (int depth = 0; depth < 150; ++depth) fields = fields->AddGroup(1000);
    return Exported({"marked.onnx", "", model.SerializeAsString()}, values);
  };
  const std::string plain = exported(MarkedModel(std::nullopt));
  for (const uint64_t mark : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) EXPECT_EQ(exported(MarkedModel(mark)), plain) << mark;
  onnx::ModelProto read;
  // As deep as protobuf reads by default, but for the unknown fields.
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(plain.data()), static_cast<int>(plain.size()));
  stream.SetRecursionLimit(200);
  ASSERT_TRUE(read.ParseFromCodedStream(&stream));
  EXPECT_EQ(read.graph().initializer(0).raw_data().size(), 2048);
}

}  // namespace
}  // namespace gradloom
