// Compares the types that a file declares for its values with those that its nodes produce. Contradicting element types are refused, as by
// onnx's checker and onnxruntime. Shapes follow from the nodes: outdated declarations are common, and onnxruntime accepts them too.
#include <algorithm>
#include <set>
#include <string_view>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_convert.h"

namespace gradloom {
namespace {

const onnx::NodeProto* ProducerOf(const onnx::GraphProto& graph, const std::string& name) {
  const auto makes = [&](const onnx::NodeProto& node) {
    return std::find(node.output().begin(), node.output().end(), name) != node.output().end();
  };
  const auto found = std::find_if(graph.node().begin(), graph.node().end(), makes);
  return found == graph.node().end() ? nullptr : &*found;
}

// Whether a numeric extent in the file differs. Some tools write 0 for an unknown extent.
bool Contradicts(const onnx::TensorShapeProto& declared, const Shape& made) {
  for (int axis = 0; axis < made.rank(); ++axis) {
    if (declared.dim(axis).has_dim_value() && declared.dim(axis).dim_value() > 0 && declared.dim(axis).dim_value() != made[axis])
      return true;
  }
  return false;
}

std::string ExtentsText(const onnx::TensorShapeProto& shape) {
  std::string text;
  for (const auto& dim : shape.dim()) {
    const std::string extent = dim.has_dim_value() ? std::to_string(dim.dim_value()) : dim.has_dim_param() ? Escaped(dim.dim_param()) : "?";
    text += (text.empty() ? "" : ",") + extent;
  }
  return "[" + text + "]";
}

// In old opsets the mask of a Dropout had the type of its input; since then it is a bool.
bool IsMask(const onnx::NodeProto& node, const std::string& name) { return node.op_type() == "Dropout" && node.output(0) != name; }

}  // namespace

void Importer::CheckDeclared(const onnx::ValueInfoProto& info, const Binding& made, const std::string& what,
                             const std::string& where) const {
  const int32_t declared = info.type().tensor_type().elem_type();
  const char* help = "change its type in the file, or cast the value";
  if (made.tensor != kNoValue && info.type().has_sequence_type())
    throw Error(ErrorCode::kType, what + " is declared as a sequence but is a tensor", where, help);
  if (!info.type().has_tensor_type()) return;
  if (made.sequence != nullptr || made.rows != kNoValue)
    throw Error(ErrorCode::kType, what + " is declared as a tensor but is a sequence", where, help);
  if (declared == onnx::TensorProto::UNDEFINED || made.tensor == kNoValue) return;
  const DType dtype = emitter().graph().value(made.tensor).dtype;
  if (DTypeFromProto(declared) == dtype) return;
  throw Error(ErrorCode::kType, what + " is declared as " + ProtoTypeName(declared) + " but is " + std::string(DTypeName(dtype)), where,
              help);
}

void Importer::CheckInner(const onnx::GraphProto& graph, const Scope& scope) {
  // The declared numbers only apply at the file's own batch size.
  if (!as_made_ && !graph.value_info().empty()) {
    const BatchNumbers batch = BatchNumbersOf(file_, options_);
    as_made_ = batch.actual == batch.declared;
  }
  const bool as_made = as_made_.value_or(true);
  // The type of an output counts, as it does for onnxruntime: some converters to float16 change the other one alone.
  std::set<std::string_view> outputs;
  for (const auto& output : graph.output()) outputs.insert(output.name());
  for (const auto& info : graph.value_info()) {
    const auto found = scope.names.find(info.name());
    if (found == scope.names.end() || outputs.contains(info.name())) continue;
    try {
      CheckDeclared(info, found->second, "'" + Escaped(info.name()) + "'", "");
    } catch (const Error& error) {
      const onnx::NodeProto* producer = ProducerOf(graph, info.name());
      if (producer == nullptr || IsMask(*producer, info.name())) continue;
      throw Error(error.code(), error.message(), WhereOf(*producer, scope), error.help());
    }
    if (!info.type().tensor_type().has_shape() || found->second.tensor == kNoValue || misdeclared_) continue;  // only the first is reported
    const onnx::TensorShapeProto& declared = info.type().tensor_type().shape();
    const Shape& shape = emitter().graph().value(found->second.tensor).shape;
    const bool axes = declared.dim_size() != shape.rank();
    if (!axes && (!as_made || !emitter().extents().Of(found->second.tensor).empty() || !Contradicts(declared, shape))) continue;
    const onnx::NodeProto* producer = ProducerOf(graph, info.name());
    if (producer == nullptr) continue;
    misdeclared_ = true;
    result_.warnings.push_back("the file declares '" + Escaped(info.name()) + "' " +
                               (axes ? "with rank " + std::to_string(declared.dim_size()) : "as " + ExtentsText(declared)) + ", but " +
                               WhereOf(*producer, scope) + " produces " + shape.ToString() + ", which is used");
  }
}

}  // namespace gradloom
