#include "runtime/data/idx.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/data/spill_buffer.h"
#include "runtime/data/unpacked_file.h"

namespace gradloom {
namespace {

constexpr int kMaxAxes = 8;

DType DTypeOfIdx(unsigned char code) {
  switch (code) {
    case 0x08: return DType::kUint8;
    case 0x09: return DType::kInt8;
    case 0x0B: return DType::kInt16;
    case 0x0C: return DType::kInt32;
    case 0x0D: return DType::kFloat32;
    case 0x0E: return DType::kFloat64;
    default: return DType::kUndefined;
  }
}

Error TruncatedError(const std::string& path) {
  return {ErrorCode::kData, "the IDX file ends before its last element", Escaped(path, 4096), "download or copy it again"};
}

void ReadExactly(UnpackedFile& file, void* out, int64_t bytes) {
  if (file.Read(out, bytes) != bytes) throw TruncatedError(file.path());
}

void SwapBytes(Tensor& tensor) {
  const int64_t width = DTypeBytes(tensor.dtype());
  if (width == 1 || std::endian::native == std::endian::big) return;
  auto* bytes = static_cast<char*>(tensor.data());
  for (int64_t i = 0; i < tensor.bytes(); i += width) std::reverse(bytes + i, bytes + i + width);
}

// The start of a suffix such as "-idx3-ubyte"; npos for other names.
size_t SuffixOf(std::string_view name) {
  const std::string_view stem = WithoutGz(name);
  const size_t at = stem.rfind("-idx");
  if (at == std::string_view::npos || stem.size() < at + 7) return std::string_view::npos;
  const bool numbered = stem[at + 4] >= '0' && stem[at + 4] <= '9' && stem[at + 5] == '-';
  return numbered ? at : std::string_view::npos;
}

}  // namespace

namespace {

struct Head {
  DType dtype = DType::kUndefined;
  Shape shape;
  int64_t head_bytes = 0, bytes = 0;  // size of the header and of the elements
};

Head ReadHead(UnpackedFile& file) {
  const std::string where = Escaped(file.path(), 4096);
  unsigned char head[4];
  ReadExactly(file, head, sizeof head);
  const DType dtype = DTypeOfIdx(head[2]);
  if (head[0] != 0 || head[1] != 0 || dtype == DType::kUndefined) {
    throw Error(ErrorCode::kData, "not an IDX file: it does not start with 00 00 and a type", where,
                "IDX is the format of the MNIST files; rename other files to their own extension");
  }
  if (head[3] > kMaxAxes) throw Error(ErrorCode::kData, std::to_string(head[3]) + " dimensions, more than an IDX file may have", where);
  std::vector<int64_t> extents;
  int64_t bytes = DTypeBytes(dtype);
  for (int axis = 0; axis < head[3]; ++axis) {
    unsigned char word[4];
    ReadExactly(file, word, sizeof word);
    const int64_t extent = int64_t{word[0]} << 24 | word[1] << 16 | word[2] << 8 | word[3];
    const auto product = CheckedMul(bytes, extent);
    if (extent > INT32_MAX || !product || *product > file.limit_bytes()) {
      throw Error(ErrorCode::kData, "an extent of " + std::to_string(extent) + " makes the array larger than the limit", where);
    }
    extents.push_back(extent);
    bytes = *product;
  }
  const int64_t head_bytes = 4 + 4 * int64_t{head[3]};
  // A short file must not allocate a large tensor: gzip compresses to about a thousandth at best.
  if (bytes / 1100 > file.file_bytes()) {
    throw Error(ErrorCode::kData, "the file is too short for " + Shape(extents).ToString(), where, "download or copy it again");
  }
  if (!file.packed() && bytes > file.file_bytes() - head_bytes) throw TruncatedError(file.path());
  return {dtype, Shape(extents), head_bytes, bytes};
}

Error TrailingBytesError(const Shape& shape, const std::string& path) {
  return {ErrorCode::kData, "unexpected bytes after the last element of " + shape.ToString(), Escaped(path, 4096)};
}

void CheckEnd(UnpackedFile& file, const Shape& shape) {
  char more;
  if (file.Read(&more, 1) != 0) throw TrailingBytesError(shape, file.path());
}

StoredArray Unpack(UnpackedFile& file, const Head& head) {
  const auto read = [&](void* out, int64_t bytes) { ReadExactly(file, out, bytes); };
  StoredArray array{head.dtype, true, head.shape, Spilled(read, head.bytes, Escaped(file.path(), 4096))};
  CheckEnd(file, head.shape);
  return array;
}

}  // namespace

Tensor ReadIdx(const std::string& path, int64_t limit_bytes) {
  UnpackedFile file(path, limit_bytes);
  const Head head = ReadHead(file);
  Tensor tensor(head.dtype, head.shape);
  ReadExactly(file, tensor.data(), tensor.bytes());
  CheckEnd(file, head.shape);
  SwapBytes(tensor);
  return tensor;
}

namespace {

// Of a file that is not packed.
void CheckBytes(int64_t file_bytes, const Head& head, const std::string& path) {
  const int64_t rest = file_bytes - head.head_bytes;
  if (rest < head.bytes) throw TruncatedError(path);
  if (rest > head.bytes) throw TrailingBytesError(head.shape, path);
}

}  // namespace

std::optional<StoredArray> OpenIdx(const std::string& path, const CopyRule& copies) {
  UnpackedFile unpacked(path);
  const Head head = ReadHead(unpacked);
  if (unpacked.packed() && !copies.Copies(head.dtype, head.shape)) return std::nullopt;
  if (unpacked.packed()) return Unpack(unpacked, head);
  const auto file = std::make_shared<const InputFile>(path, kDataLimitBytes);
  CheckBytes(file->bytes(), head, path);
  return StoredArray{head.dtype, true, head.shape, [file, start = head.head_bytes](int64_t offset, void* out, int64_t bytes) {
                       file->ReadAt(start + offset, out, bytes);
                     }};
}

TensorView IdxType(const std::string& path) {
  UnpackedFile file(path);
  const Head head = ReadHead(file);
  if (!file.packed()) CheckBytes(file.file_bytes(), head, path);
  return {head.dtype, head.shape, nullptr};
}

bool IsIdxName(const std::string& path) { return WithoutGz(path).ends_with(".idx") || SuffixOf(path) != std::string_view::npos; }

std::map<std::string, std::string> IdxFilesOf(const std::string& prefix) {
  namespace fs = std::filesystem;
  std::map<std::string, std::string> files;
  const std::string start = fs::path(prefix).filename().string() + "-";
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(FolderOf(prefix), error)) {
    const std::string name = entry.path().filename().string();
    const size_t suffix = SuffixOf(name);
    if (suffix == std::string::npos || !name.starts_with(start) || suffix <= start.size()) continue;
    files.emplace(name.substr(start.size(), suffix - start.size()), entry.path().string());
  }
  return files;
}

}  // namespace gradloom
