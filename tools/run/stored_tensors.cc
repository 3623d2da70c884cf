#include "tools/run/stored_tensors.h"

#include <cstdlib>
#include <filesystem>

namespace gradloom {
namespace {

bool IsCheckpoint(const std::string& folder) { return std::filesystem::exists(folder + "/MANIFEST"); }

}  // namespace

StoredTensors::StoredTensors(const std::string& path) : path_(path) {
  if (IsCheckpoint(path)) {
    checkpoint_ = Checkpoint::Load(path);
    types_ = checkpoint_->types();
    return;
  }
  file_.emplace(path);
  for (const auto& [name, entry] : file_->entries()) types_.emplace(name, TensorView{entry.dtype, entry.shape, nullptr});
}

Tensor StoredTensors::Read(const std::string& name) const { return checkpoint_ ? checkpoint_->Read(name) : file_->Read(name); }

int64_t StoredTensors::updates() const {
  if (checkpoint_) return checkpoint_->manifest().step;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  if (IsCheckpoint(folder)) return ReadManifest(folder).step;
  const auto found = file_->metadata().find("step");
  return found == file_->metadata().end() ? 0 : std::atoll(found->second.c_str());
}

}  // namespace gradloom
