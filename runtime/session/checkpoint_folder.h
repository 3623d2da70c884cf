// Writing checkpoints: a save is complete or it never was, whenever the process or the machine stops.
// docs/checkpoints.md describes the protocol and the files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/base/file_calls.h"
#include "runtime/session/checkpoint_part.h"
#include "runtime/session/manifest.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"

namespace gradloom {

struct CheckpointOptions {
  int64_t keep = 3;  // the newest ones, besides the best
  FileCalls* calls = &FileCalls::System();
};

// What a run knows besides its session.
struct RunState {
  DataCursor cursor;
  std::map<std::string, std::string> callbacks;
  double loss_scale = 1;
};

struct SavedCheckpoint {
  std::string path;
  int64_t bytes = 0;
  std::vector<std::string> warnings;  // what went wrong once it was safe: an old one could not be removed
};

// A run's folder of checkpoints, for the one process that writes it. Not thread-safe.
class CheckpointFolder {
 public:
  // Makes the folder where it is absent (in one that is there), and removes what saves of dead processes left.
  // `plan` is that of the sessions that will be saved. Throws Error(kCheckpoint) where another process has the
  // folder, Error(kConfig) for keep below 1, Error(kResource) where the folder cannot be written.
  CheckpointFolder(std::string path, PlanIdentity plan, CheckpointOptions options = {});
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }

  // What was found and removed: names like step-000600.tmp.4711.
  const std::vector<std::string>& leftovers() const { return leftovers_; }

  // Saves all of the state and makes it the last checkpoint, with `best` also the best one; then
  // removes those that are neither among the newest `keep` nor the best. Throws Error(kResource) naming the
  // path, the bytes needed and those free: then what this save wrote is removed, and no older one was.
  // `others`: that other processes write what `saved` has not; null: it has all.
  SavedCheckpoint Save(const SavedState& saved, const RunState& state, bool best = false, OtherParts* others = nullptr);
  SavedCheckpoint Save(const Session& session, const RunState& state, bool best = false) {
    return Save(SavedStateOf(session), state, best);
  }

  // Of the checkpoint that a run goes on from, its newest that loads: does what its save had yet to do if something ended the process after
  // the folder's rename. LATEST and BEST name what they should, and old ones are removed. Gives warnings as Save does. Throws
  // Error(kResource) where the folder cannot be written.
  std::vector<std::string> FinishSave(const std::string& name, const Manifest& manifest) const;

  // The best checkpoint's path; "" where there is none.
  std::string BestPath() const;

 private:
  bool Lock();  // false where the file system has no locks
  void RemoveLeftovers();
  std::string NewName(int64_t step) const;
  void WriteStep(const std::string& folder, const SavedState& saved, OtherParts* others, Manifest& manifest) const;
  void Point(const std::string& name, const std::string& target) const;
  void RemoveOld(std::vector<std::string>& warnings) const;
  bool RemoveCheckpoint(const std::string& name) const;
  bool RemoveFolder(const std::string& folder) const;

  std::string path_;
  PlanIdentity plan_;
  CheckpointOptions options_;
  std::vector<std::string> leftovers_;
  int lock_ = -1;  // descriptor of the locked file
};

}  // namespace gradloom
