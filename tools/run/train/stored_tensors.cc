#include "tools/run/train/stored_tensors.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <type_traits>
#include <utility>

#include "runtime/base/dispatch.h"
#include "runtime/base/error.h"
#include "runtime/checkpoint/manifest.h"

namespace gradloom {
namespace {

bool IsCheckpoint(const std::string& folder) { return std::filesystem::exists(folder + "/MANIFEST"); }

// A count in the metadata of a file; nullopt if it has none.
std::optional<int64_t> CountIn(const WeightFiles& files, const std::string& key) {
  const auto found = files.metadata().find(key);
  return found == files.metadata().end() ? std::nullopt : std::optional<int64_t>(std::atoll(found->second.c_str()));
}

}  // namespace

StoredTensors::StoredTensors(const std::string& path, int64_t max_tensors) : path_(path) {
  if (IsCheckpoint(path)) {
    checkpoint_ = Checkpoint::Load(path);
  } else {
    files_.emplace(path, SafetensorsFile::kLimitBytes, max_tensors);
  }
}

StoredTensors::StoredTensors(Checkpoint checkpoint)
    : path_(checkpoint.manifest().files.size() == 1 ? checkpoint.folder() + "/" + RankFileName(0) : checkpoint.folder()),
      checkpoint_(std::move(checkpoint)) {}

Tensor StoredTensors::Read(const std::string& name) const { return checkpoint_ ? checkpoint_->Read(name) : files_->Read(name); }

std::optional<int64_t> StoredTensors::updates() const {
  if (checkpoint_) return checkpoint_->manifest().step;
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  if (IsCheckpoint(folder)) return ReadManifest(folder).step;
  return CountIn(*files_, "step");
}

int64_t StoredTensors::batches() const { return checkpoint_ ? checkpoint_->manifest().batch : CountIn(*files_, "batch").value_or(0); }

void NonFiniteWeights::Add(const std::string& name, const TensorView& value) {
  if (!IsFloating(value.dtype)) return;
  const int64_t count = WithType(value.dtype, [&]<typename T>(std::type_identity<T>) {
    const std::span<const T> elements = value.as<T>();
    return std::count_if(elements.begin(), elements.end(), [](T element) { return !std::isfinite(static_cast<double>(element)); });
  });
  if (count > 0) tensors_.Add(std::to_string(count) + " of '" + Escaped(name, 80) + "'");
}

std::string NonFiniteWeights::Warning(const std::string& path) const {
  if (tensors_.count() == 0) return "";
  return "warning weights " + Escaped(path, 4096) + " has values that are NaN or infinite: " + tensors_.text();
}

}  // namespace gradloom
