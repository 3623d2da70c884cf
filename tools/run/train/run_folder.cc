#include "tools/run/train/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "runtime/base/suggestion.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/weight_files.h"
#include "tools/run/partial_files.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void RefuseFolder(const fs::path& path, const std::error_code& error) {
  const std::string what = "cannot create the folder";
  // Errors caused by the name itself, not by the disk.
  for (const int fault : {ENOTDIR, ENOENT, EEXIST, ELOOP, ENAMETOOLONG}) {
    if (error.value() == fault)
      throw Error(ErrorCode::kResource, what + ": " + error.message(), Escaped(path.string(), 4096),
                  fault == ENAMETOOLONG ? "use a shorter --name" : "choose another one with --out");
  }
  throw WriteError(what, path.string(), error.value());
}

[[noreturn]] void RefuseName(const fs::path& path) {
  throw Error(ErrorCode::kConfig, "a run with this name exists; runs are never overwritten", Escaped(path.string(), 4096),
              "choose another --name, or remove the folder");
}

// "did you mean 'runs/exp3'?" with the nearest run in the folder of a path that is not a run.
std::string NearRun(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::vector<std::string> runs;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && runs.size() < 10000; it.increment(error)) {
    if (RunFolder::IsRun(it->path().string())) runs.push_back(it->path().filename().string());
  }
  std::sort(runs.begin(), runs.end());
  // The name of a run, without the folder in which runs are by default.
  if (const fs::path usual = "runs" / path; RunFolder::IsRun(usual.string())) return DidYouMean(usual.string(), {}, 4096);
  const std::string near = Nearest(path.filename().string(), runs);
  if (!near.empty()) return DidYouMean((path.parent_path() / near).string(), {}, 4096);
  return "the folder of a run has plan.plan and config.toml; the train command creates one";
}

// Whether a folder is empty, or its only entry has this name.
bool IsEmptyExcept(const fs::path& folder, std::string_view name) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename() != name) return false;
  }
  return !error;
}

}  // namespace

void RunFolder::CheckCanMake(const std::string& out, const std::string& name, bool begin_again) {
  if (name.find('/') != std::string::npos || name == "." || name == "..") {
    throw Error(ErrorCode::kConfig, "the name of a run cannot be '" + Escaped(name) + "'", "",
                "use one word; set the folder of the runs with --out");
  }
  if (out.empty()) throw Error(ErrorCode::kConfig, "the folder for runs is empty", "--out", "use --out runs");
  std::error_code error;
  const fs::path path = fs::path(out) / name;
  if (!name.empty() && fs::exists(path, error) && !(begin_again && HasNoPlan(path.string()))) RefuseName(path);
  // The deepest existing folder on the path.
  fs::path there = fs::absolute(out).lexically_normal();
  while (there.has_relative_path() && !fs::exists(there, error)) there = there.parent_path();
  if (!fs::is_directory(there, error)) RefuseFolder(out, std::make_error_code(std::errc::not_a_directory));
  if (::access(there.c_str(), W_OK | X_OK) != 0) throw WriteError("cannot create the folder", out, errno);
}

RunFolder RunFolder::Make(const std::string& out, const std::string& name, bool begin_again) {
  CheckCanMake(out, name, begin_again);
  std::error_code error;
  fs::create_directories(out, error);
  if (error) RefuseFolder(out, error);
  fs::path path;
  if (!name.empty()) {
    path = fs::path(out) / name;
    if (!fs::create_directory(path, error) && !(begin_again && HasNoPlan(path.string()))) {
      if (error) RefuseFolder(path, error);
      RefuseName(path);
    }
  } else {
    // The process that creates the folder owns it, so two runs that start together get two folders.
    for (int i = 1; path.empty(); ++i) {
      const fs::path candidate = fs::path(out) / ("exp" + std::to_string(i));
      if (fs::create_directory(candidate, error)) path = candidate;
      if (error && !fs::exists(candidate)) RefuseFolder(candidate, error);
    }
  }
  fs::create_directory(path / "export", error);
  if (error) RefuseFolder(path / "export", error);
  return RunFolder(path.string());
}

bool RunFolder::IsRun(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(fs::path(path) / "plan.plan", error) && fs::is_regular_file(fs::path(path) / "config.toml", error);
}

bool RunFolder::HasNoPlan(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(path, error))) return false;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    // Files written before the plan, and temporary files of a process that ended before the rename.
    const bool written = name == "config.toml" || name == "data.json" || name == "environment.json" ||
                         name.starts_with("config.toml.tmp.") || name.starts_with("data.json.tmp.") ||
                         name.starts_with("environment.json.tmp.") || name.starts_with("plan.plan.tmp.");
    const bool made = (name == "export" && IsEmptyExcept(it->path(), "")) || (name == "checkpoints" && IsEmptyExcept(it->path(), "LOCK"));
    if (!(written && fs::is_regular_file(it->symlink_status(error))) && !(made && fs::is_directory(it->symlink_status(error))))
      return false;
  }
  return !error;
}

RunFolder RunFolder::Open(const std::string& path) {
  if (!IsRun(path)) {
    if (std::error_code error; HasNoPlan(path) && !fs::is_empty(path, error)) {
      throw Error(ErrorCode::kConfig, "the run in this folder ended before it began", Escaped(path, 4096),
                  "start it again with the original command and --resume auto");
    }
    throw Error(ErrorCode::kConfig, "not the folder of a run", Escaped(path, 4096), NearRun(fs::path(path).lexically_normal()));
  }
  return RunFolder(path);
}

void RunFolder::CheckWritten() const {
  const auto check = [&](const char* name, fs::file_type wanted) {
    std::error_code error;
    const fs::file_type type = fs::symlink_status(File(name), error).type();
    if (type == wanted || type == fs::file_type::not_found) return;
    const std::string what = type == fs::file_type::symlink
                                 ? "a symbolic link"
                                 : "not a " + std::string(wanted == fs::file_type::regular ? "regular file" : "folder");
    throw Error(ErrorCode::kPath, what + " where the run would be written", Escaped(File(name), 4096),
                "replace it with the file or folder itself");
  };
  for (const char* name : {"log.txt", "metrics.jsonl", "results.csv"}) check(name, fs::file_type::regular);
  for (const char* name : {"export", "logs"}) check(name, fs::file_type::directory);
  std::error_code error;
  for (const fs::directory_entry& log : fs::directory_iterator(File("logs"), error)) {
    const std::string name = "logs/" + log.path().filename().string();
    check(name.c_str(), fs::file_type::regular);
  }
}

void RunFolder::RemoveLeftovers() const {
  for (const std::string& folder : {path_, File("export")}) gradloom::RemoveLeftovers(folder);
}

void RunFolder::WriteState(const std::map<std::string, TensorView>& types, const std::function<Tensor(const std::string& name)>& read,
                           int64_t step, int64_t batch, int64_t seed) const {
  std::map<std::string, std::string> metadata{
      {"step", std::to_string(step)}, {"batch", std::to_string(batch)}, {"seed", std::to_string(seed)}};
  // All state is read twice, because the header comes first and there may not be memory for a copy.
  metadata[kTensorsHash] = TensorsHash(metadata, types, read);
  AtomicFile file(StatePath());
  const auto elements = [&](const std::string& name, const WriteBytes& write) {
    const Tensor value = read(name);
    write(value.data(), value.bytes());
  };
  WriteSafetensors([&](const void* data, int64_t bytes) { file.Write(data, bytes); }, types, elements, metadata);
  file.Commit();
}

}  // namespace gradloom
