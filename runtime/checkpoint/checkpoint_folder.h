// Writes checkpoints. A save is complete or absent, whenever the process or the machine stops. docs/checkpoints.md describes the protocol
// and the files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/file_calls.h"
#include "runtime/checkpoint/checkpoint_part.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"

namespace gradloom {

struct CheckpointOptions {
  int64_t keep = 3;  // number of newest checkpoints to keep, besides the best
  FileCalls* calls = &FileCalls::System();
};

// The state of a run besides its session.
struct RunState {
  DataCursor cursor;
  std::map<std::string, std::string> callbacks;
  double loss_scale = 1;
};

struct SavedCheckpoint {
  std::string path;
  int64_t bytes = 0;
  // Found after the save was safe: an old checkpoint could not be removed, or one that would be kept is damaged.
  std::vector<std::string> warnings;
};

// A run's folder of checkpoints, for the only process that writes it. Not thread-safe.
class CheckpointFolder {
 public:
  // Makes the folder if it is absent (its parent must exist), and removes what saves of dead processes left. `plan`: the identity of the
  // sessions that will be saved. Throws Error(kCheckpoint) if another process has the folder, Error(kConfig) for keep below 1,
  // Error(kResource) if the folder cannot be written.
  CheckpointFolder(std::string path, PlanIdentity plan, CheckpointOptions options = {});
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder&) = delete;
  CheckpointFolder& operator=(const CheckpointFolder&) = delete;

  const std::string& path() const { return path_; }

  // The leftovers that were removed: names like step-000600.tmp.4711.
  const std::vector<std::string>& leftovers() const { return leftovers_; }

  // Saves all state and makes it the last checkpoint and, with `best`, also the best one. Then removes those that are neither among the
  // newest `keep` nor the best. A damaged one does not count as one of the newest. So before anything is removed, those that are to stay
  // are read, once for each process and again where files have changed; if they are large, some of them after each of several saves. Throws
  // Error(kResource) naming the path, the bytes needed and those free; then the files of this save are removed, and older checkpoints are
  // untouched. `others`: other processes write what `saved` lacks; null: it is complete.
  SavedCheckpoint Save(const SavedState& saved, const RunState& state, bool best = false, OtherParts* others = nullptr);
  SavedCheckpoint Save(const Session& session, const RunState& state, bool best = false) {
    return Save(SavedStateOf(session), state, best);
  }

  // For the checkpoint from which a run resumes, its newest that loads: completes its save, if the process ended after the folder was
  // renamed. LATEST and BEST are updated, and old checkpoints removed. Returns warnings like Save. Throws Error(kResource) if the folder
  // cannot be written.
  std::vector<std::string> FinishSave(const std::string& name, const Manifest& manifest);

  // The best checkpoint's path; "" if there is none.
  std::string BestPath() const;

 private:
  bool Lock();  // false if the file system has no locks
  void RemoveLeftovers();
  std::string NewName(int64_t step) const;
  void WriteStep(const std::string& folder, const SavedState& saved, OtherParts* others, Manifest& manifest) const;
  void Point(const std::string& name, const std::string& target) const;
  // The checkpoints with a valid manifest by their numbers, the newest first.
  using Numbered = std::vector<std::pair<int64_t, std::string>>;
  Numbered Checkpoints();
  // Whether the files of a checkpoint are those that its manifest describes; nullopt if that is not known as of their last change.
  std::optional<bool> KnownSound(const std::string& name) const;
  // Reads them to find out. Warns if they are not, or cannot be read.
  bool Verify(const std::string& name, std::vector<std::string>& warnings);
  void RemoveOld(std::vector<std::string>& warnings);
  bool RemoveCheckpoint(const std::string& name) const;
  bool RemoveFolder(const std::string& folder) const;

  std::string path_;
  PlanIdentity plan_;
  CheckpointOptions options_;
  std::vector<std::string> leftovers_;
  std::map<std::string, int64_t> sequences_;  // the numbers of valid manifests, as far as they have been read
  // A checkpoint's files when they were written or read here: their sizes and times, and whether they were sound.
  struct Verified {
    std::string files;
    bool sound = false;
  };
  std::map<std::string, Verified> verified_;  // by name
  int lock_ = -1;                             // descriptor of the locked file
};

}  // namespace gradloom
