// Graph inputs: fixes their symbolic dimensions and finds their batch axis.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "compiler/onnx/batch/find_batch.h"
#include "compiler/onnx/importer.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/training_info.h"
#include "runtime/base/joined.h"
#include "runtime/base/suggestion.h"

namespace gradloom {
namespace {

std::string WhereOf(const onnx::ValueInfoProto& info) { return "input '" + Escaped(info.name()) + "'"; }

const onnx::TypeProto::Tensor& TensorTypeOf(const onnx::ValueInfoProto& info) {
  const std::string where = WhereOf(info);
  if (!info.has_type() || info.type().value_case() == onnx::TypeProto::VALUE_NOT_SET)
    throw Error(ErrorCode::kType, "the graph input has no type", where);
  if (info.type().value_case() != onnx::TypeProto::kTensorType) {
    throw Error(ErrorCode::kUnsupported, "a graph input must be a tensor", where, "only tensors can be fed");
  }
  return info.type().tensor_type();
}

// Suggests an extent that was given under a name that no input has, which is most likely a mistake.
std::string ExtentHelp(const std::string& symbol, const std::map<std::string, int64_t>& unused) {
  const int64_t extent = unused.size() == 1 ? unused.begin()->second : 16;
  const std::string flag = "--shape " + Escaped(symbol) + "=" + std::to_string(extent);
  return unused.size() == 1 ? DidYouMean(flag) : "give its extent, for example: " + flag;
}

// Whether the input declares the same number for its first two dimensions.
bool MayBePairs(const onnx::ValueInfoProto& info) {
  const auto& shape = info.type().tensor_type().shape();
  return shape.dim_size() > 1 && shape.dim(0).has_dim_value() && shape.dim(1).has_dim_value() &&
         shape.dim(0).dim_value() == shape.dim(1).dim_value();
}

// Returns the options, noting inputs that are fed with their declared extents while others have another batch size: these have no batch.
// The batch axis is then also determined by the others.
ImportOptions WithFixedInputs(const FedInputs& fed, ImportOptions options) {
  const std::vector<const onnx::ValueInfoProto*>& infos = fed.infos;
  if (options.inputs.empty() || !FindBatch(fed, options).symbol.empty()) return options;
  const auto is_batch = [&](int axis) { return axis == options.batch_axis || (options.batch_elsewhere && axis < 2); };
  std::vector<std::pair<std::string, int64_t>> same;  // dimensions that may be the batch, fed as declared
  std::set<int64_t> declared;                         // declared extents of inputs that are fed with others
  for (const auto* info : infos) {
    const auto& shape = info->type().tensor_type().shape();
    const auto known = options.inputs.find(info->name());
    if (known == options.inputs.end() || known->second.rank() != shape.dim_size()) continue;
    for (int axis = 0; axis < shape.dim_size(); ++axis) {
      if (!is_batch(axis) || !shape.dim(axis).has_dim_value()) continue;
      const int64_t number = shape.dim(axis).dim_value();
      if (known->second[axis] == number) {
        same.emplace_back(DimensionName(info->name(), axis), number);
      } else {
        declared.insert(number);
      }
    }
  }
  if (declared.size() != 1) return options;
  // Only inputs with the same extent that would otherwise have the batch.
  const int64_t batch = *declared.begin();
  for (int64_t number = batch, next = 0;; number = next) {
    for (const auto& [place, extent] : same) {
      if (extent == number) options.shapes.emplace(place, extent);
    }
    next = FindBatch(fed, options).declared;
    if (next == batch || next == number || next == 0) return options;
  }
}

// The extents of the symbolic dimensions of the inputs.
class Extents {
 public:
  Extents(const FedInputs& fed, const ImportOptions& options)
      : fed_(fed),
        options_(WithFixedInputs(fed, options)),
        batch_(FindBatch(fed, options_)),
        batch_extent_(options.batch),
        unused_(options.shapes) {
    const std::vector<const onnx::ValueInfoProto*>& infos = fed.infos;
    for (const auto* info : infos) CheckFixed(*info);
    for (const auto* info : infos) {
      const auto known = options.inputs.find(info->name());
      if (known != options.inputs.end()) RecordExtents(*info, known->second);
    }
    for (const auto* info : infos) JoinBatch(*info);
  }

  // Whether this dimension is the batch, as a symbol or as a number that `--batch` replaces.
  bool IsBatch(const onnx::ValueInfoProto& info, int axis) const {
    const auto& dim = info.type().tensor_type().shape().dim(axis);
    if (!dim.has_dim_value()) return Named(SymbolOf(dim, info.name(), axis)) == batch_.symbol;
    return batch_.symbol.empty() && axis == DeclaredBatchAxis(info, batch_.declared, options_);
  }

  // Whether this dimension is the second one of a table over pairs of samples, which has the extent of the batch, too.
  bool IsPaired(const onnx::ValueInfoProto& info, int axis) const {
    return axis == 1 && options_.batch_of_pairs.contains(info.name()) && IsBatch(info, 0);
  }

  // The extent from which that of this dimension is computed, and which the inputs have elsewhere.
  std::optional<DerivedExtent> Derived(const onnx::ValueInfoProto& info, int axis) const {
    return DerivedFrom(info.type().tensor_type().shape().dim(axis), fed_, options_);
  }

  // Whether the dimension is a number that could be the batch size but keeps its value.
  bool IsFixed(const onnx::ValueInfoProto& info, int axis) const { return batch_.symbol.empty() && IsFixedByOptions(info, axis, options_); }

  // Throws Error(kConfig) for a symbol without an extent.
  int64_t Of(const onnx::ValueInfoProto& info, int axis) {
    const auto& dim = info.type().tensor_type().shape().dim(axis);
    if (dim.has_dim_value()) return (IsBatch(info, axis) || IsPaired(info, axis)) && batch_extent_ > 0 ? batch_extent_ : dim.dim_value();
    const std::optional<DerivedExtent> derived = Derived(info, axis);
    const std::string symbol = derived ? derived->symbol : SymbolOf(dim, info.name(), axis);
    const int64_t extent = OfSymbol(Named(symbol));
    if (extent > 0 && derived && derived->Of(extent) < 1) {
      throw Error(
          ErrorCode::kShape,
          "dimension " + std::to_string(axis) + " ('" + Escaped(NameOf(dim)) + "') of an input is " + std::to_string(derived->Of(extent)),
          WhereOf(info));
    }
    if (extent > 0) return derived ? derived->Of(extent) : extent;
    throw Error(ErrorCode::kConfig, "dimension " + std::to_string(axis) + " ('" + Escaped(symbol) + "') of an input is symbolic",
                WhereOf(info),
                Named(symbol) == batch_.symbol ? "give the batch size, for example: --batch 32" : ExtentHelp(symbol, unused_));
  }

  // Returns the symbol of a dimension; all batch dimensions have the same one.
  std::string Named(const std::string& symbol) const { return joined_.contains(symbol) ? batch_.symbol : symbol; }

  // The batch size that the file declares as a number (0: none) or is read with (ImportOptions::open_batch), and the one that it gets.
  int64_t declared_batch() const { return batch_.declared; }
  int64_t batch() const {
    const auto recorded = recorded_.find(batch_.symbol);
    if (!batch_.symbol.empty() && recorded != recorded_.end()) return recorded->second;
    const auto given = options_.shapes.find(batch_.symbol);
    if (!batch_.symbol.empty() && batch_extent_ == 0 && given != options_.shapes.end()) return given->second;
    return batch_extent_ > 0 ? batch_extent_ : batch_.declared;
  }
  // Empty if the batch size is a number, or if there is none.
  const std::string& batch_symbol() const { return batch_.symbol; }

  // --shape options with symbols that no input has.
  const std::map<std::string, int64_t>& unused() const { return unused_; }

 private:
  int64_t OfSymbol(const std::string& symbol) {
    unused_.erase(symbol);
    const auto recorded = recorded_.find(symbol);
    if (recorded != recorded_.end()) return recorded->second;
    const auto given = options_.shapes.find(symbol);
    const int64_t extent = given == options_.shapes.end() ? 0 : given->second;
    if (symbol != batch_.symbol || batch_extent_ == 0) return extent;
    if (extent != 0 && extent != batch_extent_) {
      throw Error(ErrorCode::kConfig,
                  "--shape " + Escaped(symbol) + "=" + std::to_string(extent) + " contradicts --batch " + std::to_string(batch_extent_), "",
                  "remove one of them");
    }
    return batch_extent_;
  }

  // Checks --shape options for dimensions that are numbers in the file.
  void CheckFixed(const onnx::ValueInfoProto& info) {
    for (int axis = 0; axis < info.type().tensor_type().shape().dim_size(); ++axis) {
      if (!IsFixedByOptions(info, axis, options_)) continue;
      const std::string place = DimensionName(info.name(), axis);
      const int64_t declared = info.type().tensor_type().shape().dim(axis).dim_value(), given = options_.shapes.at(place);
      unused_.erase(place);
      if (given == declared) continue;
      throw Error(
          ErrorCode::kConfig,
          "--shape " + Escaped(place) + "=" + std::to_string(given) + ": the file fixes this dimension to " + std::to_string(declared),
          WhereOf(info),
          "--batch sets the batch size; for any other dimension, export the model with it dynamic (dynamic_shapes, dynamic_axes)");
    }
  }

  // A first dimension with a generated name is also the batch, unless it is known to have another extent.
  void JoinBatch(const onnx::ValueInfoProto& info) {
    const auto& shape = info.type().tensor_type().shape();
    if (batch_.symbol.empty() || shape.dim_size() == 0 || !IsGeneratedName(shape.dim(0), info.name())) return;
    const std::string symbol = SymbolOf(shape.dim(0), info.name(), 0);
    if (symbol == batch_.symbol || options_.shapes.contains(symbol)) return;
    const auto recorded = recorded_.find(symbol), batch = recorded_.find(batch_.symbol);
    const int64_t extent = batch != recorded_.end() ? batch->second : batch_extent_;
    if (recorded == recorded_.end() || recorded->second == extent) joined_.insert(symbol);
  }

  void RecordExtents(const onnx::ValueInfoProto& info, const Shape& known) {
    const auto& declared = info.type().tensor_type().shape();
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::kShape, "the input is given with shape " + known.ToString() + ", but " + why, WhereOf(info));
    };
    if (!info.type().tensor_type().has_shape()) return;
    if (declared.dim_size() != known.rank()) refuse("the file declares rank " + std::to_string(declared.dim_size()));
    for (int axis = 0; axis < known.rank(); ++axis) {
      const auto& dim = declared.dim(axis);
      if (!dim.has_dim_value()) {
        const std::optional<DerivedExtent> derived = Derived(info, axis);
        const std::string symbol = derived ? derived->symbol : SymbolOf(dim, info.name(), axis);
        const std::optional<int64_t> extent = derived ? derived->From(known[axis]) : known[axis];
        if (!extent) refuse("dimension " + std::to_string(axis) + " is '" + Escaped(NameOf(dim)) + "'");
        const auto [at, fresh] = recorded_.emplace(symbol, *extent);
        if (!fresh && at->second != *extent) refuse("'" + Escaped(symbol) + "' is " + std::to_string(at->second) + " elsewhere");
      } else if (IsBatch(info, axis) && (!recorded_batch_ || batch_extent_ == known[axis])) {
        batch_extent_ = known[axis];
        recorded_batch_ = true;
      } else if (dim.dim_value() != known[axis] && !(axis == 1 && known[0] == known[1] && IsBatch(info, 0) && MayBePairs(info))) {
        refuse("dimension " + std::to_string(axis) + " is " + std::to_string(dim.dim_value()) + " in the file");
      }
    }
  }

  const FedInputs fed_;
  const ImportOptions options_;
  const BatchAxis batch_;
  int64_t batch_extent_;
  bool recorded_batch_ = false;
  std::map<std::string, int64_t> recorded_;
  std::set<std::string> joined_;  // symbols of other inputs that are the batch too
  std::map<std::string, int64_t> unused_;
};

DType InputDType(const onnx::ValueInfoProto& info) {
  const int32_t type = info.type().tensor_type().elem_type();
  if (!onnx::TensorProto::DataType_IsValid(type) || type == onnx::TensorProto::UNDEFINED) {
    throw Error(ErrorCode::kType, "a graph input has the invalid element type " + std::to_string(type), WhereOf(info));
  }
  const auto dtype = DTypeFromProto(type);
  if (!dtype || *dtype == DType::kString) {
    throw Error(ErrorCode::kUnsupported, "a graph input has elements of type " + ProtoTypeName(type) + ", which is not supported",
                WhereOf(info));
  }
  return *dtype;
}

void CheckDeclaredShape(const onnx::ValueInfoProto& info) {
  const auto& type = info.type().tensor_type();
  if (!type.has_shape())
    throw Error(ErrorCode::kShape, "the graph input has no shape", WhereOf(info), "export the model with the shapes of its inputs");
  if (type.shape().dim_size() > kMaxRank) {
    throw Error(ErrorCode::kShape,
                "a graph input has rank " + std::to_string(type.shape().dim_size()) + "; the limit is " + std::to_string(kMaxRank),
                WhereOf(info));
  }
  for (const auto& dim : type.shape().dim()) {
    if (dim.has_dim_value() && dim.dim_value() < 0)
      throw Error(ErrorCode::kShape, "a graph input has the negative extent " + std::to_string(dim.dim_value()), WhereOf(info));
  }
}

const Tensor& Declared(const onnx::ValueInfoProto& info, const Tensor& value, DType dtype, const Shape& shape) {
  if (value.dtype() == dtype && value.shape() == shape) return value;
  throw Error(value.dtype() == dtype ? ErrorCode::kShape : ErrorCode::kType,
              "the input is given as " + ValueType{value.dtype(), value.shape()}.ToString() + ", but the file declares " +
                  ValueType{dtype, shape}.ToString(),
              WhereOf(info));
}

// The tensor with these elements. Throws Error(kConfig) for another number of them.
Tensor GivenTensor(const onnx::ValueInfoProto& info, const std::vector<double>& numbers, DType dtype, const Shape& shape) {
  if (numbers.size() != 1 && static_cast<int64_t>(numbers.size()) != shape.elements()) {
    throw Error(ErrorCode::kConfig,
                "the input is given as " + std::to_string(numbers.size()) + " numbers, but has the shape " + shape.ToString(),
                WhereOf(info), "--value " + Escaped(info.name()) + "=NUMBER fills it, a list has each element");
  }
  const std::vector<double> elements =
      numbers.size() == 1 ? std::vector<double>(static_cast<size_t>(shape.elements()), numbers[0]) : numbers;
  // Integers above this are not exact as double.
  constexpr double kMaxInteger = static_cast<double>(int64_t{1} << 53);
  const auto exact = [&](double number, double converted) {
    if (IsFloating(dtype)) return std::isfinite(number) == std::isfinite(converted);
    return number == converted && std::abs(number) <= kMaxInteger;
  };
  Tensor made = Converted(Tensor::From<double>(elements, shape).view(), dtype);
  for (size_t i = 0; i < elements.size(); ++i) {
    if (exact(elements[i], ElementAsDouble(made.view(), static_cast<int64_t>(i)))) continue;
    throw Error(ErrorCode::kConfig, "the input is " + std::string(DTypeName(dtype)) + ", which has no " + Attributes::ToString(elements[i]),
                WhereOf(info), "--value " + Escaped(info.name()) + "=NUMBERS of that type");
  }
  return made;
}

// Whether the input is a sequence or an optional, which have no shape and must be known.
bool IsKnownNonTensor(const onnx::ValueInfoProto& info, const ImportOptions& options) {
  return info.type().value_case() != onnx::TypeProto::kTensorType && options.values.contains(info.name());
}

// Before IR version 4, every initializer was also listed as an input.
FedInputs InputsOf(const ModelFile& file, const ImportOptions& options) {
  const std::vector<const onnx::GraphProto*> graphs = GraphsOf(file, options);
  std::set<std::string> initializers;
  for (const onnx::GraphProto* graph : graphs) {
    for (const auto& tensor : graph->initializer()) initializers.insert(tensor.name());
    for (const auto& tensor : graph->sparse_initializer()) initializers.insert(tensor.values().name());
  }
  FedInputs fed;
  for (const onnx::GraphProto* graph : graphs) {
    for (const auto& info : graph->input()) {
      if (initializers.contains(info.name()) || IsKnownNonTensor(info, options)) continue;
      TensorTypeOf(info);
      fed.infos.push_back(&info);
      for (const auto& dim : info.type().tensor_type().shape().dim()) {
        if (!NameOf(dim).empty()) fed.of_inputs.insert(NameOf(dim));
      }
    }
    for (const auto& info : graph->output()) {
      const auto& shape = info.type().tensor_type().shape();
      if (shape.dim_size() > 0) fed.first_of_outputs.insert(NameOf(shape.dim(0)));
      for (const auto& dim : shape.dim()) {
        if (!NameOf(dim).empty()) fed.of_outputs.insert(NameOf(dim));
      }
    }
  }
  return fed;
}

}  // namespace

BatchNumbers BatchNumbersOf(const ModelFile& file, const ImportOptions& options) {
  const Extents extents(InputsOf(file, options), options);
  if (extents.declared_batch() == 0) return {};
  return {extents.declared_batch(), extents.batch(), extents.batch_symbol()};
}

ImportOptions OpenExtent::At(ImportOptions options, int64_t other) const {
  (is_batch ? options.batch : options.shapes[symbol]) = other;
  return options;
}

std::vector<OpenExtent> OpenExtents(const Model& model, const ImportOptions& options) {
  std::vector<OpenExtent> open;
  const FedInputs fed = InputsOf(model.file(), options);
  Extents extents(fed, options);
  for (const auto* info : fed.infos) {
    for (int axis = 0; axis < info->type().tensor_type().shape().dim_size(); ++axis) {
      const auto& dim = info->type().tensor_type().shape().dim(axis);
      const bool is_batch = extents.IsBatch(*info, axis), fixed = extents.IsFixed(*info, axis);
      if (extents.Derived(*info, axis) || (dim.has_dim_value() && !is_batch && !fixed)) continue;
      const std::string symbol = is_batch && dim.has_dim_value() ? "" : extents.Named(SymbolOf(dim, info->name(), axis));
      const auto same = [&](const OpenExtent& other) { return other.symbol == symbol; };
      if (std::any_of(open.begin(), open.end(), same)) continue;
      open.push_back({symbol, info->name(), axis, is_batch, fixed, extents.Of(*info, axis)});
    }
  }
  return open;
}

ImportOptions WithBatch(const ModelFile& file, ImportOptions options, int64_t declared, int64_t batch) {
  const FedInputs fed = InputsOf(file, options);
  const Extents extents(fed, options);
  options = WithFixedInputs(fed, std::move(options));
  options.batch = batch;
  options.shapes.erase(extents.batch_symbol());
  for (const auto* info : fed.infos) {
    const auto& shape = info->type().tensor_type().shape();
    const auto known = options.inputs.find(info->name());
    if (known == options.inputs.end() || known->second.rank() == 0 || shape.dim_size() == 0) continue;
    for (int open = 0; open < std::min(shape.dim_size(), known->second.rank()); ++open) {
      const std::optional<DerivedExtent> derived = extents.Derived(*info, open);
      if (derived && extents.Named(derived->symbol) == extents.batch_symbol()) known->second[open] = derived->Of(batch);
      if (!shape.dim(open).has_dim_value() && extents.IsBatch(*info, open)) known->second[open] = batch;
    }
    if (!extents.batch_symbol().empty()) continue;
    const int axis = DeclaredBatchAxis(*info, declared, options);
    if (axis < 0 || axis >= known->second.rank()) continue;
    if (axis == 0 && options.batch_of_pairs.contains(info->name()) && known->second.rank() > 1) known->second[1] = batch;
    known->second[axis] = batch;
  }
  return options;
}

ImportOptions WithSamplesFirst(const ModelFile& file, ImportOptions options, int64_t batch) {
  for (const auto* info : InputsOf(file, options).infos) {
    const auto& shape = info->type().tensor_type().shape();
    if (shape.dim_size() > 0 && shape.dim(0).has_dim_value() && shape.dim(0).dim_value() != batch)
      options.shapes.emplace(DimensionName(info->name(), 0), shape.dim(0).dim_value());
  }
  return options;
}

std::optional<ImportOptions> WithStepsFirst(const ModelFile& file, ImportOptions options) {
  bool steps = false;
  for (const auto* info : InputsOf(file, options).infos) {
    const auto& shape = info->type().tensor_type().shape();
    if (shape.dim_size() < 2) continue;
    if (shape.dim_size() == 2 && IsFloating(InputDType(*info))) return std::nullopt;
    steps = steps || (shape.dim(0).has_dim_value() && shape.dim(0).dim_value() > 1);
  }
  if (!steps) return std::nullopt;
  options.batch_axis = 1;
  options.batch_elsewhere = true;
  return options;
}

ImportOptions WithDeclaredShapes(const ModelFile& file, ImportOptions options) {
  for (const auto* info : InputsOf(file, options).infos) {
    const auto& shape = info->type().tensor_type().shape();
    for (int axis = 0; axis < shape.dim_size(); ++axis) {
      if (shape.dim(axis).has_dim_value()) options.shapes.emplace(DimensionName(info->name(), axis), shape.dim(axis).dim_value());
    }
  }
  return options;
}

std::vector<std::string> PossiblePairs(const ModelFile& file, const ImportOptions& options, int64_t declared) {
  const FedInputs fed = InputsOf(file, options);
  std::vector<std::string> names;
  for (const auto* info : fed.infos) {
    if (MayBePairs(*info) && DeclaredBatchAxis(*info, declared, options) == 0) names.push_back(info->name());
  }
  return names;
}

Binding Importer::BindingOf(const std::string& name, const KnownInput& known) {
  if (!known.sequence) return {known.tensor.defined() ? emitter().AddConstant(name, known.tensor) : kNoValue, nullptr};
  std::vector<ValueId> elements;
  for (const Tensor& tensor : *known.sequence)
    elements.push_back(emitter().AddConstant(name + "/" + std::to_string(elements.size()), tensor));
  return {kNoValue, std::make_shared<const std::vector<ValueId>>(std::move(elements))};
}

void Importer::AddInputs(Scope& scope) {
  for (const onnx::GraphProto* graph : GraphsOf(file_, options_)) {
    for (const auto& info : graph->input()) {
      if (IsKnownNonTensor(info, options_)) scope.names[info.name()] = BindingOf(info.name(), options_.values.at(info.name()));
    }
  }
  const FedInputs fed = InputsOf(file_, options_);
  Extents extents(fed, options_);
  for (const auto& [name, numbers] : options_.numbers) {
    if (std::any_of(fed.infos.begin(), fed.infos.end(), [&](const auto* info) { return info->name() == name; })) continue;
    const std::string inputs = JoinedTexts(fed.infos, [](const auto* info) { return Escaped(info->name()); });
    throw Error(ErrorCode::kConfig, "the model has no input '" + Escaped(name) + "'", "--value", "the inputs are: " + inputs);
  }
  for (const auto* info : fed.infos) {
    const DType dtype = InputDType(*info);
    CheckDeclaredShape(*info);
    Shape shape;
    int batch_axis = -1;
    for (int axis = 0; axis < info->type().tensor_type().shape().dim_size(); ++axis) {
      shape.push_back(extents.Of(*info, axis));
      if (batch_axis < 0 && extents.IsBatch(*info, axis)) batch_axis = axis;
    }
    if (const auto elements = shape.checked_elements(); !elements || *elements > file_.options.limits.value_bytes) {
      throw Error(ErrorCode::kLimit,
                  "a graph input of shape " + shape.ToString() + " exceeds the limit of " +
                      std::to_string(file_.options.limits.value_bytes) + " bytes per value",
                  WhereOf(*info), "use a smaller --batch or --shape");
    }
    if (const auto known = options_.values.find(info->name()); known != options_.values.end()) {
      scope.names[info->name()] = {emitter().AddConstant(info->name(), Declared(*info, known->second.tensor, dtype, shape)), nullptr};
      continue;
    }
    if (const auto given = options_.numbers.find(info->name()); given != options_.numbers.end()) {
      if (batch_axis >= 0 && given->second.size() > 1) {
        throw Error(ErrorCode::kConfig, "the input has a row for each sample, so it cannot have the same numbers in every step",
                    WhereOf(*info), "feed it, or give one number that fills it");
      }
      scope.names[info->name()] = {emitter().AddConstant(info->name(), GivenTensor(*info, given->second, dtype, shape)), nullptr};
      continue;
    }
    if (batch_axis >= 0) result_.batch = shape[batch_axis];
    const ValueId id = emitter().graph().AddValue(info->name(), dtype, shape, Role::kInput);
    emitter().graph().inputs.push_back(id);
    result_.batch_axes.push_back(batch_axis);
    scope.names[info->name()] = {id, nullptr};
  }
  AddCounts(scope);
  for (const auto& [symbol, extent] : extents.unused()) {
    result_.warnings.push_back("--shape " + Escaped(symbol) + "=" + std::to_string(extent) + ": no input has such a dimension");
  }
}

// Adds one scalar for all axes with the same extent.
void Importer::AddCounts(const Scope& scope) {
  if (counted_.empty()) return;
  const std::vector<const onnx::ValueInfoProto*> infos = InputsOf(file_, options_).infos;
  std::map<std::string, int64_t> of_symbol;
  for (const auto* info : infos) {
    const auto found = counted_.find(info->name());
    if (found == counted_.end()) continue;
    for (const auto& [axis, key] : found->second) {
      const auto& dim = info->type().tensor_type().shape().dim(axis);
      if (!dim.has_dim_value()) of_symbol.emplace(SymbolOf(dim, info->name(), axis), key);
    }
  }
  Graph& graph = emitter().graph();
  std::map<int64_t, ValueId> scalars;
  for (const auto* info : infos) {
    const auto found = counted_.find(info->name());
    const ValueId input = scope.names.at(info->name()).tensor;
    for (int axis = 0; axis < graph.value(input).shape.rank(); ++axis) {
      const auto& dim = info->type().tensor_type().shape().dim(axis);
      std::optional<int64_t> key;
      if (found != counted_.end() && found->second.contains(axis)) {
        key = found->second.at(axis);
      } else if (const auto of = of_symbol.find(SymbolOf(dim, info->name(), axis)); !dim.has_dim_value() && of != of_symbol.end()) {
        key = of->second;
      }
      if (!key) continue;
      const auto [scalar, fresh] = scalars.try_emplace(*key, kNoValue);
      if (fresh) {
        scalar->second = graph.AddValue("count/" + std::to_string(*key), DType::kInt64, {}, Role::kInput);
        graph.inputs.push_back(scalar->second);
        result_.batch_axes.push_back(-1);
        counts_.emplace(scalar->second, *key);
      }
      emitter().extents().Declare(input, axis, emitter().extents().Counted(scalar->second, graph.value(input).shape[axis]));
    }
  }
}

}  // namespace gradloom
