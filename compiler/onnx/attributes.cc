// Converts attributes of nodes from protobuf to the graph's form, with references inside functions resolved.
#include <type_traits>

#include "compiler/onnx/check/attribute_form.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/read/tensor_data.h"
#include "compiler/onnx/schema.h"

namespace gradloom {
namespace {

using Proto = onnx::AttributeProto;

[[noreturn]] void Fail(const Proto& attribute, const std::string& why, const std::string& where) {
  throw Error(ErrorCode::kAttr, "attribute '" + Escaped(attribute.name()) + "' " + why, where);
}

// Whether the operator is expanded by a function body that contains this graph.
bool TakesGraph(const Node& node, const std::string& attribute) {
  const onnx::OpSchema* schema = FindSchema(node.domain, node.op);
  if (schema == nullptr || !schema->HasContextDependentFunction()) return false;
  const auto found = schema->attributes().find(attribute);
  return found != schema->attributes().end() && found->second.type == Proto::GRAPH;
}

}  // namespace

const Proto* Importer::Resolve(const Proto& attribute, const Scope& scope) const {
  if (attribute.ref_attr_name().empty()) return &attribute;
  if (scope.attributes == nullptr)
    Fail(attribute, "refers to '" + Escaped(attribute.ref_attr_name()) + "' outside of a function", file_.path);
  const auto found = scope.attributes->find(attribute.ref_attr_name());
  return found == scope.attributes->end() ? nullptr : found->second;
}

const Proto* Importer::FindAttribute(const onnx::NodeProto& proto, const std::string& name, const Scope& scope) const {
  for (const Proto& attribute : proto.attribute()) {
    if (attribute.name() == name) return Resolve(attribute, scope);
  }
  return nullptr;
}

Tensor Importer::TensorAt(const onnx::TensorProto& proto) const {
  const auto found = file_.tensors.find(&proto);
  if (found != file_.tensors.end()) return found->second.data;
  // The function body of a schema has its own tensors, which are not part of the file.
  ExternalData none("", file_.options);
  return ReadTensor(proto, "a function of ONNX", none, file_.options.limits);
}

Tensor Importer::ConstantValue(const std::string& name, const Proto& attribute, const std::string& where) const {
  CheckForm(attribute, file_.options.limits, [&] { return where; });
  const auto list = [](const auto& values) {
    using T = std::decay_t<decltype(values[0])>;
    return Tensor::From<T>(std::vector<T>(values.begin(), values.end()), Shape{values.size()});
  };
  if (name == "value" && attribute.type() == Proto::TENSOR) return TensorAt(attribute.t());
  if (name == "value_int" && attribute.type() == Proto::INT) return Tensor::Scalar<int64_t>(attribute.i());
  if (name == "value_float" && attribute.type() == Proto::FLOAT) return Tensor::Scalar<float>(attribute.f());
  if (name == "value_ints" && attribute.type() == Proto::INTS) return list(attribute.ints());
  if (name == "value_floats" && attribute.type() == Proto::FLOATS) return list(attribute.floats());
  if (name == "value_string" || name == "value_strings") throw Error(ErrorCode::kUnsupported, "string constants are not supported", where);
  Fail(attribute, "is not a valid value of Constant", where);
}

void Importer::AddAttributes(const onnx::NodeProto& proto, const Scope& scope, Node& node) const {
  for (const Proto& written : proto.attribute()) {
    const Proto* attribute = Resolve(written, scope);
    // A reference to an attribute that the call omits omits the attribute too.
    if (attribute == nullptr) continue;
    CheckForm(*attribute, file_.options.limits, [&] { return Describe(node); });
    const std::string& name = written.name();
    if (node.attributes.has(name)) Fail(written, "is given twice", Describe(node));
    switch (attribute->type()) {
      case Proto::FLOAT: node.attributes.set(name, static_cast<double>(attribute->f())); break;
      case Proto::INT: node.attributes.set(name, static_cast<int64_t>(attribute->i())); break;
      case Proto::STRING: node.attributes.set(name, attribute->s()); break;
      case Proto::FLOATS: node.attributes.set(name, std::vector<double>(attribute->floats().begin(), attribute->floats().end())); break;
      case Proto::INTS: node.attributes.set(name, std::vector<int64_t>(attribute->ints().begin(), attribute->ints().end())); break;
      case Proto::STRINGS:
        node.attributes.set(name, std::vector<std::string>(attribute->strings().begin(), attribute->strings().end()));
        break;
      case Proto::TENSOR: node.attributes.set(name, TensorAt(attribute->t())); break;
      // The operator's body uses it (ExpandBySchema); a Node has no graphs.
      case Proto::GRAPH:
        if (TakesGraph(node, name)) break;
        Fail(written, "is a graph, which operator '" + Escaped(proto.op_type()) + "' does not take", Describe(node));
      case Proto::SPARSE_TENSOR: node.attributes.set(name, file_.tensors.at(&attribute->sparse_tensor()).data); break;
      default: Fail(written, "has a type that operator '" + Escaped(proto.op_type()) + "' does not take", Describe(node));
    }
  }
}

}  // namespace gradloom
