#include "tools/run/files_apart.h"

#include <sys/stat.h>

#include <filesystem>
#include <functional>
#include <optional>

#include "compiler/onnx/external_files.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/shard_index.h"
#include "runtime/data/data_files.h"
#include "runtime/data/idx.h"
#include "runtime/data/joined_data.h"
#include "tools/run/options/loss_terms.h"
#include "tools/run/train/run_folder.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// The status of an existing regular file. Nothing is lost by writing to a device or a pipe.
std::optional<struct stat> RegularFile(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status;
}

bool AreSame(const struct stat& file, const std::string& path) {
  const auto other = RegularFile(path);
  return other && other->st_dev == file.st_dev && other->st_ino == file.st_ino;
}

// What a command cannot read is no reason to refuse its outputs.
void Attempt(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error&) {
    // The command reports it where it needs the file.
  }
}

// The path of a file below a folder, or empty.
fs::path PathWithin(const std::string& folder, const std::string& file) {
  std::error_code error;
  const fs::path path = fs::canonical(file, error).lexically_relative(fs::canonical(folder, error));
  return error || path.empty() || *path.begin() == ".." ? fs::path() : path;
}

// Whether a file below a folder is one of those for which the folder is read: what a run or a checkpoint consists of, or an image.
bool BelongsTo(const std::string& folder, const fs::path& within, const std::string& file) {
  if (RunFolder::IsRun(folder)) {
    const std::string name = within.filename().string();
    if (*within.begin() == "checkpoints") return true;
    for (const char* record : {"config.toml", "data.json", "log.txt", "metrics.jsonl", "plan.plan", "results.csv", "state.safetensors"}) {
      if (within == record) return true;
    }
    return within == fs::path(name) && name.starts_with("environment");
  }
  if (RegularFile(folder + "/MANIFEST")) return true;
  bool image = false;
  Attempt([&] { image = KindOfDataFile(DataFile(file)) == DataFileKind::kImages; });
  return image;
}

// Whether `file` is among what the path means: itself and the files that it names, files that match a pattern or begin with a prefix, or a
// folder's.
bool Means(const NamedPath& named, const std::string& written, const struct stat& file) {
  const std::string& path = named.path;
  if (AreSame(file, path)) return true;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path within = PathWithin(path, written);
    return !within.empty() && BelongsTo(path, within, written);
  }
  bool same = false;
  if (named.kind == PathKind::kModel) {
    Attempt([&] {
      for (const std::string& one : ExternalFilesOf(path, {.external_dir = named.external_dir})) same |= AreSame(file, one);
    });
    return same;
  }
  if (IsShardIndex(path)) {
    Attempt([&] {
      for (const auto& [tensor, shard] : ParseShardIndex(ReadWholeFile(path), SafetensorsFile::kMaxTensors, path))
        same |= AreSame(file, FolderOf(path) + "/" + shard);
    });
    return same;
  }
  if (named.kind != PathKind::kData) return same;
  Attempt([&] {
    for (const std::string& one : FilesOf(path)) same |= AreSame(file, one);
  });
  if (!fs::exists(path, error)) {
    Attempt([&] {
      for (const auto& [name, one] : IdxFilesOf(path)) same |= AreSame(file, one);
    });
  }
  return same;
}

// The run of a folder, or of a checkpoint or another file in it, that is read: it names what it was made from.
void AddRun(const NamedPath& read, std::vector<NamedPath>& all) {
  if (!RunFolder::IsRun(read.path)) return;
  Attempt([&] {
    Configuration configuration;
    configuration.ReadFile(RunFolder::Open(read.path).ConfigPath());
    for (NamedPath& path : PathsRead(configuration, read.path)) all.push_back(std::move(path));
  });
}

[[noreturn]] void Refuse(const NamedPath& written, const std::string& what) {
  throw Error(ErrorCode::kConfig, written.name + " would overwrite " + what, Escaped(written.path, 4096),
              "name another file with " + written.name);
}

}  // namespace

std::vector<NamedPath> PathsRead(const Configuration& configuration, const std::string& of) {
  const std::string run = of.empty() ? "" : " of the run " + Escaped(of, 4096);
  std::vector<NamedPath> paths;
  const auto add = [&](const char* key, const std::string& path, PathKind kind) {
    if (!path.empty()) paths.push_back({path, FindKey(key)->flag + run, kind});
  };
  add("model.path", configuration.Text("model.path"), PathKind::kModel);
  if (!paths.empty()) paths.back().external_dir = configuration.Text("model.external_dir");
  for (const char* key : {"model.plan", "model.init_weights", "devices.topology"}) add(key, configuration.Text(key), PathKind::kOther);
  for (const char* key : {"data.train", "data.eval"}) add(key, configuration.Text(key), PathKind::kData);
  const std::string& loss = configuration.Text("loss.onnx");
  for (const std::string& path : LossFilesOf(configuration)) add(path == loss ? "loss.onnx" : "loss.name", path, PathKind::kModel);
  return paths;
}

void CheckApart(const std::vector<NamedPath>& written, const std::vector<NamedPath>& read) {
  std::vector<NamedPath> all = read;
  for (const NamedPath& path : read) AddRun(path, all);
  for (size_t i = 0; i < written.size(); ++i) {
    const auto file = RegularFile(written[i].path);
    for (const NamedPath& path : all) {
      if (file && Means(path, written[i].path, *file)) Refuse(written[i], "what " + path.name + " names");
    }
    for (size_t j = 0; j < i; ++j) {
      const auto plain = [](const std::string& path) { return fs::absolute(path).lexically_normal(); };
      std::error_code error;
      const bool same =
          file ? AreSame(*file, written[j].path) : !fs::exists(written[i].path, error) && plain(written[i].path) == plain(written[j].path);
      if (same) Refuse(written[i], "the file of " + written[j].name);
    }
  }
}

}  // namespace gradloom
