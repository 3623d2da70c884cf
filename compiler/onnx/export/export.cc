#include "compiler/onnx/export/export.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "compiler/onnx/export/annotate_devices.h"
#include "compiler/onnx/export/inference_form.h"
#include "compiler/onnx/export/separate_elements.h"
#include "compiler/onnx/export/tied_values.h"
#include "compiler/onnx/export/write_algorithm.h"
#include "compiler/onnx/keep_outputs.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/external_data.h"
#include "compiler/onnx/read/tensor_data.h"
#include "compiler/onnx/read/wire_reader.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/base/host_memory.h"

namespace gradloom {
namespace {

// External tensors start at a page boundary, so that readers can map them.
constexpr int64_t kExternalAlignment = 4096;
constexpr char kExternalEnding[] = ".data";

onnx::ModelProto Parse(const ModelInfo& info) {
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream array(info.bytes.data(), static_cast<int>(info.bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetRecursionLimit(3 * ModelLimits().nesting + 32);
  if (info.bytes.empty() || !model.ParseFromCodedStream(&stream) || !model.has_graph()) {
    throw Error(ErrorCode::kPlan, "the plan contains no ONNX model to export", info.name, "compile the model again");
  }
  return model;
}

Shape ShapeOf(const onnx::TensorProto& tensor) {
  Shape shape;
  for (int64_t dim : tensor.dims()) shape.push_back(dim);
  return shape;
}

bool HasElements(const onnx::TensorProto& tensor) {
  return tensor.has_raw_data() || tensor.float_data_size() + tensor.int32_data_size() + tensor.int64_data_size() +
                                          tensor.double_data_size() + tensor.uint64_data_size() + tensor.string_data_size() >
                                      0;
}

// Returns the axis along which the file repeats the value; -1 if there is none, or if the shapes differ otherwise.
int RepeatedAxis(const Shape& value, const Shape& shape) {
  int repeated = -1;
  if (value.rank() != shape.rank()) return -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (value[axis] == shape[axis]) continue;
    if (repeated >= 0 || value[axis] <= 0 || shape[axis] % value[axis] != 0) return -1;
    repeated = axis;
  }
  return repeated;
}

Tensor RepeatedAlong(const Tensor& value, const Shape& shape, int axis) {
  RequireHostMemory(TensorView{value.dtype(), shape, nullptr}.bytes(), "a weight that the file repeats", "", "end other programs");
  Tensor whole(value.dtype(), shape);
  const int64_t block = value.shape().strides()[static_cast<size_t>(axis)] * value.shape()[axis] * DTypeBytes(value.dtype());
  const int64_t times = shape[axis] / value.shape()[axis];
  auto* to = static_cast<std::byte*>(whole.data());
  const auto* from = static_cast<const std::byte*>(value.data());
  for (int64_t i = 0; i * block < whole.bytes(); ++i) std::memcpy(to + i * block, from + i / times * block, static_cast<size_t>(block));
  return whole;
}

// A file beside a model that holds the elements of its large tensors.
class ExternalFile {
 public:
  explicit ExternalFile(const std::string& model_path)
      : location_(model_path.substr(model_path.rfind('/') + 1) + kExternalEnding), file_(model_path + kExternalEnding) {}

  // Writes a tensor's separate elements to the file.
  void Move(const SeparateElements& elements, onnx::TensorProto* tensor) {
    const int64_t index = elements.IndexOf(*tensor), bytes = elements.bytes(index);
    const int64_t padding = (kExternalAlignment - at_ % kExternalAlignment) % kExternalAlignment;
    file_.Write(zeros_.data(), padding);
    elements.Write(index, [this](const void* data, int64_t count) { file_.Write(data, count); });
    const int64_t offset = at_ + padding;
    at_ = offset + bytes;
    RemoveMark(*tensor);
    ClearElements(tensor);
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& value) {
      auto* entry = tensor->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location_);
    add("offset", std::to_string(offset));
    add("length", std::to_string(bytes));
  }

  void Commit() { file_.Commit(); }

 private:
  const std::vector<char> zeros_ = std::vector<char>(kExternalAlignment);
  const std::string location_;
  AtomicFile file_;
  int64_t at_ = 0;
};

// Throws Error(kShape) or Error(kUnsupported) if ValueInFile would do so for a value of this shape. Returns its type in the file.
DType CheckValueInFile(const Shape& value, const Shape& shape, int32_t data_type, const std::string& where) {
  if (value != shape && RepeatedAxis(value, shape) < 0) {
    throw Error(ErrorCode::kShape, "the value has shape " + value.ToString() + ", but the model's tensor has " + shape.ToString(), where);
  }
  const auto dtype = DTypeFromProto(data_type);
  if (dtype) return *dtype;
  throw Error(ErrorCode::kUnsupported, "a trained tensor has elements of type " + ProtoTypeName(data_type) + ", which is not supported",
              where);
}

// Each large value is read from `values`, which is borrowed, when the model is written.
onnx::ModelProto WithValues(onnx::ModelProto model, const ModelInfo& info, const TrainedValues& values, SeparateElements& elements) {
  std::vector<std::pair<TensorSite, Tensor>> sparse;
  ForEachTensor(model, [&](const TensorSite& site) {
    const std::string where = info.name + ", tensor '" + Escaped(site.name) + "'";
    const auto value = values.types.find(site.name);
    const bool given = value != values.types.end() && site.parameter_like;
    // A plan may come from anyone, and so may our markers in it.
    if (site.sparse != nullptr) {
      if (site.sparse->has_values()) RemoveMark(*site.sparse->mutable_values());
      if (site.sparse->has_indices()) RemoveMark(*site.sparse->mutable_indices());
      if (!given) return;
      const Shape shape(std::vector<int64_t>(site.sparse->dims().begin(), site.sparse->dims().end()));
      sparse.emplace_back(site, ValueInFile(values.read(site.name), shape, site.sparse->values().data_type(), where));
      return;
    }
    RemoveMark(*site.dense);
    const Shape shape = ShapeOf(*site.dense);
    const auto count = shape.checked_elements();
    if (!given) {
      if (!HasElements(*site.dense) && count != 0) {
        throw Error(ErrorCode::kPlan, "the value is neither in the plan nor given", where);
      }
      return;
    }
    const int32_t data_type = site.dense->data_type();
    const DType dtype = CheckValueInFile(value->second.shape, shape, data_type, where);
    if (!count || !CheckedMul(*count, DTypeBytes(dtype)))
      throw Error(ErrorCode::kPlan, "the extents " + shape.ToString() + " are too large for any memory", where);
    const auto read = [&values, name = site.name, shape, data_type, where] {
      return ValueInFile(values.read(name), shape, data_type, where);
    };
    elements.Set({dtype, shape, nullptr}, read, site.dense);
  });
  // After the walk, which this would disturb.
  for (const auto& [site, value] : sparse) MakeDense(site, value);
  return model;
}

// Takes all large tensors that are still in their messages, so that serializing them needs no further memory.
void TakeLarge(onnx::ModelProto& model, SeparateElements& elements) {
  ForEachTensor(model, [&](const TensorSite& site) {
    if (site.dense != nullptr) elements.Take(site.dense);
  });
}

void CheckSize(const SerializedModel& model, const std::string& where) {
  if (model.bytes() > ModelLimits().file_bytes) throw Error(ErrorCode::kLimit, "the model needs more than 2 GiB in one file", where);
}

// `given_first`: if there is an external file, the values that were given come first in it.
void MoveToFile(ExternalFile& external, bool given_first, const SeparateElements& elements, onnx::ModelProto& model) {
  std::vector<onnx::TensorProto*> tensors;
  ForEachTensor(model, [&](const TensorSite& site) {
    if (site.dense != nullptr && elements.IndexOf(*site.dense) >= 0) tensors.push_back(site.dense);
  });
  if (given_first) std::ranges::stable_sort(tensors, {}, [&](const onnx::TensorProto* tensor) { return elements.IndexOf(*tensor); });
  for (onnx::TensorProto* tensor : tensors) external.Move(elements, tensor);
}

// `large`: the model is known to be too large for one file.
void Write(onnx::ModelProto model, SeparateElements& elements, const std::string& path, const ExportOptions& options, bool large = false) {
  if (options.placement != nullptr) AnnotateDevices(*options.placement, model);
  TakeLarge(model, elements);
  std::unique_ptr<ExternalFile> external;
  if (large || SerializedModel(model, elements).bytes() > options.inline_bytes) {
    external = std::make_unique<ExternalFile>(path);
    MoveToFile(*external, large, elements, model);
  }
  const SerializedModel serialized(model, elements);
  CheckSize(serialized, path);
  AtomicFile file(path);
  serialized.Write([&](const void* data, int64_t bytes) { file.Write(data, bytes); });
  file.Finish();
  // Both files are on disk by now. New data beside an existing model would change that model, so the data is renamed first: whenever a
  // model is visible, it is complete.
  if (external != nullptr) external->Commit();
  file.Commit();
}

}  // namespace

Tensor ValueInFile(const Tensor& value, const Shape& shape, int32_t data_type, const std::string& where) {
  if (const int axis = RepeatedAxis(value.shape(), shape); axis >= 0)
    return ValueInFile(RepeatedAlong(value, shape, axis), shape, data_type, where);
  const DType dtype = CheckValueInFile(value.shape(), shape, data_type, where);
  return value.dtype() == dtype ? value : Converted(value.view(), dtype);
}

namespace {

// Calls `f` for each floating-point tensor whose elements `info` contains, except sparse ones.
void ForEachKept(const ModelInfo& info, const std::function<void(const TensorSite& site, DType dtype)>& f) {
  onnx::ModelProto model = Parse(info);
  ForEachTensor(model, [&](const TensorSite& site) {
    if (!site.parameter_like || site.dense == nullptr || !HasElements(*site.dense)) return;
    const auto dtype = DTypeFromProto(site.dense->data_type());
    if (dtype && IsFloating(*dtype)) f(site, *dtype);
  });
}

}  // namespace

std::map<std::string, Tensor> KeptTensors(const ModelInfo& info) {
  ExternalData external("", {});
  std::map<std::string, Tensor> kept;
  ForEachKept(info, [&](const TensorSite& site, DType) {
    kept.emplace(site.name, ReadTensor(*site.dense, info.name + ", tensor '" + Escaped(site.name) + "'", external, {}));
    ClearElements(site.dense);
  });
  return kept;
}

std::map<std::string, TensorView> KeptTypes(const ModelInfo& info) {
  std::map<std::string, TensorView> kept;
  ForEachKept(info, [&](const TensorSite& site, DType dtype) {
    kept.emplace(site.name, TensorView{dtype, ShapeOf(*site.dense), nullptr});
  });
  return kept;
}

TrainedValues ValuesOf(const std::map<std::string, Tensor>& values) {
  TrainedValues borrowed{.types = {}, .read = [&values](const std::string& name) { return values.at(name); }};
  for (const auto& [name, value] : values) borrowed.types.emplace(name, TensorView{value.dtype(), value.shape(), nullptr});
  return borrowed;
}

std::map<std::string, Tensor> ReadAll(const TrainedValues& values) {
  int64_t bytes = 0;
  for (const auto& [name, type] : values.types) bytes += type.bytes();
  RequireHostMemory(bytes, "the model's weights", "", "end other programs");
  std::map<std::string, Tensor> all;
  for (const auto& [name, type] : values.types) all.emplace(name, values.read(name));
  return all;
}

void ExportTrained(const ModelInfo& info, const TrainedValues& values, const std::string& path, const ExportOptions& options) {
  const TrainedValues all = WithTied(info, values);
  int64_t bytes = static_cast<int64_t>(info.bytes.size());
  for (const auto& [name, type] : all.types) bytes += type.bytes();
  SeparateElements elements;
  onnx::ModelProto model = WithValues(Parse(info), info, all, elements);
  ToInferenceForm(model);
  if (!options.outputs.empty()) KeepOutputs(options.outputs, model);
  Write(std::move(model), elements, path, options, options.outputs.empty() && bytes > options.inline_bytes);
}

void ExportTrained(const ModelInfo& info, const std::map<std::string, Tensor>& values, const std::string& path,
                   const ExportOptions& options) {
  ExportTrained(info, ValuesOf(values), path, options);
}

std::map<std::string, std::string> ExportWithAlgorithm(const ModelInfo& info, const TrainedValues& values, const Algorithm& algorithm,
                                                       const std::string& path, const ExportOptions& options) {
  SeparateElements elements;
  onnx::ModelProto tied = Parse(info);
  TieInGraph(info, tied);
  onnx::ModelProto model = WithValues(std::move(tied), info, values, elements);
  for (const onnx::TensorProto& tensor : model.graph().initializer()) {
    const auto value = values.types.find(tensor.name());
    if (value == values.types.end() || value->second.shape == ShapeOf(tensor)) continue;
    throw Error(ErrorCode::kUnsupported, "the file holds a copy of one weight for each sample, which an algorithm would train separately",
                info.name + ", tensor '" + Escaped(tensor.name()) + "'", "export the model with a dynamic batch, or without its algorithm");
  }
  std::map<std::string, std::string> renamed = WriteAlgorithm(algorithm, values, info.name, elements, model);
  Write(std::move(model), elements, path, options);
  return renamed;
}

}  // namespace gradloom
