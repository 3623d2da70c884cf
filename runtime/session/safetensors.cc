#include "runtime/session/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/session/safetensors_header.h"

namespace gradloom {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read and written as they lie in memory");

// The reference's own bound.
constexpr int64_t kMaxHeaderBytes = 100'000'000;

Error Damaged(const std::string& why, const std::string& where) {
  return {ErrorCode::kCheckpoint, why, where, "the file is damaged or unfinished, or not a safetensors file"};
}

// The ranges must tile the data: sorted, each begins where the one before it ends.
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
    if (end > data_bytes) throw Damaged("its bytes end at " + std::to_string(end) + ", the data at " + std::to_string(data_bytes), place);
    at = end;
  }
  if (at != data_bytes) throw Damaged("the last " + std::to_string(data_bytes - at) + " bytes belong to no tensor", where);
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path, int64_t limit_bytes, int64_t max_tensors) : file_(path, limit_bytes) {
  const std::string where = Escaped(path, 4096);
  if (file_.bytes() < 8) throw Damaged("too short for a safetensors file: " + std::to_string(file_.bytes()) + " bytes", where);
  uint64_t length = 0;
  file_.ReadAt(0, &length, 8);
  if (length > static_cast<uint64_t>(kMaxHeaderBytes)) {
    throw Damaged("a header of " + std::to_string(length) + " bytes; the format allows " + std::to_string(kMaxHeaderBytes), where);
  }
  const int64_t header_bytes = static_cast<int64_t>(length);
  if (header_bytes > file_.bytes() - 8) throw Damaged("the file ends within its header", where);
  std::string text(static_cast<size_t>(header_bytes), '\0');
  file_.ReadAt(8, text.data(), header_bytes);
  if (!text.starts_with('{')) throw Damaged("the header does not start with '{'", where);
  SafetensorsHeader header = ParseSafetensorsHeader(text, max_tensors, where);
  const int64_t data = 8 + header_bytes;
  CheckTiling(header.entries, file_.bytes() - data, where);
  for (auto& [name, entry] : header.entries) entry.begin += data, entry.end += data;
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
  if (entry.dtype != DType::kBool) return;
  // Any other value in a bool is undefined behaviour.
  const unsigned char* bytes = static_cast<const unsigned char*>(out);
  if (std::any_of(bytes, bytes + (entry.end - entry.begin), [](unsigned char byte) { return byte > 1; })) {
    throw Error(ErrorCode::kCheckpoint, "an element of a BOOL tensor is neither 0 nor 1",
                Escaped(path(), 4096) + " tensor '" + Escaped(name) + "'");
  }
}

Tensor SafetensorsFile::Read(const std::string& name) const {
  const Entry& entry = Find(name);
  Tensor tensor(entry.dtype, entry.shape);
  ReadInto(name, tensor.data());
  return tensor;
}

std::map<std::string, Tensor> SafetensorsFile::ReadAll() const {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : entries_) tensors.emplace(name, Read(name));
  return tensors;
}

void WriteSafetensors(const std::string& path, const std::map<std::string, TensorView>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  // The rank of each dtype in the reference's order of writing, in which widths never rise: so every tensor
  // is aligned to its element.
  constexpr std::array kOrder = {DType::kUint64, DType::kInt64,    DType::kFloat64, DType::kFloat32, DType::kUint32,
                                 DType::kInt32,  DType::kBfloat16, DType::kFloat16, DType::kUint16,  DType::kInt16,
                                 DType::kInt8,   DType::kUint8,    DType::kBool};
  std::vector<std::tuple<size_t, const std::string*, const TensorView*>> order;
  for (const auto& [name, tensor] : tensors) {
    if (SafetensorsTypeName(tensor.dtype).empty()) {
      throw Error(ErrorCode::kCheckpoint,
                  "safetensors files have no " + std::string(DTypeName(tensor.dtype)) + " ('" + Escaped(name) + "')", Escaped(path, 4096));
    }
    order.emplace_back(std::find(kOrder.begin(), kOrder.end(), tensor.dtype) - kOrder.begin(), &name, &tensor);
  }
  // Already in the order of the names.
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return std::get<0>(a) < std::get<0>(b); });
  std::vector<std::pair<std::string, SafetensorsFile::Entry>> entries;
  int64_t at = 0;
  for (const auto& [rank, name, tensor] : order) {
    entries.push_back({*name, {tensor->dtype, tensor->shape, at, at + tensor->bytes()}});
    at += tensor->bytes();
  }
  std::string text = SafetensorsHeaderText(entries, metadata);
  text.resize(static_cast<size_t>(AlignUp(static_cast<int64_t>(text.size()), 8)), ' ');
  if (static_cast<int64_t>(text.size()) > kMaxHeaderBytes) {
    throw Error(ErrorCode::kCheckpoint, "the names and metadata do not fit the header of a safetensors file", Escaped(path, 4096));
  }
  const uint64_t length = text.size();
  AtomicFile file(path);
  file.Write(&length, 8);
  file.Write(text);
  for (const auto& [rank, name, tensor] : order) file.Write(tensor->data, tensor->bytes());
  file.Commit();
}

void WriteSafetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::map<std::string, TensorView> views;
  for (const auto& [name, tensor] : tensors) views.emplace(name, tensor.view());
  WriteSafetensors(path, views, metadata);
}

}  // namespace gradloom
