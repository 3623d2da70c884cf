// Attributes of nodes: from protobuf to the graph's, with references of functions resolved.
#include <algorithm>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/schema.h"
#include "compiler/onnx/tensor_data.h"

namespace gradloom {
namespace {

using Proto = onnx::AttributeProto;

[[noreturn]] void Fail(const Proto& attribute, const std::string& why, const std::string& where) {
  throw Error(ErrorCode::kAttr, "attribute '" + Escaped(attribute.name()) + "' " + why, where);
}

// Which values an attribute holds, one bit each; a well-formed one holds that of its type and no other.
int HeldValues(const Proto& a) {
  return a.has_f() + a.has_i() + a.has_s() + a.has_t() + a.has_g() + a.has_sparse_tensor() + a.has_tp() + (a.floats_size() > 0) +
         (a.ints_size() > 0) + (a.strings_size() > 0) + (a.tensors_size() > 0) + (a.graphs_size() > 0) + (a.sparse_tensors_size() > 0) +
         (a.type_protos_size() > 0);
}

bool HoldsItsType(const Proto& a) {
  switch (a.type()) {
    case Proto::FLOAT: return a.has_f();
    case Proto::INT: return a.has_i();
    case Proto::STRING: return a.has_s();
    case Proto::TENSOR: return a.has_t();
    case Proto::GRAPH: return a.has_g();
    case Proto::SPARSE_TENSOR: return a.has_sparse_tensor();
    case Proto::TYPE_PROTO: return a.has_tp();
    case Proto::FLOATS: return a.floats_size() > 0;
    case Proto::INTS: return a.ints_size() > 0;
    case Proto::STRINGS: return a.strings_size() > 0;
    case Proto::TENSORS: return a.tensors_size() > 0;
    case Proto::GRAPHS: return a.graphs_size() > 0;
    case Proto::SPARSE_TENSORS: return a.sparse_tensors_size() > 0;
    case Proto::TYPE_PROTOS: return a.type_protos_size() > 0;
    default: return false;
  }
}

void CheckForm(const Proto& attribute, const ModelLimits& limits, const std::string& where) {
  if (attribute.type() == Proto::UNDEFINED) Fail(attribute, "has no type", where);
  const int held = HeldValues(attribute);
  // Numbers equal to protobuf's default, and empty lists, may be left out of the file.
  if (held > 1 || (held == 1 && !HoldsItsType(attribute))) Fail(attribute, "holds values of another kind than its type says", where);
  const int64_t count = std::max({attribute.floats_size(), attribute.ints_size(), attribute.strings_size(), attribute.tensors_size()});
  if (count > limits.attribute_elements) {
    throw Error(ErrorCode::kLimit,
                "attribute '" + Escaped(attribute.name()) + "' has " + std::to_string(count) + " elements, the limit is " +
                    std::to_string(limits.attribute_elements),
                where);
  }
}

// Whether the operator is written out with this graph in its body.
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
  // A body that a schema gives has tensors of its own, which are no part of the file.
  ExternalData none("", file_.options);
  return ReadTensor(proto, "a function of ONNX", none, file_.options.limits);
}

Tensor Importer::ConstantValue(const std::string& name, const Proto& attribute, const std::string& where) const {
  CheckForm(attribute, file_.options.limits, where);
  const auto list = [](const auto& values) {
    using T = std::decay_t<decltype(values[0])>;
    return Tensor::From<T>(std::vector<T>(values.begin(), values.end()), Shape{values.size()});
  };
  if (name == "value" && attribute.type() == Proto::TENSOR) return TensorAt(attribute.t());
  if (name == "value_int" && attribute.type() == Proto::INT) return Tensor::Scalar<int64_t>(attribute.i());
  if (name == "value_float" && attribute.type() == Proto::FLOAT) return Tensor::Scalar<float>(attribute.f());
  if (name == "value_ints" && attribute.type() == Proto::INTS) return list(attribute.ints());
  if (name == "value_floats" && attribute.type() == Proto::FLOATS) return list(attribute.floats());
  if (name == "value_string" || name == "value_strings") throw Error(ErrorCode::kUnsupported, "a constant of strings", where);
  Fail(attribute, "is no value of a Constant", where);
}

void Importer::AddAttributes(const onnx::NodeProto& proto, const Scope& scope, Node& node) const {
  for (const Proto& written : proto.attribute()) {
    const Proto* attribute = Resolve(written, scope);
    // A reference to an attribute that the call left out leaves it out as well.
    if (attribute == nullptr) continue;
    CheckForm(*attribute, file_.options.limits, Describe(node));
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
      // The operator's body takes it in (ExpandBySchema); a node has no graphs.
      case Proto::GRAPH:
        if (TakesGraph(node, name)) break;
        Fail(written, "is a graph, which operator '" + Escaped(proto.op_type()) + "' cannot have here", Describe(node));
      case Proto::SPARSE_TENSOR: node.attributes.set(name, file_.tensors.at(&attribute->sparse_tensor()).data); break;
      default: Fail(written, "is of a kind that operator '" + Escaped(proto.op_type()) + "' cannot have here", Describe(node));
    }
  }
}

}  // namespace gradloom
