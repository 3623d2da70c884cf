#include "runtime/checkpoint/verified_file.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"

namespace gradloom {
namespace {

constexpr int64_t kPieceBytes = 1 << 20;

[[noreturn]] void Refuse(const std::string& message, const std::string& path) {
  throw Error(ErrorCode::kCheckpoint, message, Escaped(path, 4096));
}

void CheckSize(const InputFile& file, const CheckpointFile& described) {
  if (file.bytes() == described.bytes) return;
  Refuse("the file has " + std::to_string(file.bytes()) + " bytes, but the manifest specifies " + std::to_string(described.bytes),
         file.path());
}

void CheckHash(const Hash& hash, const InputFile& file, const CheckpointFile& described) {
  if (hash.value() != described.hash) Refuse("the file is damaged: its contents do not match their hash", file.path());
}

// Reads a range of the file in pieces of a whole number of elements, whatever their size.
void ReadPieces(const InputFile& file, int64_t begin, int64_t end, const std::function<void(const void* piece, int64_t bytes)>& take) {
  std::vector<std::byte> piece(static_cast<size_t>(std::min(end - begin, kPieceBytes)));
  for (int64_t at = begin; at < end; at += kPieceBytes) {
    const int64_t bytes = std::min(end - at, kPieceBytes);
    file.ReadAt(at, piece.data(), bytes);
    take(piece.data(), bytes);
  }
}

int64_t CountNonFinite(DType dtype, const void* elements, int64_t bytes) {
  const int64_t count = bytes / DTypeBytes(dtype);
  const TensorView view{dtype, {count}, elements};
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += std::isfinite(ElementAsDouble(view, i)) ? 0 : 1;
  return found;
}

void CheckContentOf(const InputFile& file, const CheckpointFile& described) {
  CheckSize(file, described);
  Hash hash;
  ReadPieces(file, 0, file.bytes(), [&](const void* piece, int64_t bytes) { hash.Add(piece, bytes); });
  CheckHash(hash, file, described);
}

// If the file cannot be parsed, damage is reported first: whether it differs from what the manifest specifies.
SafetensorsFile Open(const std::string& path, const CheckpointFile& described, int64_t limit_bytes, int64_t max_tensors) {
  try {
    return SafetensorsFile(path, limit_bytes, max_tensors);
  } catch (const Error&) {
    CheckContentOf(InputFile(path, limit_bytes), described);
    throw;
  }
}

}  // namespace

void CheckContent(const std::string& path, const CheckpointFile& described) {
  CheckContentOf(InputFile(path, std::numeric_limits<int64_t>::max()), described);
}

// Computes everything in one pass through the file.
std::map<std::string, VerifiedFile::Found> VerifiedFile::Verify(const SafetensorsFile& file, const CheckpointFile& described) {
  CheckSize(file.file(), described);
  // A tensor without elements has the offset of the next one.
  std::vector<std::tuple<int64_t, int64_t, const std::string*>> order;
  for (const auto& [name, entry] : file.entries()) order.emplace_back(entry.begin, entry.end, &name);
  std::sort(order.begin(), order.end());
  Hash whole;
  int64_t at = 0;
  const auto skip_to = [&](int64_t end) {
    ReadPieces(file.file(), at, end, [&](const void* piece, int64_t bytes) { whole.Add(piece, bytes); });
    at = end;
  };
  std::map<std::string, Found> found;
  for (const auto& [begin, end, name] : order) {
    skip_to(begin);
    const DType dtype = file.entries().at(*name).dtype;
    Hash own;
    int64_t non_finite = 0;
    ReadPieces(file.file(), begin, end, [&](const void* piece, int64_t bytes) {
      whole.Add(piece, bytes);
      own.Add(piece, bytes);
      if (IsFloating(dtype)) non_finite += CountNonFinite(dtype, piece, bytes);
    });
    at = end;
    found.emplace(*name, Found{own.value(), non_finite});
  }
  skip_to(file.file().bytes());
  CheckHash(whole, file.file(), described);
  // Errors in these tensors surface when they are read, which must happen before anything is done with the others.
  for (const auto& [name, entry] : file.entries()) {
    if (entry.dtype == DType::kBool) file.Read(name);
  }
  return found;
}

VerifiedFile::VerifiedFile(const std::string& path, const CheckpointFile& described, int64_t limit_bytes, int64_t max_tensors)
    : file_(Open(path, described, limit_bytes, max_tensors)), found_(Verify(file_, described)) {}

Tensor VerifiedFile::Read(const std::string& name) const {
  Tensor value = file_.Read(name);
  Hash hash;
  hash.Add(value.data(), value.bytes());
  if (hash.value() != found_.at(name).hash) Refuse("the file has changed since it was checked", file_.path());
  return value;
}

}  // namespace gradloom
