// Graph inputs: their symbolic dimensions fixed, their batch axis found.
#include <map>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_convert.h"

namespace gradloom {
namespace {

// A dimension as the file declares it.
std::string SymbolOf(const onnx::TensorShapeProto::Dimension& dim, const std::string& input, int axis) {
  if (dim.has_dim_param() && !dim.dim_param().empty()) return dim.dim_param();
  return input + "[" + std::to_string(axis) + "]";
}

const onnx::TypeProto::Tensor& TensorTypeOf(const onnx::ValueInfoProto& info) {
  const std::string where = "input '" + Escaped(info.name()) + "'";
  if (!info.has_type() || info.type().value_case() == onnx::TypeProto::VALUE_NOT_SET)
    throw Error(ErrorCode::kType, "a graph input without a type", where);
  if (info.type().value_case() != onnx::TypeProto::kTensorType) {
    throw Error(ErrorCode::kUnsupported, "a graph input that is no tensor", where, "only tensors can be fed");
  }
  return info.type().tensor_type();
}

struct BatchAxis {
  std::string symbol;    // of the symbolic dimension that is the batch; empty: a declared one
  int64_t declared = 0;  // 0: none
};

// Axis 0 is the batch by convention: the symbol that most inputs have there; without symbols the extent of the
// first input that has an axis.
BatchAxis FindBatch(const std::vector<const onnx::ValueInfoProto*>& infos) {
  std::map<std::string, int> votes;
  BatchAxis batch;
  int most = 0;
  for (const auto* info : infos) {
    const auto& shape = info->type().tensor_type().shape();
    if (shape.dim_size() == 0) continue;
    if (shape.dim(0).has_dim_value()) {
      if (batch.declared == 0) batch.declared = shape.dim(0).dim_value();
      continue;
    }
    const std::string symbol = SymbolOf(shape.dim(0), info->name(), 0);
    if (++votes[symbol] > most) {
      most = votes[symbol];
      batch.symbol = symbol;
    }
  }
  if (!batch.symbol.empty()) batch.declared = 0;
  return batch;
}

// An extent that was given under a name that no input has is most likely meant.
std::string ExtentHelp(const std::string& symbol, const std::map<std::string, int64_t>& unused) {
  const int64_t extent = unused.size() == 1 ? unused.begin()->second : 16;
  const std::string flag = "--shape " + Escaped(symbol) + "=" + std::to_string(extent);
  return unused.size() == 1 ? "did you mean '" + flag + "'?" : "give its extent, for example: " + flag;
}

}  // namespace

void Importer::AddInputs(Scope& scope) {
  const onnx::GraphProto& graph = file_.proto.graph();
  std::vector<const onnx::ValueInfoProto*> infos;
  for (const auto& info : graph.input()) {
    // Before IR version 4 every initializer was listed as an input, too.
    if (scope.names.contains(info.name())) continue;
    TensorTypeOf(info);
    infos.push_back(&info);
  }
  const BatchAxis batch = FindBatch(infos);
  std::map<std::string, int64_t> unused = options_.shapes;
  const auto fixed = [&](const std::string& symbol) -> int64_t {
    unused.erase(symbol);
    const auto found = options_.shapes.find(symbol);
    const int64_t given = found == options_.shapes.end() ? 0 : found->second;
    if (symbol != batch.symbol || options_.batch == 0) return given;
    if (given != 0 && given != options_.batch) {
      throw Error(ErrorCode::kConfig,
                  "--shape " + Escaped(symbol) + "=" + std::to_string(given) + " contradicts --batch " + std::to_string(options_.batch), "",
                  "leave one of them out");
    }
    return options_.batch;
  };
  for (const auto* info : infos) {
    const auto& type = info->type().tensor_type();
    const std::string where = "input '" + Escaped(info->name()) + "'";
    const auto dtype = DTypeFromProto(type.elem_type());
    if (!onnx::TensorProto::DataType_IsValid(type.elem_type()) || type.elem_type() == onnx::TensorProto::UNDEFINED) {
      throw Error(ErrorCode::kType, "a graph input has the element type " + std::to_string(type.elem_type()), where);
    }
    if (!dtype || *dtype == DType::kString) {
      throw Error(ErrorCode::kUnsupported,
                  "a graph input has elements of type " + ProtoTypeName(type.elem_type()) + ", which is not supported", where);
    }
    if (!type.has_shape())
      throw Error(ErrorCode::kShape, "a graph input without a shape", where, "export the model with the shapes of its inputs");
    if (type.shape().dim_size() > kMaxRank) {
      throw Error(ErrorCode::kShape,
                  "a graph input of rank " + std::to_string(type.shape().dim_size()) + ", the limit is " + std::to_string(kMaxRank), where);
    }
    Shape shape;
    int batch_axis = -1;
    for (int axis = 0; axis < type.shape().dim_size(); ++axis) {
      const auto& dim = type.shape().dim(axis);
      if (dim.has_dim_value()) {
        if (dim.dim_value() < 0) throw Error(ErrorCode::kShape, "a graph input has the extent " + std::to_string(dim.dim_value()), where);
        const bool is_batch = axis == 0 && batch.symbol.empty() && dim.dim_value() == batch.declared;
        shape.push_back(is_batch && options_.batch > 0 ? options_.batch : dim.dim_value());
        if (is_batch) batch_axis = 0;
        continue;
      }
      const std::string symbol = SymbolOf(dim, info->name(), axis);
      const int64_t extent = fixed(symbol);
      if (extent <= 0) {
        const bool is_batch = symbol == batch.symbol;
        throw Error(ErrorCode::kConfig, "dimension " + std::to_string(axis) + " ('" + Escaped(symbol) + "') of an input is symbolic", where,
                    is_batch ? "give the batch size, for example: --batch 32" : ExtentHelp(symbol, unused));
      }
      shape.push_back(extent);
      if (symbol == batch.symbol && batch_axis < 0) batch_axis = axis;
    }
    if (const auto elements = shape.checked_elements(); !elements || *elements > file_.options.limits.value_bytes) {
      throw Error(ErrorCode::kLimit,
                  "a graph input of shape " + shape.ToString() + " is past the limit of " +
                      std::to_string(file_.options.limits.value_bytes) + " bytes a value",
                  where, "a smaller --batch or --shape");
    }
    if (batch_axis >= 0) result_.batch = shape[batch_axis];
    const ValueId id = emitter_.graph().AddValue(info->name(), *dtype, shape, Role::kInput);
    emitter_.graph().inputs.push_back(id);
    result_.batch_axes.push_back(batch_axis);
    scope.names[info->name()] = {id, nullptr};
  }
  for (const auto& [symbol, extent] : unused) {
    result_.warnings.push_back("--shape " + Escaped(symbol) + "=" + std::to_string(extent) + ": no input has such a dimension");
  }
}

}  // namespace gradloom
