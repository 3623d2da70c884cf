#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <new>
#include <set>
#include <span>
#include <utility>

#include "compiler/onnx/check/check_model.h"
#include "compiler/onnx/check/node_order.h"
#include "compiler/onnx/export/inference_form.h"
#include "compiler/onnx/export/separate_elements.h"
#include "compiler/onnx/export/tied_values.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/proto_convert.h"
#include "compiler/onnx/read/content_hash.h"
#include "compiler/onnx/read/external_data.h"
#include "compiler/onnx/read/tensor_data.h"
#include "compiler/onnx/read/wire_reader.h"
#include "compiler/onnx/torch/restore_parameters.h"
#include "compiler/onnx/translate/linear_models.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "onnx/defs/parser.h"
#include "runtime/base/background.h"
#include "runtime/base/checked.h"
#include "runtime/base/file.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/narrow.h"
#include "runtime/base/run_on_threads.h"

namespace gradloom {
namespace {

// Per kind of warning.
constexpr size_t kMaxWarnings = 100;

// For RequireHostMemory: reading a model takes as much memory as its tensors.
constexpr char kTheModel[] = "the model", kMemoryHelp[] = "end other programs";

void ParseMessage(std::string_view bytes, const std::string& where, const ModelLimits& limits, onnx::ModelProto* proto) {
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  // Each nested graph adds three levels of messages: attribute, graph, node.
  stream.SetRecursionLimit(3 * limits.nesting + 32);
  if (!proto->ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    throw Error(ErrorCode::kParse, "this is not a valid ONNX file: a field does not match ONNX's format", where,
                "the file may be damaged: compare its checksum with the source");
  }
}

void ParseText(std::string_view text, const std::string& where, const ModelLimits& limits, onnx::ModelProto* proto) {
  CheckText(text, where, limits);
  const std::string copy(text);
  onnx::OnnxParser parser(copy.c_str());
  onnx::Common::Status status;
  try {
    status = parser.Parse(*proto);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    throw Error(ErrorCode::kParse, "the text is not a valid ONNX model: " + Escaped(e.what(), 1000), where);
  }
  if (!status.IsOK() || !parser.EndOfInput()) {
    throw Error(ErrorCode::kParse,
                status.IsOK() ? "there is text after the end of the model"
                              : "the text is not a valid ONNX model: " + Escaped(status.ErrorMessage(), 1000),
                where);
  }
}

// Uses all cores. The loop has no early exit, which would prevent vectorization.
bool HasNan(std::span<const float> values) {
  constexpr size_t kPart = size_t{1} << 20;
  const size_t parts = (values.size() + kPart - 1) / kPart;
  std::atomic<bool> found{false};
  RunOnThreads(static_cast<int64_t>(parts), NumCores(), [&](int64_t part) {
    const std::span<const float> some = values.subspan(static_cast<size_t>(part) * kPart);
    unsigned nan = 0;
    for (const float value : some.first(std::min(kPart, some.size()))) nan |= static_cast<unsigned>(value != value);
    if (nan != 0) found = true;
  });
  return found;
}

// Throws Error(kResource) if there is no memory for the external data of a model. What a file claims may be wrong, so what it claims in
// vain is first checked like when it is read.
void RequireMemoryForExternal(ModelFile& file, ExternalData& external) {
  int64_t all = 0;
  std::vector<std::pair<std::string, const onnx::TensorProto*>> tensors;
  ForEachTensor(file.proto, [&](const TensorSite& site) {
    std::vector<const onnx::TensorProto*> parts{site.dense};
    if (site.dense == nullptr) parts = {&site.sparse->values(), &site.sparse->indices()};
    for (const onnx::TensorProto* tensor : parts) {
      const int64_t bytes = ClaimedExternalBytes(*tensor);
      if (bytes == 0 || bytes > file.options.limits.value_bytes) continue;  // ReadTensor refuses larger ones
      all = CheckedAdd(all, bytes).value_or(INT64_MAX);
      tensors.emplace_back(site.name, tensor);
    }
  });
  if (HasHostMemory(all)) return;
  for (const auto& [name, tensor] : tensors)
    external.Check(*tensor, Escaped(file.path, 1000) + ", tensor '" + Escaped(name) + "'", ClaimedExternalBytes(*tensor));
  RequireHostMemory(all, kTheModel, Escaped(file.path, 1000), kMemoryHelp);
}

// Moves the elements of every tensor out of the messages. `path`: the file, or empty if the model comes from memory and has only a name.
// `raw`: elements that were never in the messages.
void TakeTensors(ModelFile& file, const std::string& path, std::vector<Tensor> raw, ContentHash& hash) {
  ExternalData external(path, file.options);
  RequireMemoryForExternal(file, external);
  Background hashing;
  size_t with_nan = 0;
  const auto note_nan = [&](const std::string& name, const Tensor& data) {
    if (data.dtype() != DType::kFloat32 || !HasNan(data.as<float>())) return;
    if (++with_nan <= kMaxWarnings) file.warnings.push_back("initial weights contain NaN: '" + Escaped(name) + "'");
  };
  // Keys only describe how to read a tensor; each unknown key is reported once.
  std::set<std::string> unknown_keys;
  const auto note_keys = [&](const std::string& name, const onnx::TensorProto& tensor) {
    for (const auto& entry : tensor.external_data()) {
      const bool known = entry.key() == "location" || entry.key() == "offset" || entry.key() == "length" || entry.key() == "checksum";
      if (known || unknown_keys.size() >= kMaxWarnings || !unknown_keys.insert(entry.key()).second) continue;
      file.warnings.push_back("external data of '" + Escaped(name) + "' has the key '" + Escaped(entry.key()) + "', which is ignored");
    }
  };
  ForEachTensor(file.proto, [&](const TensorSite& site) {
    const std::string where = Escaped(file.path, 1000) + ", tensor '" + Escaped(site.name) + "'";
    const ModelLimits& limits = file.options.limits;
    const auto raw_of = [&](onnx::TensorProto& tensor) {
      const int64_t index = MovedElements(tensor);
      return index < 0 ? nullptr : &raw.at(static_cast<size_t>(index));
    };
    Tensor data = site.dense != nullptr ? ReadTensor(*site.dense, where, external, limits, raw_of(*site.dense))
                                        : ReadSparseTensor(*site.sparse, where, external, limits, raw_of(*site.sparse->mutable_values()),
                                                           raw_of(*site.sparse->mutable_indices()));
    if (site.dense != nullptr && site.dense->data_location() == onnx::TensorProto::EXTERNAL) {
      hashing.StartOrRun(data.bytes() >= kBytesWorthAThread && NumCores() > 1,
                         [&hash, data] { hash.Add(data.data(), static_cast<size_t>(data.bytes())); });
    }
    if (site.parameter_like) note_nan(site.name, data);
    if (site.dense != nullptr) {
      note_keys(site.name, *site.dense);
    } else {
      note_keys(site.name, site.sparse->values());
      note_keys(site.name, site.sparse->indices());
    }
    if (site.dense != nullptr) ClearElements(site.dense);
    file.tensors.emplace(site.dense != nullptr ? static_cast<const void*>(site.dense) : site.sparse,
                         ModelTensor{site.name, std::move(data)});
  });
  hashing.Wait();
  if (with_nan > kMaxWarnings)
    file.warnings.push_back("initial weights contain NaN: " + std::to_string(with_nan - kMaxWarnings) + " more tensors");
}

bool IsTextName(const std::string& path) { return path.ends_with(".onnxtxt") || path.ends_with(".txt"); }

struct Parsed {
  std::shared_ptr<ModelFile> file;
  std::vector<Tensor> raw;  // for TakeTensors
};

Parsed NewFile(const std::string& path, const LoadOptions& options) {
  Parsed parsed{std::make_shared<ModelFile>(), {}};
  parsed.file->path = path;
  parsed.file->options = options;
  return parsed;
}

Parsed ParseBinary(ModelBytes& bytes, Elements elements, const std::string& path, const LoadOptions& options) {
  Parsed parsed = NewFile(path, options);
  const std::string where = Escaped(path, 1000);
  WireModel wire = ReadWire(bytes, elements, where, options.limits);
  ParseMessage(wire.message, where, options.limits, &parsed.file->proto);
  parsed.raw = std::move(wire.elements);
  return parsed;
}

Parsed ParseText(std::string_view text, const std::string& path, const LoadOptions& options) {
  Parsed parsed = NewFile(path, options);
  ParseText(text, Escaped(path, 1000), options.limits, &parsed.file->proto);
  return parsed;
}

// Older exporters write -1 for an unknown extent, which ONNX leaves out.
void OpenUnknownExtents(onnx::GraphProto& graph) {
  for (auto* infos : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()}) {
    for (auto& info : *infos) {
      if (!info.type().has_tensor_type() || !info.type().tensor_type().has_shape()) continue;
      for (auto& dim : *info.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim()) {
        if (dim.has_dim_value() && dim.dim_value() == -1) dim.clear_value();
      }
    }
  }
}

// Nearly all files are sorted, so their order is looked at only after an error.
void Check(ModelFile& file) {
  if (file.proto.has_graph()) OpenUnknownExtents(*file.proto.mutable_graph());
  const auto check = [&] {
    CheckModel(file.proto, Escaped(file.path, 1000), file.options.limits, file.warnings);
    WriteOutLinearModels(file.proto);
  };
  try {
    return check();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kGraph || !SortNodes(file.proto)) throw;
  }
  file.warnings = {"some nodes come before the nodes that produce their inputs, which ONNX forbids: they were sorted"};
  check();
}

std::shared_ptr<const ModelFile> Finished(Parsed parsed, const std::string& path, ContentHash& hash) {
  Check(*parsed.file);
  TakeTensors(*parsed.file, path, std::move(parsed.raw), hash);
  parsed.file->hash = hash.Hex();
  if (parsed.file->options.restores_parameters) parsed.file->restored = RestoreParameters(*parsed.file);
  return std::move(parsed.file);
}

// `path`: as of TakeTensors.
std::shared_ptr<const ModelFile> FinishedText(std::string_view text, const std::string& name, const std::string& path,
                                              const LoadOptions& options) {
  ContentHash hash;
  hash.Add(text);
  return Finished(ParseText(text, name, options), path, hash);
}

}  // namespace

std::shared_ptr<ModelFile> ReadModelProto(const std::string& path, const LoadOptions& options) {
  Parsed parsed;
  if (IsTextName(path)) {
    parsed = ParseText(ReadWholeFile(path, options.limits.file_bytes), path, options);
  } else {
    const InputFile input(path, options.limits.file_bytes);
    ModelBytes bytes(input, nullptr);
    parsed = ParseBinary(bytes, Elements::kSkipped, path, options);
  }
  Check(*parsed.file);
  return std::move(parsed.file);
}

Model Model::Load(const std::string& path, const LoadOptions& options) {
  const CoreLimit limit(options.threads);
  if (IsTextName(path)) return Model(FinishedText(ReadWholeFile(path, options.limits.file_bytes), path, path, options));
  const InputFile input(path, options.limits.file_bytes);
  RequireHostMemory(input.bytes(), kTheModel, Escaped(path, 1000), kMemoryHelp);
  ContentHash hash;
  ModelBytes bytes(input, &hash);
  Parsed parsed = ParseBinary(bytes, Elements::kMoved, path, options);
  return Model(Finished(std::move(parsed), path, hash));
}

Model Model::FromBytes(std::string_view bytes, const std::string& name, const LoadOptions& options) {
  const CoreLimit limit(options.threads);
  RequireHostMemory(static_cast<int64_t>(bytes.size()), kTheModel, Escaped(name, 1000), kMemoryHelp);
  ContentHash hash;
  ModelBytes source(bytes, &hash);
  Parsed parsed = ParseBinary(source, Elements::kMoved, name, options);
  return Model(Finished(std::move(parsed), "", hash));
}

Model Model::FromText(std::string_view text, const std::string& name, const LoadOptions& options) {
  const CoreLimit limit(options.threads);
  return Model(FinishedText(text, name, "", options));
}

Model Model::FromInfo(const ModelInfo& info, const std::map<std::string, Tensor>& values, ModelForm form) {
  ContentHash hash;
  ModelBytes source(info.bytes, &hash);
  Parsed parsed = ParseBinary(source, Elements::kMoved, info.name, {});
  const TrainedValues all = WithTied(info, ValuesOf(values));
  std::vector<std::pair<TensorSite, Tensor>> sparse;
  ForEachTensor(parsed.file->proto, [&](const TensorSite& site) {
    if (!all.types.contains(site.name) || !site.parameter_like) return;
    const auto& dims = site.dense != nullptr ? site.dense->dims() : site.sparse->dims();
    const int32_t type = site.dense != nullptr ? site.dense->data_type() : site.sparse->values().data_type();
    const Tensor value = ValueInFile(all.read(site.name), Shape(std::vector<int64_t>(dims.begin(), dims.end())), type,
                                     Escaped(info.name, 1000) + ", tensor '" + Escaped(site.name) + "'");
    hash.Add(site.name);
    hash.Add(value.data(), static_cast<size_t>(value.bytes()));
    if (site.dense == nullptr) {
      sparse.emplace_back(site, value);
    } else if (IsNarrow(value.dtype())) {
      SetTensor(value.view(), site.dense);  // several elements may share a byte
    } else {
      ClearElements(site.dense);
      MarkMoved(std::ssize(parsed.raw), *site.dense);
      parsed.raw.push_back(value.Reshaped(Shape{value.elements()}));
    }
  });
  for (const auto& [site, value] : sparse) MakeDense(site, value);
  if (form == ModelForm::kInference) ToInferenceForm(parsed.file->proto);
  parsed.file->tied = info.tied;
  return Model(Finished(std::move(parsed), "", hash));
}

const std::string& Model::path() const { return file_->path; }

std::string Model::name() const { return file_->path.substr(file_->path.rfind('/') + 1); }

const std::string& Model::hash() const { return file_->hash; }

std::vector<std::string> Model::input_names() const {
  std::set<std::string> initializers;
  const onnx::GraphProto& graph = file_->proto.graph();
  for (const auto& tensor : graph.initializer()) initializers.insert(tensor.name());
  for (const auto& tensor : graph.sparse_initializer()) initializers.insert(tensor.values().name());
  std::vector<std::string> names;
  for (const auto& input : graph.input()) {
    if (!initializers.contains(input.name())) names.push_back(input.name());
  }
  return names;
}

const std::vector<std::string>& Model::warnings() const { return file_->warnings; }

const std::vector<std::string>& Model::restored() const { return file_->restored; }

namespace {

// A copy that shares the elements of tensors.
std::shared_ptr<ModelFile> CopyOf(const ModelFile& file) {
  auto copy =
      std::make_shared<ModelFile>(ModelFile{file.path, file.options, file.hash, file.proto, {}, file.warnings, file.tied, file.restored});
  std::vector<const ModelTensor*> tensors;
  const auto key = [](const TensorSite& of) { return of.dense != nullptr ? static_cast<const void*>(of.dense) : of.sparse; };
  ForEachTensor(const_cast<onnx::ModelProto&>(file.proto), [&](const TensorSite& site) { tensors.push_back(&file.tensors.at(key(site))); });
  // Both walks visit the same tensors in the same order.
  size_t i = 0;
  ForEachTensor(copy->proto, [&](const TensorSite& site) { copy->tensors.emplace(key(site), *tensors[i++]); });
  return copy;
}

}  // namespace

Model Model::WithParametersRestored() const {
  std::shared_ptr<ModelFile> file = CopyOf(*file_);
  const size_t warnings = file->warnings.size();
  const std::vector<std::string> restored = RestoreParameters(*file);
  if (restored.empty() && file->warnings.size() == warnings) return *this;
  file->restored.insert(file->restored.end(), restored.begin(), restored.end());
  return Model(std::move(file));
}

Model Model::WithTensors(const std::map<std::string, Tensor>& values) const {
  const TrainedValues all = WithTied({.tied = transposed_copies()}, ValuesOf(values));
  std::shared_ptr<ModelFile> file = CopyOf(*file_);
  ContentHash hash;
  hash.Add(file_->hash);
  bool differs = false;
  ForEachTensor(file->proto, [&](const TensorSite& site) {
    if (!all.types.contains(site.name) || !site.parameter_like || site.dense == nullptr) return;
    Tensor& data = file->tensors.at(site.dense).data;
    const std::string where = Escaped(file_->path, 1000) + ", tensor '" + Escaped(site.name) + "'";
    const Tensor value = ValueInFile(all.read(site.name), data.shape(), site.dense->data_type(), where);
    if (std::memcmp(value.data(), data.data(), static_cast<size_t>(data.bytes())) == 0) return;
    differs = true;
    hash.Add(site.name);
    hash.Add(value.data(), static_cast<size_t>(value.bytes()));
    data = value;
  });
  if (!differs) return *this;
  file->hash = hash.Hex();
  return Model(std::move(file));
}

ModelInfo Model::info(const std::vector<std::string>& replaced, const std::vector<TiedTensor>& tied) const {
  std::set<std::string> left_out(replaced.begin(), replaced.end());
  for (const TiedTensor& tensor : tied) left_out.insert(tensor.name);
  onnx::ModelProto copy = file_->proto;
  SeparateElements elements;
  std::vector<TensorSite> sites;
  ForEachTensor(copy, [&](const TensorSite& site) { sites.push_back(site); });
  // Both walks visit the same tensors in the same order.
  size_t i = 0;
  ForEachTensor(const_cast<onnx::ModelProto&>(file_->proto), [&](const TensorSite& original) {
    const TensorSite& site = sites[i++];
    // Sparse tensors are unchanged, because their elements were never moved out.
    if (site.dense == nullptr || left_out.contains(site.name)) return;
    const Tensor& data = file_->tensors.at(original.dense).data;
    elements.Set(
        data.view(), [data] { return data; }, site.dense);
  });
  ModelInfo info;
  info.name = name();
  info.hash = file_->hash;
  info.tied = tied;
  const SerializedModel serialized(copy, elements);
  if (serialized.bytes() > file_->options.limits.file_bytes) {
    throw Error(ErrorCode::kLimit, "the frozen tensors need more than " + std::to_string(file_->options.limits.file_bytes) + " bytes",
                file_->path);
  }
  RequireHostMemory(serialized.bytes(), "the plan's copy of the model's frozen tensors", Escaped(file_->path, 1000), "");
  info.bytes.reserve(static_cast<size_t>(serialized.bytes()));
  serialized.Write([&](const void* data, int64_t bytes) { info.bytes.append(static_cast<const char*>(data), static_cast<size_t>(bytes)); });
  return info;
}

}  // namespace gradloom
