#include "runtime/session/verified_file.h"

#include <algorithm>
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
  Refuse("the file has " + std::to_string(file.bytes()) + " bytes, the manifest says " + std::to_string(described.bytes), file.path());
}

void CheckHash(const Hash& hash, const InputFile& file, const CheckpointFile& described) {
  if (hash.value() != described.hash) Refuse("the file is damaged: its contents do not match their hash", file.path());
}

// Adds a range of the file to the hash of it all, and to `own` where that is not null.
void AddRange(const InputFile& file, int64_t begin, int64_t end, Hash& whole, Hash* own) {
  std::string piece(static_cast<size_t>(std::min(end - begin, kPieceBytes)), '\0');
  for (int64_t at = begin; at < end; at += kPieceBytes) {
    const int64_t bytes = std::min(end - at, kPieceBytes);
    file.ReadAt(at, piece.data(), bytes);
    whole.Add(piece.data(), bytes);
    if (own != nullptr) own->Add(piece.data(), bytes);
  }
}

// A file that cannot be read for its form is damaged first of all, where it is not what the manifest says.
SafetensorsFile Open(const std::string& path, const CheckpointFile& described, int64_t limit_bytes, int64_t max_tensors) {
  try {
    return SafetensorsFile(path, limit_bytes, max_tensors);
  } catch (const Error&) {
    const InputFile input(path, limit_bytes);
    CheckSize(input, described);
    Hash hash;
    AddRange(input, 0, input.bytes(), hash, nullptr);
    CheckHash(hash, input, described);
    throw;
  }
}

// Of each tensor, by one way through the file.
std::map<std::string, uint64_t> HashesOf(const SafetensorsFile& file, const CheckpointFile& described) {
  CheckSize(file.file(), described);
  // One without elements lies where the next one begins.
  std::vector<std::tuple<int64_t, int64_t, const std::string*>> order;
  for (const auto& [name, entry] : file.entries()) order.emplace_back(entry.begin, entry.end, &name);
  std::sort(order.begin(), order.end());
  Hash whole;
  int64_t at = 0;
  const auto add_until = [&](int64_t end, Hash* own) {
    AddRange(file.file(), at, end, whole, own);
    at = end;
  };
  std::map<std::string, uint64_t> hashes;
  for (const auto& [begin, end, name] : order) {
    add_until(begin, nullptr);
    Hash own;
    add_until(end, &own);
    hashes.emplace(*name, own.value());
  }
  add_until(file.file().bytes(), nullptr);
  CheckHash(whole, file.file(), described);
  // What is wrong with these shows when they are read, which is to be before anything is done with the others.
  for (const auto& [name, entry] : file.entries()) {
    if (entry.dtype == DType::kBool) file.Read(name);
  }
  return hashes;
}

}  // namespace

VerifiedFile::VerifiedFile(const std::string& path, const CheckpointFile& described, int64_t limit_bytes, int64_t max_tensors)
    : file_(Open(path, described, limit_bytes, max_tensors)), hashes_(HashesOf(file_, described)) {}

Tensor VerifiedFile::Read(const std::string& name) const {
  Tensor value = file_.Read(name);
  Hash hash;
  hash.Add(value.data(), value.bytes());
  if (hash.value() != hashes_.at(name)) Refuse("the file has changed since it was checked", file_.path());
  return value;
}

}  // namespace gradloom
