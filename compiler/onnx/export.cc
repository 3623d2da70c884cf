#include "compiler/onnx/export.h"

#include <vector>

#include "compiler/onnx/inference_form.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

// External tensors start at a page, so that others can map them.
constexpr int64_t kExternalAlignment = 4096;
// Smaller ones stay in the model file.
constexpr int64_t kLeastExternalBytes = 1024;

onnx::ModelProto Parse(const ModelInfo& info) {
  onnx::ModelProto model;
  google::protobuf::io::ArrayInputStream array(info.bytes.data(), static_cast<int>(info.bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetRecursionLimit(3 * ModelLimits().nesting + 32);
  if (info.bytes.empty() || !model.ParseFromCodedStream(&stream) || !model.has_graph()) {
    throw Error(ErrorCode::kPlan, "the plan holds no ONNX model to export", info.name, "compile the model again");
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

onnx::ModelProto WithValues(const ModelInfo& info, const std::map<std::string, Tensor>& values) {
  onnx::ModelProto model = Parse(info);
  ForEachTensor(model, [&](const TensorSite& site) {
    if (site.dense == nullptr) return;
    const std::string where = info.name + ", tensor '" + Escaped(site.name) + "'";
    const auto found = values.find(site.name);
    if (found == values.end() || !site.parameter_like) {
      const auto elements = ShapeOf(*site.dense).checked_elements();
      if (!HasElements(*site.dense) && elements != 0) {
        throw Error(ErrorCode::kPlan, "the value is neither in the plan nor given", where);
      }
      return;
    }
    const Tensor& value = found->second;
    if (value.shape() != ShapeOf(*site.dense)) {
      throw Error(ErrorCode::kShape,
                  "the value has the shape " + value.shape().ToString() + ", the model's tensor " + ShapeOf(*site.dense).ToString(), where);
    }
    const auto dtype = DTypeFromProto(site.dense->data_type());
    if (!dtype)
      throw Error(ErrorCode::kUnsupported, "a trained tensor with elements of type " + ProtoTypeName(site.dense->data_type()), where);
    SetTensor(value.dtype() == *dtype ? value.view() : Converted(value.view(), *dtype).view(), site.dense);
  });
  ToInferenceForm(model);
  return model;
}

std::string Serialized(const onnx::ModelProto& model, const std::string& where) {
  if (model.ByteSizeLong() > static_cast<size_t>(ModelLimits().file_bytes)) {
    throw Error(ErrorCode::kLimit, "the model takes more than 2 GiB in one file", where);
  }
  std::string bytes;
  model.SerializeToString(&bytes);
  return bytes;
}

// Moves the elements of large tensors to a file.
void WriteExternal(onnx::ModelProto& model, const std::string& path) {
  const std::string data_path = path + ".data";
  const std::string location = data_path.substr(data_path.rfind('/') + 1);
  AtomicFile file(data_path);
  int64_t at = 0;
  const std::vector<char> zeros(kExternalAlignment);
  ForEachTensor(model, [&](const TensorSite& site) {
    if (site.dense == nullptr || !site.dense->has_raw_data()) return;
    const std::string& raw = site.dense->raw_data();
    const int64_t bytes = static_cast<int64_t>(raw.size());
    if (bytes < kLeastExternalBytes) return;
    const int64_t padding = (kExternalAlignment - at % kExternalAlignment) % kExternalAlignment;
    file.Write(zeros.data(), padding);
    file.Write(raw.data(), bytes);
    const int64_t offset = at + padding;
    at = offset + bytes;
    ClearElements(site.dense);
    site.dense->set_data_location(onnx::TensorProto::EXTERNAL);
    const auto add = [&](const char* key, const std::string& value) {
      auto* entry = site.dense->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", location);
    add("offset", std::to_string(offset));
    add("length", std::to_string(bytes));
  });
  file.Commit();
}

}  // namespace

std::string ExportedBytes(const ModelInfo& info, const std::map<std::string, Tensor>& values) {
  return Serialized(WithValues(info, values), info.name);
}

void ExportTrained(const ModelInfo& info, const std::map<std::string, Tensor>& values, const std::string& path,
                   const ExportOptions& options) {
  onnx::ModelProto model = WithValues(info, values);
  // The data first: a model that is there is complete.
  if (model.ByteSizeLong() > static_cast<size_t>(options.inline_bytes)) WriteExternal(model, path);
  WriteFileAtomically(path, Serialized(model, path));
}

}  // namespace gradloom
