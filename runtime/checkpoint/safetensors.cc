#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/safetensors_header.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read and written as they lie in memory");

// The limit of the reference implementation.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

Error Damaged(const std::string& why, const std::string& where) {
  return {ErrorCode::kCheckpoint, why, where, "the file is damaged or unfinished, or not a safetensors file"};
}

// The ranges must tile the data: in sorted order, each begins where the previous one ends.
void CheckTiling(const std::map<std::string, SafetensorsFile::Entry>& entries, int64_t data_bytes, const std::string& where) {
  std::vector<std::tuple<int64_t, int64_t, const std::string*>> ranges;
  for (const auto& [name, entry] : entries) ranges.emplace_back(entry.begin, entry.end, &name);
  std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
    return std::pair(std::get<0>(a), std::get<1>(a)) < std::pair(std::get<0>(b), std::get<1>(b));
  });
  int64_t at = 0;
  for (const auto& [begin, end, name] : ranges) {
    const std::string place = where + " tensor '" + Escaped(*name) + "'";
    if (begin < at) throw Damaged("its bytes overlap those of another tensor", place);
    if (begin > at) throw Damaged(std::to_string(begin - at) + " bytes before it belong to no tensor", place);
    if (end > data_bytes)
      throw Damaged("its bytes end at " + std::to_string(end) + ", but the data ends at " + std::to_string(data_bytes), place);
    at = end;
  }
  if (at != data_bytes) throw Damaged("the last " + std::to_string(data_bytes - at) + " bytes belong to no tensor", where);
}

// Refuses files of other formats in which weights are kept, with what to do instead. `first`: the first eight bytes.
void RefuseOtherFormats(std::string_view first, const std::string& where) {
  const auto refuse = [&](const char* what, const char* help) { throw Error(ErrorCode::kCheckpoint, what, where, help); };
  constexpr char kSave[] = "write the weights with save_file of safetensors.torch or safetensors.numpy";
  if (first.starts_with("PK\x03\x04")) refuse("this is a zip archive, such as torch.save and numpy write, not a safetensors file", kSave);
  if (first.starts_with("\x80\x02")) refuse("this looks like a file of torch.save, not a safetensors file", kSave);
  if (first.starts_with("\x89HDF\r\n"))
    refuse("this is an HDF5 file (perhaps from Keras), not a safetensors file", "export the model to ONNX with these weights");
  if (first.substr(4, 4) == "ODTC") {
    refuse("this is a checkpoint of onnxruntime-training, not a safetensors file",
           "let onnxruntime write the model with export_model_for_inferencing, and train that file");
  }
  if (where.ends_with(".onnx")) refuse("this is an ONNX model, not a safetensors file", "give it as the model: its weights are in it");
}

// The checked header of a file of `file_bytes` bytes; its ranges count from the start of the file. read(offset, out, bytes) reads the file.
template <typename Read>
SafetensorsHeader ReadHeader(int64_t file_bytes, int64_t max_tensors, const std::string& where, Read&& read) {
  if (file_bytes < 8) throw Damaged("too short for a safetensors file: " + std::to_string(file_bytes) + " bytes", where);
  char first[8] = {};
  read(0, first, 8);
  uint64_t length = 0;
  std::memcpy(&length, first, 8);
  if (length > static_cast<uint64_t>(file_bytes)) RefuseOtherFormats({first, 8}, where);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw Damaged("the header has " + std::to_string(length) + " bytes; the format allows " + std::to_string(kMaxHeaderBytes), where);
  }
  const int64_t header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_bytes - 8) throw Damaged("the file ends within its header", where);
  std::string text(static_cast<size_t>(header_bytes), '\0');
  read(8, text.data(), header_bytes);
  if (!text.starts_with('{')) throw Damaged("the header does not start with '{'", where);
  SafetensorsHeader header = ParseSafetensorsHeader(text, max_tensors, where);
  const int64_t data = 8 + header_bytes;
  CheckTiling(header.entries, file_bytes - data, where);
  for (auto& [name, entry] : header.entries) entry.begin += data, entry.end += data;
  return header;
}

// Any other value in a bool is undefined behaviour.
void CheckBools(const std::string& name, DType dtype, const void* data, int64_t bytes, const std::string& where) {
  if (dtype != DType::kBool) return;
  const auto* elements = static_cast<const unsigned char*>(data);
  if (std::any_of(elements, elements + bytes, [](unsigned char byte) { return byte > 1; })) {
    throw Error(ErrorCode::kCheckpoint, "an element of a BOOL tensor is neither 0 nor 1", where + " tensor '" + Escaped(name) + "'");
  }
}

// The tensors of a file in the order in which the reference implementation writes them, and the padded text of the header.
struct Arrangement {
  std::vector<std::pair<std::string, SafetensorsFile::Entry>> entries;
  std::string header;
};

Arrangement Arrange(const std::map<std::string, TensorView>& tensors, const std::map<std::string, std::string>& metadata,
                    const std::string& where) {
  // The position of each dtype in that order. Element sizes never increase along it, so every tensor is aligned.
  constexpr std::array kOrder = {
      DType::kUint64,     DType::kInt64,        DType::kFloat64,    DType::kFloat32, DType::kUint32,         DType::kInt32,
      DType::kBfloat16,   DType::kFloat16,      DType::kUint16,     DType::kInt16,   DType::kFloat8E5M2Fnuz, DType::kFloat8E4M3Fnuz,
      DType::kFloat8E8M0, DType::kFloat8E4M3Fn, DType::kFloat8E5M2, DType::kInt8,    DType::kUint8,          DType::kBool};
  std::vector<std::tuple<size_t, const std::string*, const TensorView*>> order;
  for (const auto& [name, tensor] : tensors) {
    if (SafetensorsTypeName(tensor.dtype).empty()) {
      throw Error(ErrorCode::kCheckpoint,
                  "safetensors files do not support " + std::string(DTypeName(tensor.dtype)) + " ('" + Escaped(name) + "')", where);
    }
    order.emplace_back(std::find(kOrder.begin(), kOrder.end(), tensor.dtype) - kOrder.begin(), &name, &tensor);
  }
  // The names are already sorted.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
  Arrangement arranged;
  int64_t at = 0;
  for (const auto& [rank, name, tensor] : order) {
    arranged.entries.push_back({*name, {tensor->dtype, tensor->shape, at, at + tensor->bytes()}});
    at += tensor->bytes();
  }
  arranged.header = SafetensorsHeaderText(arranged.entries, metadata);
  arranged.header.resize(static_cast<size_t>(AlignUp(static_cast<int64_t>(arranged.header.size()), 8)), ' ');
  if (static_cast<int64_t>(arranged.header.size()) > kMaxHeaderBytes) {
    throw Error(ErrorCode::kCheckpoint, "the names and metadata do not fit the header of a safetensors file", where);
  }
  return arranged;
}

void WriteArranged(const WriteBytes& write, const Arrangement& arranged, const WriteElements& elements) {
  const uint64_t length = arranged.header.size();
  write(&length, 8);
  write(arranged.header.data(), static_cast<int64_t>(length));
  for (const auto& [name, entry] : arranged.entries) {
    int64_t left = entry.end - entry.begin;
    elements(name, [&](const void* data, int64_t bytes) {
      write(data, bytes);
      left -= bytes;
    });
    GRADLOOM_CHECK(left == 0);
  }
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path, int64_t limit_bytes, int64_t max_tensors)
    : SafetensorsFile(InputFile(path, limit_bytes), max_tensors) {}

SafetensorsFile::SafetensorsFile(InputFile file, int64_t max_tensors) : file_(std::move(file)) {
  SafetensorsHeader header = ReadHeader(file_.bytes(), max_tensors, Escaped(path(), 4096),
                                        [&](int64_t offset, void* out, int64_t bytes) { file_.ReadAt(offset, out, bytes); });
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
}

const SafetensorsFile::Entry& SafetensorsFile::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw Error(ErrorCode::kCheckpoint, "no tensor '" + Escaped(name) + "'", Escaped(path(), 4096));
  return found->second;
}

void SafetensorsFile::ReadInto(const std::string& name, void* out) const {
  const Entry& entry = Find(name);
  file_.ReadAt(entry.begin, out, entry.end - entry.begin);
  CheckBools(name, entry.dtype, out, entry.end - entry.begin, Escaped(path(), 4096));
}

Tensor SafetensorsFile::Read(const std::string& name) const {
  const Entry& entry = Find(name);
  Tensor tensor(entry.dtype, entry.shape);
  ReadInto(name, tensor.data());
  return tensor;
}

std::map<std::string, TensorView> ViewSafetensors(std::string_view bytes, const std::string& where, int64_t max_tensors,
                                                  std::map<std::string, std::string>* metadata) {
  SafetensorsHeader header =
      ReadHeader(static_cast<int64_t>(bytes.size()), max_tensors, where,
                 [&](int64_t offset, void* out, int64_t size) { std::memcpy(out, bytes.data() + offset, static_cast<size_t>(size)); });
  std::map<std::string, TensorView> views;
  for (const auto& [name, entry] : header.entries) {
    const char* data = bytes.data() + entry.begin;
    if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(DTypeBytes(entry.dtype)) != 0)
      throw Damaged("its elements are not aligned", where + " tensor '" + Escaped(name) + "'");
    CheckBools(name, entry.dtype, data, entry.end - entry.begin, where);
    views.emplace(name, TensorView{entry.dtype, entry.shape, data});
  }
  if (metadata != nullptr) *metadata = std::move(header.metadata);
  return views;
}

void WriteSafetensors(const WriteBytes& write, const std::map<std::string, TensorView>& types, const WriteElements& elements,
                      const std::map<std::string, std::string>& metadata) {
  WriteArranged(write, Arrange(types, metadata, ""), elements);
}

void WriteSafetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  const Arrangement arranged = Arrange(tensors, metadata, Escaped(path, 4096));
  AtomicFile file(path);
  WriteArranged([&](const void* data, int64_t bytes) { file.Write(data, bytes); }, arranged,
                [&](const std::string& name, const WriteBytes& write) {
                  const TensorView& tensor = tensors.at(name);
                  write(tensor.data, tensor.bytes());
                });
  file.Commit();
}

void WriteSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
  WriteSafetensors(path, views, metadata);
}

}  // namespace gradloom
