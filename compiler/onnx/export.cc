#include "compiler/onnx/export.h"

#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

bool HasElements(const onnx::TensorProto& tensor) {
  return tensor.has_raw_data() || tensor.float_data_size() > 0 || tensor.int32_data_size() > 0 || tensor.int64_data_size() > 0 ||
         tensor.double_data_size() > 0 || tensor.uint64_data_size() > 0 || tensor.string_data_size() > 0;
}

bool IsEmpty(const onnx::TensorProto& tensor) {
  for (int64_t dim : tensor.dims()) {
    if (dim == 0) return true;
  }
  return false;
}

void Fill(const TensorSite& site, const std::map<std::string, Tensor>& values) {
  if (site.dense == nullptr) return;
  const auto found = site.parameter_like ? values.find(site.name) : values.end();
  if (found == values.end()) {
    if (HasElements(*site.dense) || IsEmpty(*site.dense)) return;
    throw Error(ErrorCode::kPlan, "the value of '" + Escaped(site.name) + "' is neither in the plan nor given");
  }
  const Tensor& value = found->second;
  const Shape shape(std::vector<int64_t>(site.dense->dims().begin(), site.dense->dims().end()));
  if (static_cast<int>(value.dtype()) != site.dense->data_type() || value.shape() != shape) {
    throw Error(ErrorCode::kShape,
                "'" + Escaped(site.name) + "' is " + shape.ToString() + " in the model, the value " + value.shape().ToString());
  }
  SetTensor(value.view(), site.dense);
}

// The node as inference wants it: no training mode, no statistics.
void ToInference(onnx::NodeProto& node) {
  if (!node.domain().empty() && node.domain() != "ai.onnx") return;
  if (node.op_type() == "BatchNormalization") {
    for (int i = node.attribute_size(); i-- > 0;) {
      if (node.attribute(i).name() == "training_mode") node.mutable_attribute()->DeleteSubrange(i, 1);
    }
    while (node.output_size() > 1) node.mutable_output()->RemoveLast();
  }
  // The third input is training_mode: absent means inference.
  if (node.op_type() == "Dropout" && node.input_size() > 2) {
    node.mutable_input()->RemoveLast();
    if (node.input(1).empty()) node.mutable_input()->RemoveLast();
  }
}

void ToInference(onnx::GraphProto& graph) {
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    ToInference(node);
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) ToInference(*attribute.mutable_g());
      for (onnx::GraphProto& nested : *attribute.mutable_graphs()) ToInference(nested);
    }
  }
}

}  // namespace

void ExportTrained(const ModelInfo& model, const std::map<std::string, Tensor>& values, const std::string& path) {
  onnx::ModelProto proto;
  if (!proto.ParseFromString(model.bytes)) throw Error(ErrorCode::kPlan, "the model inside the plan is damaged", Escaped(model.name));
  ForEachTensor(proto, [&](const TensorSite& site) { Fill(site, values); });
  ToInference(*proto.mutable_graph());
  for (onnx::FunctionProto& function : *proto.mutable_functions()) {
    for (onnx::NodeProto& node : *function.mutable_node()) ToInference(node);
  }
  std::string bytes;
  if (proto.ByteSizeLong() > (size_t{2} << 30) - 1024 || !proto.SerializeToString(&bytes)) {
    throw Error(ErrorCode::kLimit, "the model is past the 2 GiB that one ONNX file can hold", Escaped(path));
  }
  WriteFileAtomically(path, bytes);
}

}  // namespace gradloom
