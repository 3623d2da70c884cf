#include "compiler/onnx/batch/find_batch.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>

#include "runtime/base/ascii_lower.h"

namespace gradloom {
namespace {

// Names such as "s0" and "s77", which torch.export gives to unnamed dimensions.
bool IsNumbered(const std::string& symbol) {
  return symbol.size() > 1 && symbol[0] == 's' &&
         std::all_of(symbol.begin() + 1, symbol.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// Whether the dimension is named as the batch.
bool IsNamedBatch(const onnx::TensorShapeProto::Dimension& dim) {
  return dim.has_dim_param() && AsciiLower(dim.dim_param()).starts_with("batch");
}

// Whether an axis after the first has the symbol.
bool HasLater(const onnx::TensorShapeProto& shape, const std::string& symbol) {
  for (int axis = 1; axis < shape.dim_size(); ++axis) {
    if (shape.dim(axis).dim_param() == symbol) return true;
  }
  return false;
}

// Recognizes inputs [steps, samples, ...] and [layers, steps, samples, ...] by the outputs: they begin with a later dimension of the inputs
// and do not have the first. If the first extent is 1, it is more likely the sample, and the later one a length. Returns an empty string if
// there is no such symbol.
std::string LaterOfInputs(const FedInputs& fed, const ImportOptions& options) {
  if (fed.first_of_outputs.size() != 1) return "";
  const std::string& symbol = *fed.first_of_outputs.begin();
  if (symbol.empty()) return "";
  bool later = false;
  for (const auto* info : fed.infos) {
    const auto& shape = info->type().tensor_type().shape();
    if (shape.dim_size() == 0 || options.numbers.contains(info->name())) continue;
    const bool single = shape.dim(0).has_dim_value() && shape.dim(0).dim_value() < 2;
    if (shape.dim(0).dim_param() == symbol) continue;
    if (single || fed.of_outputs.contains(shape.dim(0).dim_param())) return "";
    if (!HasLater(shape, symbol)) return "";
    later = true;
  }
  return later ? symbol : "";
}

// Reads a number of at most nine digits.
std::optional<int64_t> NumberOf(const std::string& digits) {
  if (digits.empty() || digits.size() > 9 || !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  return std::stoll(digits);
}

}  // namespace

std::optional<int64_t> DerivedExtent::From(int64_t value) const {
  const int64_t scaled = value - offset;
  if (scaled <= 0 || scaled % factor != 0) return std::nullopt;
  return scaled / factor;
}

std::optional<DerivedExtent> DerivedFrom(const onnx::TensorShapeProto::Dimension& dim, const FedInputs& fed, const ImportOptions& options) {
  const std::string name = NameOf(dim);
  if (options.shapes.contains(name)) return std::nullopt;
  DerivedExtent derived;
  std::string rest = name;
  for (const auto& [sign, negative] : {std::pair(" + ", false), std::pair(" - ", true)}) {
    const size_t at = rest.find(sign);
    if (at == std::string::npos) continue;
    const std::optional<int64_t> number = NumberOf(rest.substr(at + 3));
    if (!number) return std::nullopt;
    derived.offset = negative ? -*number : *number;
    rest.resize(at);
    break;
  }
  if (const size_t at = rest.find('*'); at != std::string::npos) {
    const std::optional<int64_t> number = NumberOf(rest.substr(0, at));
    if (!number || *number == 0) return std::nullopt;
    derived.factor = *number;
    rest.erase(0, at + 1);
  }
  if (rest == name || !fed.of_inputs.contains(rest)) return std::nullopt;
  derived.symbol = rest;
  return derived;
}

std::string DimensionName(const std::string& input, int axis) { return input + "[" + std::to_string(axis) + "]"; }

std::string NameOf(const onnx::TensorShapeProto::Dimension& dim) {
  const std::string& name = dim.dim_param();
  return name == "?" || name == "None" || name == "-1" ? "" : name;
}

std::string SymbolOf(const onnx::TensorShapeProto::Dimension& dim, const std::string& input, int axis) {
  const std::string name = NameOf(dim);
  return name.empty() ? DimensionName(input, axis) : name;
}

bool IsFixedByOptions(const onnx::ValueInfoProto& info, int axis, const ImportOptions& options) {
  return info.type().tensor_type().shape().dim(axis).has_dim_value() && options.shapes.contains(DimensionName(info.name(), axis));
}

bool IsGeneratedName(const onnx::TensorShapeProto::Dimension& dim, const std::string& input) {
  const std::string symbol = NameOf(dim);
  return !dim.has_dim_value() &&
         (symbol.empty() || IsNumbered(symbol) || symbol.starts_with("unk__") || symbol.starts_with("DynamicDimension.") ||
          symbol.starts_with("p2o.DynamicDimension.") || symbol.starts_with(input + "_dynamic_axes_"));
}

BatchAxis FindBatch(const FedInputs& fed, const ImportOptions& options) {
  const std::vector<const onnx::ValueInfoProto*>& infos = fed.infos;
  const int axis = options.batch_axis;
  std::map<std::string, int> votes;
  BatchAxis batch;
  int most = 0;
  for (const auto* info : infos) {
    const auto& shape = info->type().tensor_type().shape();
    if (shape.dim_size() == 0 || options.numbers.contains(info->name())) continue;
    if (shape.dim(0).has_dim_value()) {
      if (batch.declared == 0 && shape.dim_size() > axis && !IsFixedByOptions(*info, axis, options))
        batch.declared = shape.dim(axis).dim_value();
      continue;
    }
    if (DerivedFrom(shape.dim(0), fed, options)) continue;
    const std::string symbol = SymbolOf(shape.dim(0), info->name(), 0);
    if (++votes[symbol] > most) {
      most = votes[symbol];
      batch.symbol = symbol;
    }
  }
  bool first = false;
  std::string next;
  for (const auto* info : infos) {
    if (options.numbers.contains(info->name())) continue;
    const auto& shape = info->type().tensor_type().shape();
    first = first || (shape.dim_size() > 0 && IsNamedBatch(shape.dim(0)));
    for (int later = 1; next.empty() && later < shape.dim_size(); ++later) {
      if (IsNamedBatch(shape.dim(later))) next = shape.dim(later).dim_param();
    }
  }
  if (!first && !next.empty()) batch.symbol = next;
  if (const std::string later = LaterOfInputs(fed, options); !first && next.empty() && !later.empty()) batch.symbol = later;
  if (!batch.symbol.empty()) batch.declared = options.open_batch;
  return batch;
}

namespace {

constexpr int64_t kMaxBatch = int64_t{1} << 20;
// Each size is a reading of the file, so a file must not be able to ask for many. kMaxNodesRead: of all readings together.
constexpr size_t kMaxSizes = 16, kMaxOtherSizes = 32, kMaxNodesRead = 100'000;

// The constant lists of integers of the main graph, by name.
std::map<std::string, std::vector<int64_t>> IntegerLists(const ModelFile& file) {
  constexpr int64_t kMaxElements = 64;
  std::map<std::string, std::vector<int64_t>> lists;
  for (const auto& [site, tensor] : file.tensors) {
    if (tensor.data.dtype() != DType::kInt64 || tensor.data.elements() > kMaxElements) continue;
    for (int64_t number : tensor.data.as<int64_t>()) lists[tensor.name].push_back(number);
  }
  for (const onnx::NodeProto& node : file.proto.graph().node()) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (node.op_type() != "Constant" || node.output_size() == 0) continue;
      if (attribute.name() == "value_int") lists[node.output(0)] = {attribute.i()};
      if (attribute.name() == "value_ints") lists[node.output(0)] = {attribute.ints().begin(), attribute.ints().end()};
    }
  }
  return lists;
}

}  // namespace

std::vector<int64_t> SizesOfShapes(const ModelFile& file) {
  // A file may hold any number of lists, and factors take time.
  constexpr size_t kMaxNumbers = 4096;
  std::map<int64_t, int64_t> listed, divisors;  // with how often they occur
  for (const auto& [name, list] : IntegerLists(file)) {
    for (const int64_t number : list) {
      if (number >= 2 && number <= kMaxBatch && (listed.size() < kMaxNumbers || listed.contains(number))) ++listed[number];
    }
  }
  for (const auto& [number, count] : listed) {
    for (int64_t part = 2; part * part <= number; ++part) {
      if (number % part == 0) divisors[part] += count, divisors[number / part] += count;
    }
  }
  const size_t most =
      std::clamp<size_t>(kMaxNodesRead / static_cast<size_t>(std::max(file.proto.graph().node_size(), 1)), 2, kMaxOtherSizes);
  std::vector<int64_t> sizes;
  for (const auto* counts : {&listed, &divisors}) {
    std::vector<std::pair<int64_t, int64_t>> ordered;
    for (const auto& [size, count] : *counts) ordered.emplace_back(-count, size);
    std::sort(ordered.begin(), ordered.end());
    for (const auto& [count, size] : ordered) {
      if (sizes.size() < most && std::find(sizes.begin(), sizes.end(), size) == sizes.end()) sizes.push_back(size);
    }
  }
  return sizes;
}

std::vector<int64_t> SizesOfParts(const ModelFile& file) {
  const std::map<std::string, std::vector<int64_t>> constants = IntegerLists(file);
  std::set<int64_t> sizes;
  // A slice may count from the end.
  const auto add = [&](const std::vector<int64_t>& parts) {
    int64_t sum = 0;
    for (const int64_t part : parts) {
      const int64_t size = part == INT64_MIN ? 0 : std::abs(part);
      if (size > kMaxBatch) continue;
      sizes.insert(size);
      sum += size;
    }
    sizes.insert(sum);
  };
  for (const onnx::NodeProto& node : file.proto.graph().node()) {
    const bool splits = node.op_type() == "Split" || node.op_type() == "SplitToSequence", slices = node.op_type() == "Slice";
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (splits && attribute.name() == "split") add({attribute.ints().begin(), attribute.ints().end()});
    }
    for (int i = 1; (splits || slices) && i < std::min(node.input_size(), slices ? 3 : 2); ++i) {
      if (const auto found = constants.find(node.input(i)); found != constants.end()) add(found->second);
    }
  }
  sizes.erase(sizes.begin(), sizes.lower_bound(2));
  std::vector<int64_t> smallest(sizes.begin(), sizes.end());
  smallest.resize(std::min(smallest.size(), kMaxSizes));
  return smallest;
}

int DeclaredBatchAxis(const onnx::ValueInfoProto& info, int64_t declared, const ImportOptions& options) {
  const auto& shape = info.type().tensor_type().shape();
  const auto has = [&](int axis) {
    return !options.numbers.contains(info.name()) && axis < shape.dim_size() && shape.dim(axis).has_dim_value() &&
           shape.dim(axis).dim_value() == declared && !IsFixedByOptions(info, axis, options);
  };
  if (has(options.batch_axis)) return options.batch_axis;
  for (int axis = 0; options.batch_elsewhere && axis < 2; ++axis) {
    if (has(axis)) return axis;
  }
  return -1;
}

}  // namespace gradloom
