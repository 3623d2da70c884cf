#include "compiler/onnx/export/export.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "compiler/onnx/export/annotate_devices.h"
#include "compiler/onnx/export/inference_form.h"
#include "compiler/onnx/export/write_algorithm.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/external_data.h"
#include "compiler/onnx/read/tensor_data.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

// External tensors start at a page boundary, so that readers can map them.
constexpr int64_t kExternalAlignment = 4096;
// Smaller tensors stay in the model file.
constexpr int64_t kMinExternalBytes = 1024;
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

  // Moves the elements to the file, unless they are few or already stored elsewhere.
  void Move(onnx::TensorProto* tensor) {
    const std::string& raw = tensor->raw_data();
    const int64_t bytes = static_cast<int64_t>(raw.size());
    if (bytes < kMinExternalBytes) return;
    const int64_t padding = (kExternalAlignment - at_ % kExternalAlignment) % kExternalAlignment;
    file_.Write(zeros_.data(), padding);
    file_.Write(raw.data(), bytes);
    const int64_t offset = at_ + padding;
    at_ = offset + bytes;
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

// `external`: receives large values as they are read; null: the model holds all values.
onnx::ModelProto WithValues(const ModelInfo& info, const TrainedValues& values, ExternalFile* external = nullptr) {
  onnx::ModelProto model = Parse(info);
  std::vector<std::pair<TensorSite, Tensor>> sparse;
  ForEachTensor(model, [&](const TensorSite& site) {
    const std::string where = info.name + ", tensor '" + Escaped(site.name) + "'";
    const bool given = values.types.contains(site.name) && site.parameter_like;
    if (site.sparse != nullptr) {
      if (!given) return;
      const Shape shape(std::vector<int64_t>(site.sparse->dims().begin(), site.sparse->dims().end()));
      sparse.emplace_back(site, ValueInFile(values.read(site.name), shape, site.sparse->values().data_type(), where));
      return;
    }
    if (!given) {
      const auto elements = ShapeOf(*site.dense).checked_elements();
      if (!HasElements(*site.dense) && elements != 0) {
        throw Error(ErrorCode::kPlan, "the value is neither in the plan nor given", where);
      }
      return;
    }
    SetTensor(ValueInFile(values.read(site.name), ShapeOf(*site.dense), site.dense->data_type(), where).view(), site.dense);
    if (external != nullptr) external->Move(site.dense);
  });
  // After the walk, which this would disturb.
  for (const auto& [site, value] : sparse) MakeDense(site, value);
  return model;
}

std::string Serialized(const onnx::ModelProto& model, const std::string& where) {
  if (model.ByteSizeLong() > static_cast<size_t>(ModelLimits().file_bytes)) {
    throw Error(ErrorCode::kLimit, "the model needs more than 2 GiB in one file", where);
  }
  std::string bytes;
  model.SerializeToString(&bytes);
  return bytes;
}

void Write(onnx::ModelProto model, const std::string& path, const ExportOptions& options,
           std::unique_ptr<ExternalFile> external = nullptr) {
  if (options.placement != nullptr) AnnotateDevices(*options.placement, model);
  if (external == nullptr && model.ByteSizeLong() > static_cast<size_t>(options.inline_bytes))
    external = std::make_unique<ExternalFile>(path);
  if (external != nullptr) {
    ForEachTensor(model, [&](const TensorSite& site) {
      if (site.dense != nullptr && site.dense->has_raw_data()) external->Move(site.dense);
    });
  }
  AtomicFile file(path);
  file.Write(Serialized(model, path));
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
  if (value.shape() != shape) {
    throw Error(ErrorCode::kShape, "the value has shape " + value.shape().ToString() + ", but the model's tensor has " + shape.ToString(),
                where);
  }
  const auto dtype = DTypeFromProto(data_type);
  if (!dtype)
    throw Error(ErrorCode::kUnsupported, "a trained tensor has elements of type " + ProtoTypeName(data_type) + ", which is not supported",
                where);
  return value.dtype() == *dtype ? value : Converted(value.view(), *dtype);
}

std::map<std::string, Tensor> KeptTensors(const ModelInfo& info) {
  onnx::ModelProto model = Parse(info);
  ExternalData external("", {});
  std::map<std::string, Tensor> kept;
  ForEachTensor(model, [&](const TensorSite& site) {
    if (!site.parameter_like || site.dense == nullptr || !HasElements(*site.dense)) return;
    const auto dtype = DTypeFromProto(site.dense->data_type());
    if (!dtype || !IsFloating(*dtype)) return;
    kept.emplace(site.name, ReadTensor(*site.dense, info.name + ", tensor '" + Escaped(site.name) + "'", external, {}));
  });
  return kept;
}

TrainedValues ValuesOf(const std::map<std::string, Tensor>& values) {
  TrainedValues borrowed{.types = {}, .read = [&values](const std::string& name) { return values.at(name); }};
  for (const auto& [name, value] : values) borrowed.types.emplace(name, TensorView{value.dtype(), value.shape(), nullptr});
  return borrowed;
}

std::string ExportedBytes(const ModelInfo& info, const std::map<std::string, Tensor>& values, ModelForm form) {
  onnx::ModelProto model = WithValues(info, ValuesOf(values));
  if (form == ModelForm::kInference) ToInferenceForm(model);
  return Serialized(model, info.name);
}

void ExportTrained(const ModelInfo& info, const TrainedValues& values, const std::string& path, const ExportOptions& options) {
  int64_t bytes = static_cast<int64_t>(info.bytes.size());
  for (const auto& [name, type] : values.types) bytes += type.bytes();
  // A model that is too large for one file is never in memory as a whole.
  auto external = bytes > options.inline_bytes ? std::make_unique<ExternalFile>(path) : nullptr;
  onnx::ModelProto model = WithValues(info, values, external.get());
  ToInferenceForm(model);
  Write(std::move(model), path, options, std::move(external));
}

void ExportTrained(const ModelInfo& info, const std::map<std::string, Tensor>& values, const std::string& path,
                   const ExportOptions& options) {
  ExportTrained(info, ValuesOf(values), path, options);
}

std::map<std::string, std::string> ExportWithAlgorithm(const ModelInfo& info, const std::map<std::string, Tensor>& values,
                                                       const Algorithm& algorithm, const std::string& path, const ExportOptions& options) {
  onnx::ModelProto model = WithValues(info, ValuesOf(values));
  for (const onnx::TensorProto& tensor : model.graph().initializer()) {
    const auto value = values.find(tensor.name());
    if (value == values.end() || value->second.shape() == ShapeOf(tensor)) continue;
    throw Error(ErrorCode::kUnsupported, "the file holds a copy of one weight for each sample, which an algorithm would train separately",
                info.name + ", tensor '" + Escaped(tensor.name()) + "'", "export the model with a dynamic batch, or without its algorithm");
  }
  std::map<std::string, std::string> renamed = WriteAlgorithm(algorithm, values, info.name, model);
  Write(std::move(model), path, options);
  return renamed;
}

}  // namespace gradloom
