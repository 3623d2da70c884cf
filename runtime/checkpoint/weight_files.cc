#include "runtime/checkpoint/weight_files.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "runtime/base/confined_folder.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/checkpoint/shard_index.h"

namespace gradloom {
namespace {

// The limit of a safetensors file's header, which lists the same names.
constexpr int64_t kMaxIndexBytes = 100'000'000;
constexpr int64_t kPieceBytes = 1 << 20;
constexpr char kReload[] = "the index and its shards are not of the same version: get all of them again, from one place";

[[noreturn]] void Refuse(const std::string& message, const std::string& path) {
  throw Error(ErrorCode::kCheckpoint, message, Escaped(path, 4096), kReload);
}

void HashFile(const InputFile& file, Hash& hash) {
  std::vector<std::byte> piece(static_cast<size_t>(std::min(file.bytes(), kPieceBytes)));
  for (int64_t at = 0; at < file.bytes(); at += kPieceBytes) {
    const int64_t bytes = std::min(file.bytes() - at, kPieceBytes);
    file.ReadAt(at, piece.data(), bytes);
    hash.Add(piece.data(), bytes);
  }
}

}  // namespace

std::string TensorsHash(const std::map<std::string, std::string>& metadata, const std::map<std::string, TensorView>& types,
                        const std::function<Tensor(const std::string& name)>& read) {
  Hash hash;
  // Texts end with a zero, so that they cannot move from one to the next.
  const auto add = [&](const std::string& text) { hash.Add(text.c_str(), std::ssize(text) + 1); };
  for (const auto& [key, value] : metadata) {
    if (key == kTensorsHash) continue;
    add(key);
    add(value);
  }
  for (const auto& [name, type] : types) {
    const Tensor value = read(name);
    add(name);
    add(std::string(DTypeName(value.dtype())) + value.shape().ToString());
    hash.Add(value.data(), value.bytes());
  }
  return HashText(hash.value());
}

void CheckTensorsHash(const std::map<std::string, std::string>& metadata, const std::map<std::string, TensorView>& types,
                      const std::function<Tensor(const std::string& name)>& read, const std::string& where) {
  const auto stated = metadata.find(kTensorsHash);
  if (stated != metadata.end() && stated->second != TensorsHash(metadata, types, read))
    throw Error(ErrorCode::kCheckpoint, "the file is damaged: its contents do not match their hash", where);
}

WeightFiles::WeightFiles(const std::string& path, int64_t limit_bytes, int64_t max_tensors) : path_(path) {
  if (IsShardIndex(path)) {
    AddShards(limit_bytes, max_tensors);
  } else {
    const SafetensorsFile& file = Add(std::make_unique<SafetensorsFile>(path, limit_bytes, max_tensors));
    CheckTensorsHash(
        file.metadata(), types_, [&](const std::string& name) { return file.Read(name); }, Escaped(path, 4096));
  }
}

const SafetensorsFile& WeightFiles::Add(std::unique_ptr<SafetensorsFile> file) {
  const SafetensorsFile& added = *files_.emplace_back(std::move(file));
  for (const auto& [name, entry] : added.entries()) {
    types_.emplace(name, TensorView{entry.dtype, entry.shape, nullptr});
    file_of_.emplace(name, &added);
  }
  return added;
}

void WeightFiles::AddShards(int64_t limit_bytes, int64_t max_tensors) {
  const std::string where = Escaped(path_, 4096), folder = FolderOf(path_);
  const ShardIndex index = ParseShardIndex(ReadWholeFile(path_, kMaxIndexBytes), max_tensors, where);
  // In order, with the first tensor of each, which stands for it in messages.
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : index) shards.emplace(shard, tensor);
  if (std::ssize(shards) > kMaxShards) {
    throw Error(ErrorCode::kLimit,
                "the index names " + std::to_string(shards.size()) + " files, more than the limit of " + std::to_string(kMaxShards), where);
  }
  const ConfinedFolder files(folder, path_);
  for (const auto& [shard, tensor] : shards) {
    const SafetensorsFile& file =
        Add(std::make_unique<SafetensorsFile>(files.Open(shard, NamedByIndex(where, tensor), limit_bytes), max_tensors));
    limit_bytes -= file.file().bytes();
    for (const auto& [name, entry] : file.entries()) {
      const auto named = index.find(name);
      if (named == index.end()) Refuse("the index does not name tensor '" + Escaped(name) + "' of this file", file.path());
      if (named->second != shard)
        Refuse("the index puts tensor '" + Escaped(name) + "' into '" + Escaped(named->second) + "', but this file has it, too",
               file.path());
    }
  }
  for (const auto& [tensor, shard] : index) {
    if (!file_of_.contains(tensor))
      Refuse("the index puts tensor '" + Escaped(tensor) + "' into this file, which does not have it", folder + "/" + shard);
  }
}

Tensor WeightFiles::Read(const std::string& name) const {
  const auto file = file_of_.find(name);
  if (file == file_of_.end()) throw Error(ErrorCode::kCheckpoint, "no tensor '" + Escaped(name) + "'", Escaped(path_, 4096));
  return file->second->Read(name);
}

const std::map<std::string, std::string>& WeightFiles::metadata() const {
  static const std::map<std::string, std::string> none;
  return IsShardIndex(path_) ? none : files_.front()->metadata();
}

uint64_t WeightFiles::ContentHash() const {
  Hash hash;
  for (const auto& file : files_) HashFile(file->file(), hash);
  return hash.value();
}

Tensor AsWeight(Tensor stored, DType wanted) {
  if (stored.dtype() == wanted || !IsFloating(stored.dtype()) || !IsFloating(wanted)) return stored;
  return Converted(stored.view(), wanted);
}

}  // namespace gradloom
