#include "runtime/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/plan/memory_report.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

constexpr char kLatest[] = "LATEST";
constexpr char kBest[] = "BEST";
// A key in a manifest's callbacks: this checkpoint was saved as the best one.
constexpr char kSavedAsBest[] = "best";

// The names in a folder; empty if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string StepName(int64_t step) {
  char text[32];
  std::snprintf(text, sizeof text, "step-%06lld", static_cast<long long>(step));
  return text;
}

// What the system says about the files of a folder, which changes with their content: sizes, times, and which files they are.
std::string FilesOf(const std::string& folder) {
  std::string text;
  for (const std::string& name : NamesIn(folder)) {
    struct stat status {};
    if (::lstat((folder + "/" + name).c_str(), &status) != 0) return "";
    text += name;
    for (const int64_t number :
         {static_cast<int64_t>(status.st_dev), static_cast<int64_t>(status.st_ino), static_cast<int64_t>(status.st_size),
          static_cast<int64_t>(status.st_mtim.tv_sec), static_cast<int64_t>(status.st_mtim.tv_nsec),
          static_cast<int64_t>(status.st_ctim.tv_sec), static_cast<int64_t>(status.st_ctim.tv_nsec)}) {
      text += " " + std::to_string(number);
    }
    text += "\n";
  }
  return text;
}

// The bytes of the files of a folder.
int64_t BytesOf(const std::string& folder) {
  int64_t bytes = 0;
  for (const std::string& name : NamesIn(folder)) {
    struct stat status {};
    if (::lstat((folder + "/" + name).c_str(), &status) == 0) bytes += status.st_size;
  }
  return bytes;
}

// Of checkpoints to compare with their hashes, for one save.
constexpr int64_t kMaxReadAtOnce = int64_t{4} << 30;

// The name in a pointer file; "" if the file is missing or does not name a checkpoint.
std::string Pointed(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  try {
    std::string name = ReadWholeFile(path, 4096);
    while (!name.empty() && name.back() == '\n') name.pop_back();
    return ParseCheckpointName(name) == CheckpointName::kCheckpoint ? name : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

CheckpointFolder::CheckpointFolder(std::string path, PlanIdentity plan, CheckpointOptions options)
    : path_(std::move(path)), plan_(std::move(plan)), options_(options) {
  if (options_.keep < 1) throw Error(ErrorCode::kConfig, "at least one checkpoint must be kept", "", "use --keep 1 or more");
  if (options_.calls->MakeFolder(path_.c_str(), 0777) == 0) {
    SyncFolder(FolderOf(path_), *options_.calls);
  } else if (errno != EEXIST) {
    throw WriteError("cannot create the folder", path_, errno);
  }
  // Without the lock they may belong to another process.
  if (Lock()) RemoveLeftovers();
}

CheckpointFolder::~CheckpointFolder() { ::close(lock_); }

bool CheckpointFolder::Lock() {
  const std::string file = path_ + "/LOCK";
  lock_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock_ < 0) throw WriteError("cannot write the file", file, errno);
  // The system releases the lock when the process ends, however it ends.
  if (::flock(lock_, LOCK_EX | LOCK_NB) == 0) return true;
  // The file system does not support locks.
  if (errno != EWOULDBLOCK) return false;
  ::close(lock_);
  throw Error(ErrorCode::kCheckpoint, "another process is training this run: it holds the folder of checkpoints", Escaped(path_, 4096),
              "wait for it to end, or stop it");
}

void CheckpointFolder::RemoveLeftovers() {
  for (const std::string& name : NamesIn(path_)) {
    const std::string entry = path_ + "/" + name;
    if (ParseCheckpointName(name) == CheckpointName::kUnfinished) {
      RemoveFolder(entry);
      leftovers_.push_back(name);
    }
    if (name.starts_with(std::string(kLatest) + ".tmp.") || name.starts_with(std::string(kBest) + ".tmp."))
      options_.calls->Unlink(entry.c_str());
  }
}

// A name that does not exist yet, so that the rename replaces nothing; no system replaces folders atomically.
std::string CheckpointFolder::NewName(int64_t step) const {
  std::string name = StepName(step);
  std::error_code error;
  for (int serial = 2; fs::symlink_status(path_ + "/" + name, error).type() != fs::file_type::not_found; ++serial)
    name = StepName(step) + "." + std::to_string(serial);
  return name;
}

void CheckpointFolder::WriteStep(const std::string& folder, const SavedState& saved, OtherParts* others, Manifest& manifest) const {
  FileCalls& calls = *options_.calls;
  if (calls.MakeFolder(folder.c_str(), 0777) != 0) throw WriteError("cannot create the folder", folder, errno);
  if (others != nullptr) others->Begin(folder);
  manifest.files = {WriteCheckpointPart(folder, 0, saved, calls)};
  if (others != nullptr) {
    for (CheckpointFile& file : others->Finish()) manifest.files.push_back(std::move(file));
  }
  manifest.world_size = static_cast<int64_t>(manifest.files.size());
  // Written last: if the manifest exists, everything else does.
  OutputFile manifest_file(folder + "/MANIFEST", calls);
  manifest_file.Write(EncodeManifest(manifest));
  manifest_file.Finish();
  SyncFolder(folder, calls);
}

void CheckpointFolder::Point(const std::string& name, const std::string& target) const {
  WriteFileAtomically(path_ + "/" + name, target + "\n", *options_.calls);
}

// Manifests are read once: each save asks for those of all checkpoints that are kept.
CheckpointFolder::Numbered CheckpointFolder::Checkpoints() {
  std::map<std::string, int64_t> there;
  for (const std::string& name : NamesIn(path_)) {
    if (ParseCheckpointName(name) != CheckpointName::kCheckpoint) continue;
    if (const auto known = sequences_.find(name); known != sequences_.end()) {
      there.insert(*known);
      continue;
    }
    try {
      there.emplace(name, ReadManifest(path_ + "/" + name).sequence);
    } catch (const Error&) {
      // Not a valid checkpoint: it is neither counted nor removed, so that it can be inspected.
    }
  }
  sequences_ = std::move(there);
  std::erase_if(verified_, [&](const auto& known) { return !sequences_.contains(known.first); });
  Numbered checkpoints;
  for (const auto& [name, sequence] : sequences_) checkpoints.emplace_back(sequence, name);
  std::sort(checkpoints.rbegin(), checkpoints.rend());
  return checkpoints;
}

SavedCheckpoint CheckpointFolder::Save(const SavedState& saved, const RunState& state, bool best, OtherParts* others) {
  const Numbered before = Checkpoints();
  Manifest manifest = ManifestOf(saved, plan_);
  manifest.sequence = before.empty() ? 1 : before.front().first + 1;
  manifest.loss_scale = state.loss_scale;
  manifest.cursor = state.cursor;
  manifest.callbacks = state.callbacks;
  if (best) manifest.callbacks[kSavedAsBest] = "true";
  const std::string name = NewName(saved.step), final_path = path_ + "/" + name;
  const std::string temporary = final_path + ".tmp." + std::to_string(::getpid());
  bool renamed = false;
  try {
    RemoveFolder(temporary);
    WriteStep(temporary, saved, others, manifest);
    if (options_.calls->Rename(temporary.c_str(), final_path.c_str()) != 0) throw WriteError("cannot rename the folder", final_path, errno);
    renamed = true;
    SyncFolder(path_, *options_.calls);
    Point(kLatest, name);
    if (best) Point(kBest, name);
  } catch (const Error& error) {
    if (others != nullptr) others->Abandon();
    RemoveFolder(temporary);
    if (error.code() != ErrorCode::kResource) throw;
    // It is not removed again: readers may already use it, and the next process points to it (FinishSave).
    const std::string left = renamed ? ", and is complete, but LATEST or BEST may not name it" : "";
    throw Error(error.code(), error.message() + "; the checkpoint needs " + std::to_string(SavedStateBytes(*saved.plan)) + " bytes" + left,
                error.where(), error.help());
  } catch (...) {
    if (others != nullptr) others->Abandon();
    RemoveFolder(temporary);
    throw;
  }
  verified_[name] = {FilesOf(final_path), true};
  SavedCheckpoint done{final_path, 0, {}};
  for (const CheckpointFile& file : manifest.files) done.bytes += file.bytes;
  RemoveOld(done.warnings);
  return done;
}

std::vector<std::string> CheckpointFolder::FinishSave(const std::string& name, const Manifest& manifest) {
  if (Pointed(path_ + "/" + kLatest) != name) Point(kLatest, name);
  // Otherwise the best checkpoint would be removed as an old one.
  if (manifest.callbacks.contains(kSavedAsBest) && Pointed(path_ + "/" + kBest) != name) Point(kBest, name);
  // It has just been loaded.
  verified_[name] = {FilesOf(path_ + "/" + name), true};
  std::vector<std::string> warnings;
  // A newer one that does not load, for whatever reason, would count towards those to keep, and this one could be removed instead.
  if (const Numbered there = Checkpoints(); !there.empty() && there.front().second == name) RemoveOld(warnings);
  return warnings;
}

std::string CheckpointFolder::BestPath() const {
  const std::string name = Pointed(path_ + "/" + kBest);
  return name.empty() ? "" : path_ + "/" + name;
}

std::optional<bool> CheckpointFolder::KnownSound(const std::string& name) const {
  const auto known = verified_.find(name);
  const bool same = known != verified_.end() && !known->second.files.empty() && known->second.files == FilesOf(path_ + "/" + name);
  return same ? std::optional(known->second.sound) : std::nullopt;
}

bool CheckpointFolder::Verify(const std::string& name, std::vector<std::string>& warnings) {
  const std::string path = path_ + "/" + name;
  Verified verified{FilesOf(path), true};
  try {
    VerifyCheckpoint(path);
  } catch (const Error& error) {
    verified.sound = false;
    const bool damaged = error.code() == ErrorCode::kCheckpoint;
    warnings.push_back("the checkpoint '" + path + (damaged ? "' is damaged" : "' cannot be read") +
                       ", and does not count as one of the newest " + std::to_string(options_.keep) + ": " + error.message() + " (" +
                       error.where() + ")");
    if (!damaged) return false;  // perhaps next time
  }
  return (verified_[name] = std::move(verified)).sound;
}

void CheckpointFolder::RemoveOld(std::vector<std::string>& warnings) {
  const std::string best = Pointed(path_ + "/" + kBest);
  const Numbered there = Checkpoints();
  const auto old = there.begin() + std::min(std::ssize(there), options_.keep);
  if (std::all_of(old, there.end(), [&](const auto& checkpoint) { return checkpoint.second == best; })) return;
  int64_t kept = 0, read = 0;
  for (const auto& [sequence, name] : there) {
    if (kept < options_.keep) {
      std::optional<bool> sound = KnownSound(name);
      if (!sound) {
        // The rest is read after the next saves: a job may be about to be killed.
        if (read > kMaxReadAtOnce) return;
        read += BytesOf(path_ + "/" + name);
        sound = Verify(name, warnings);
      }
      // A damaged one stays as long as there are too few others, so that it can be inspected.
      kept += *sound ? 1 : 0;
      continue;
    }
    if (name == best) continue;
    errno = 0;
    if (!RemoveCheckpoint(name))
      warnings.push_back("the old checkpoint '" + path_ + "/" + name + "' could not be removed: " + std::generic_category().message(errno));
  }
}

// A checkpoint must not be incomplete under its own name.
bool CheckpointFolder::RemoveCheckpoint(const std::string& name) const {
  const std::string from = path_ + "/" + name, to = from + ".old." + std::to_string(::getpid());
  return options_.calls->Rename(from.c_str(), to.c_str()) == 0 && RemoveFolder(to);
}

// Removes files of one level only, which is all that a save writes. Anything else stays, and so does the folder then. Symbolic links are
// not followed.
bool CheckpointFolder::RemoveFolder(const std::string& folder) const {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(folder, error).type();
  if (type == fs::file_type::not_found) return true;
  if (type != fs::file_type::directory) return options_.calls->Unlink(folder.c_str()) == 0;
  for (const std::string& name : NamesIn(folder)) {
    if (options_.calls->Unlink((folder + "/" + name).c_str()) != 0) return false;
  }
  return options_.calls->RemoveFolder(folder.c_str()) == 0;
}

}  // namespace gradloom
