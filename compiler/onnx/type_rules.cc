#include "compiler/onnx/type_rules.h"

#include <map>
#include <memory>
#include <new>
#include <utility>

#include "compiler/onnx/check/node_rules.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/ops/op.h"
#include "kernels/reference/reference.h"
#include "onnx/defs/shape_inference.h"
#include "runtime/base/joined.h"

namespace gradloom {
namespace {

// Data that a shape can depend on (shapes, axes, pads, scales) is small. Larger constants are weights.
constexpr int64_t kMaxShapeDataElements = 1 << 16;

// The information about a node that ONNX's inference functions ask for; protobuf forms are created on demand.
class NodeContext : public onnx::InferenceContext {
 public:
  NodeContext(const Graph& graph, const Node& node) : graph_(graph), node_(node), inputs_(node.inputs.size()), data_(node.inputs.size()) {
    outputs_.resize(node.outputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != kNoValue) SetTensorType(graph.type(node.inputs[i]), &inputs_[i]);
    }
  }

  const onnx::AttributeProto* getAttribute(const std::string& name) const override {
    const auto made = attributes_.find(name);
    if (made != attributes_.end()) return made->second.get();
    for (const auto& [key, value] : node_.attributes) {
      if (key != name) continue;
      auto proto = std::make_unique<onnx::AttributeProto>();
      SetAttribute(name, value, proto.get());
      return attributes_.emplace(name, std::move(proto)).first->second.get();
    }
    return nullptr;
  }
  size_t getNumInputs() const override { return inputs_.size(); }
  const onnx::TypeProto* getInputType(size_t index) const override { return hasInput(index) ? &inputs_[index] : nullptr; }
  bool hasInput(size_t index) const override { return index < inputs_.size() && node_.inputs[index] != kNoValue; }
  const onnx::TensorProto* getInputData(size_t index) const override {
    if (!hasInput(index)) return nullptr;
    if (data_[index] != nullptr) return data_[index].get();
    const ValueId id = node_.inputs[index];
    const Tensor* tensor = graph_.data(id);
    if (tensor == nullptr || graph_.value(id).role != Role::kConst || tensor->elements() > kMaxShapeDataElements) return nullptr;
    data_[index] = std::make_unique<onnx::TensorProto>();
    SetTensor(tensor->view(), data_[index].get());
    return data_[index].get();
  }
  size_t getNumOutputs() const override { return outputs_.size(); }
  onnx::TypeProto* getOutputType(size_t index) override { return index < outputs_.size() ? &outputs_[index] : nullptr; }
  // A builder asks for types before it creates the values: every listed output counts as used.
  bool hasOutput(size_t index) override { return index < outputs_.size(); }
  onnx::GraphInferencer* getGraphAttributeInferencer(const std::string& name) override {
    throw Error(ErrorCode::kAttr, "operator '" + Escaped(node_.op) + "' needs the graph '" + Escaped(name) + "'", Describe(node_));
  }
  const onnx::SparseTensorProto* getInputSparseData(size_t) const override { return nullptr; }
  const onnx::TensorShapeProto* getSymbolicInput(size_t) const override { return nullptr; }
  std::string getDisplayName() const override { return Describe(node_); }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<onnx::TypeProto> inputs_;
  std::vector<onnx::TypeProto> outputs_;
  mutable std::vector<std::unique_ptr<onnx::TensorProto>> data_;
  mutable std::map<std::string, std::unique_ptr<onnx::AttributeProto>> attributes_;
};

constexpr size_t kMaxShown = 2000;  // bytes of operands or attributes in a message

// " = [2,-1]" of a short constant list, such as a target shape.
std::string NumbersOf(const Graph& graph, ValueId id) {
  constexpr int64_t kMax = 8;
  const Tensor* data = graph.value(id).role == Role::kConst && graph.value(id).dtype == DType::kInt64 ? graph.data(id) : nullptr;
  if (data == nullptr || data->elements() > kMax) return "";
  const std::string text = JoinedTexts(
      data->as<int64_t>(), [](int64_t number) { return std::to_string(number); }, ",");
  return " = " + (data->shape().rank() == 0 ? text : "[" + text + "]");
}

std::string OperandTypes(const Graph& graph, const Node& node) {
  std::string text;
  for (ValueId id : node.inputs) {
    text += text.empty() ? "" : ", ";
    text += id == kNoValue ? "-" : "'" + Escaped(graph.value(id).name) + "' " + graph.type(id).ToString();
    if (id != kNoValue) text += NumbersOf(graph, id);
    if (text.size() > kMaxShown) return text + ", ...";
  }
  return text;
}

std::string AttributesOf(const Node& node) {
  std::string text;
  for (const auto& [name, value] : node.attributes) {
    text += (text.empty() ? "" : ", ") + Escaped(name) + "=" + Escaped(Attributes::ToString(value));
    if (text.size() > kMaxShown) return text + ", ...";
  }
  return text;
}

std::string Where(const Graph& graph, const Node& node) {
  const std::string operands = OperandTypes(graph, node);
  const std::string attributes = AttributesOf(node);
  return Describe(node) + (operands.empty() ? "" : "  inputs " + operands) + (attributes.empty() ? "" : "  attributes " + attributes);
}

// ONNX's functions throw a single type of exception, and name the attribute or shape only in its text.
ErrorCode ClassOf(const std::string& message) {
  const auto says = [&](const char* word) { return message.find(word) != std::string::npos; };
  if (says("ttribute")) return ErrorCode::kAttr;
  if (says("[TypeInferenceError]")) return ErrorCode::kType;
  if (says("Integer overflow while")) return ErrorCode::kLimit;
  for (const char* word : {"axis", "Axis", "axes", "perm", "equation"}) {
    if (says(word)) return ErrorCode::kAttr;
  }
  return ErrorCode::kShape;
}

std::string WithoutPrefix(std::string message) {
  for (const char* prefix : {"[TypeInferenceError] ", "[ShapeInferenceError] "}) {
    if (message.starts_with(prefix)) message.erase(0, std::string_view(prefix).size());
  }
  return Escaped(message, 1000);
}

// Returns the inputs that are not constant, for the error that a shape depends on data.
std::string VariableInputs(const Graph& graph, const Node& node) {
  std::string text;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    if (id != kNoValue && graph.value(id).role != Role::kConst) text += (text.empty() ? "'" : ", '") + Escaped(graph.value(id).name) + "'";
  }
  return text;
}

ValueType TypeOf(const Graph& graph, const Node& node, size_t index, const onnx::TypeProto& proto) {
  const std::string which = "output " + std::to_string(index);
  if (proto.value_case() != onnx::TypeProto::kTensorType) {
    throw Error(ErrorCode::kUnsupported, which + " of " + Escaped(node.op) + " is not a tensor, or its type is unknown", Where(graph, node),
                HelpOfTraditional(node));
  }
  const auto dtype = DTypeFromProto(proto.tensor_type().elem_type());
  if (!dtype) {
    throw Error(ErrorCode::kUnsupported,
                which + " of " + Escaped(node.op) + " has elements of type " + ProtoTypeName(proto.tensor_type().elem_type()) +
                    ", which is not supported",
                Where(graph, node));
  }
  ValueType type{.dtype = *dtype, .shape = {}};
  bool known = proto.tensor_type().has_shape();
  for (const auto& dim : proto.tensor_type().shape().dim()) {
    known = known && dim.has_dim_value();
    type.shape.push_back(dim.dim_value());
  }
  if (!known) {
    const std::string variable = VariableInputs(graph, node);
    throw Error(ErrorCode::kUnsupported,
                "the shape of " + which + " of " + Escaped(node.op) + " is not known at compile time" +
                    (variable.empty() ? "" : "; it depends on the data of " + variable),
                Where(graph, node),
                !node.domain.empty() ? HelpOfTraditional(node)
                : variable.empty()   ? "shapes are fixed when a model is compiled: give --shape NAME=N for symbolic dimensions"
                                     : "shapes are fixed when a model is compiled: give --shape NAME=N for symbolic dimensions and --value "
                                       "INPUT=NUMBERS for inputs, or omit the outputs that depend on it (--outputs, once for each output to "
                                       "keep)");
  }
  return type;
}

constexpr int64_t kMaxEmptyRows = int64_t{1} << 31;

void CheckExtents(const Graph& graph, const Node& node, const ValueType& type) {
  if (type.shape.rank() > kMaxRank) {
    throw Error(ErrorCode::kLimit, "an output has rank " + std::to_string(type.shape.rank()) + "; the limit is " + std::to_string(kMaxRank),
                Describe(node));
  }
  for (int64_t dim : type.shape) {
    if (dim < 0) {
      throw Error(ErrorCode::kShape, "an output has the negative extent " + std::to_string(dim) + " in " + type.shape.ToString(),
                  Where(graph, node));
    }
  }
  const auto elements = type.shape.checked_elements();
  // No dtype has more than 16 bytes per element, so byte counts cannot overflow later.
  if (!elements || *elements > (int64_t{1} << 59)) {
    throw Error(ErrorCode::kLimit, "an output of shape " + type.shape.ToString() + " has more elements than memory can hold",
                Describe(node));
  }
  // Kernels loop over the rows of a tensor without elements, too.
  if (*elements == 0) {
    int64_t rows = 1;
    for (int64_t dim : type.shape) {
      if (dim == 0) continue;
      rows = dim > kMaxEmptyRows ? dim : rows * dim;
      if (rows > kMaxEmptyRows) {
        throw Error(ErrorCode::kLimit, "an output of shape " + type.shape.ToString() + " has no elements, but too many rows",
                    Describe(node));
      }
    }
  }
}

std::vector<ValueType> InferBySchema(const Graph& graph, const Node& node, const onnx::OpSchema& schema) {
  // ONNX infers their types, and nothing in front of them wants a gradient, so that only the missing kernel would be noticed.
  if (node.domain == "ai.onnx.ml" && node.op.ends_with("Classifier") && FindReference(node.domain, node.op) == nullptr) {
    throw Error(ErrorCode::kUnsupported, "operator '" + Escaped(node.op) + "' is not supported", Describe(node), HelpOfTraditional(node));
  }
  if (!schema.has_type_and_shape_inference_function()) {
    throw Error(ErrorCode::kUnsupported, "operator '" + Escaped(node.op) + "' has no type rule", Describe(node), HelpOfTraditional(node));
  }
  NodeContext context(graph, node);
  try {
    schema.GetTypeAndShapeInferenceFunction()(context);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ClassOf(e.what()), WithoutPrefix(e.what()), Where(graph, node));
  }
  std::vector<ValueType> types;
  for (size_t i = 0; i < node.outputs.size(); ++i) types.push_back(TypeOf(graph, node, i, *context.getOutputType(i)));
  return types;
}

constexpr int64_t kMaxExact = int64_t{1} << 24;

// onnx multiplies extents and scales in float64, where 5 * 1.4f is less than 7. The programs that write and run such files multiply in
// float32.
void ScaleExtents(const Graph& graph, const Node& node, Shape& result) {
  const auto given = [&](size_t i) -> const Tensor* {
    return i < node.inputs.size() && node.inputs[i] != kNoValue ? graph.data(node.inputs[i]) : nullptr;
  };
  const Tensor *scales = given(2), *sizes = given(3);
  if (scales == nullptr || (sizes != nullptr && sizes->elements() > 0)) return;
  const Shape& x = graph.value(node.inputs[0]).shape;
  const std::vector<int64_t> axes = node.attributes.Ints("axes");
  for (int64_t i = 0; i < scales->elements(); ++i) {
    const auto axis = NormalAxis(axes.empty() ? i : axes.at(static_cast<size_t>(i)), x.rank());
    if (!axis) return;
    const float extent = static_cast<float>(x[*axis]) * static_cast<float>(ElementAsDouble(scales->view(), i));
    // float32 does not represent all larger integers.
    if (x[*axis] < kMaxExact && extent >= 0 && extent < static_cast<float>(kMaxExact)) result[*axis] = static_cast<int64_t>(extent);
  }
}

}  // namespace

std::vector<ValueType> OnnxTypeRules::Infer(const Graph& graph, const Node& node) const {
  const Op* op = FindOp(node.domain, node.op);
  const onnx::OpSchema* schema = node.domain == kGradloomDomain ? nullptr : FindSchema(node.domain, node.op);
  if (schema != nullptr) CheckNode(graph, node, *schema);
  CheckOperands(graph, node);
  std::vector<ValueType> types;
  if (op != nullptr && op->infer != nullptr) {
    try {
      types = op->infer(graph, node);
    } catch (const Error& e) {
      if (!e.where().empty()) throw;
      throw Error(e.code(), e.message(), Where(graph, node), e.help());
    }
  } else if (schema != nullptr) {
    types = InferBySchema(graph, node, *schema);
    if (node.domain.empty() && node.op == "Resize") ScaleExtents(graph, node, types[0].shape);
  } else {
    ThrowUnknownOperator(node);
  }
  for (const ValueType& type : types) CheckExtents(graph, node, type);
  CheckTypes(graph, node, types);
  return types;
}

}  // namespace gradloom
