// Reading checkpoints: nothing of one is used before its hashes are checked, and nothing of a session changes
// before all of the checkpoint is known to fit it. docs/checkpoints.md describes the files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/session/manifest.h"
#include "runtime/session/safetensors.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"
#include "runtime/session/verified_file.h"

namespace gradloom {

// A checkpoint whose hashes are verified. Of a folder the tensors stay in its files, which are held open, and are read when they are asked
// for; a file that has changed since is found out then.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  // Reads the folder of one checkpoint, once through all of it. Throws Error(kCheckpoint) naming the file where there is no valid
  // MANIFEST, or a file is absent, has another size or other contents, or there is a part that the manifest does
  // not list; Error(kLimit) where its files have more than `limit_bytes` together; Error(kIo) where they cannot be
  // read.
  static Checkpoint Load(const std::string& folder, int64_t limit_bytes = kLimitBytes);

  // One safetensors file with all of it (WriteCheckpointFile), or with weights alone: any file whose metadata hold no manifest. `where`
  // names it in errors, which are as above.
  static Checkpoint FromFile(const std::string& path, int64_t limit_bytes = kLimitBytes);
  static Checkpoint FromBytes(std::string bytes, const std::string& where);

  // The folder or file.
  const std::string& folder() const { return folder_; }
  // Of weights alone nothing is known.
  bool has_manifest() const { return has_manifest_; }
  const Manifest& manifest() const { return manifest_; }

  // Types and shapes of all state by name, without data.
  const std::map<std::string, TensorView>& types() const { return types_; }

  // The elements of one of them. Throws Error(kCheckpoint) where the file is no longer what was verified, and Error(kIo).
  Tensor Read(const std::string& name) const;

  // What deserves a warning: tensors with NaN or infinity.
  std::vector<std::string> Warnings() const;

  // Puts all state and counters into the session, which then goes on to the same bits. Throws
  // Error(kCheckpoint), without a change of the session, naming what differs: the model, the seed, tensors that
  // are missing, extra or of another type, and unless `any_plan` the parts of the plan. How many processes wrote it is of no matter; of a
  // job whose processes hold parts of the state each, the session takes those of its process. A file that cannot be read any more is found
  // out on the way, by what Read throws: such a session is of no use.
  // Weights alone replace those that the session has, and nothing else; it must have one of them at least.
  void Restore(Session& session, const PlanIdentity& plan, bool any_plan = false) const;

  static constexpr int64_t kLimitBytes = int64_t{1} << 40;
  static constexpr int64_t kMaxTensors = int64_t{1} << 20;

 private:
  Checkpoint() = default;
  void CheckFits(const Session& session, const PlanIdentity& plan, bool any_plan) const;

  void AddFile(const CheckpointFile& described, int64_t limit_bytes);

  void RestoreWeights(Session& session) const;

  std::string folder_;
  bool has_manifest_ = true;
  Manifest manifest_;
  std::map<std::string, TensorView> types_;
  std::vector<std::unique_ptr<VerifiedFile>> files_;
  std::map<std::string, const VerifiedFile*> file_of_;  // by tensor
  // Of a checkpoint in one file: all of it, and views into that.
  std::unique_ptr<const std::string> content_;
  std::map<std::string, TensorView> views_;
};

// Version, plan, seed, position and learning rate; no files, data or callbacks.
Manifest ManifestOf(const SavedState& state, const PlanIdentity& plan);

// A checkpoint as one safetensors file, which Python's readers open too. `manifest`: all but the files.
void WriteCheckpointFile(const WriteBytes& write, const Session& session, Manifest manifest);
// Parameters and running statistics alone.
void WriteWeightsFile(const WriteBytes& write, const Session& session);

struct SkippedCheckpoint {
  std::string path;
  std::string why;
};

struct FoundCheckpoint {
  std::optional<Checkpoint> checkpoint;    // the newest whose hashes verify
  std::vector<SkippedCheckpoint> skipped;  // what is newer, or cannot be dated, and why it does not load
};

// Looks through a run's folder of checkpoints. An absent folder has none.
FoundCheckpoint FindNewestCheckpoint(const std::string& folder, int64_t limit_bytes = Checkpoint::kLimitBytes);

// The MANIFEST of a checkpoint's folder. Errors as Checkpoint::Load's.
Manifest ReadManifest(const std::string& folder);

// What a name in a run's folder of checkpoints means.
enum class CheckpointName {
  kCheckpoint,  // step-000123, and step-000123.2 of a later save at the same step
  kUnfinished,  // step-000123.tmp.4711 being written, step-000123.old.4711 being removed
  kOther,
};
CheckpointName ParseCheckpointName(const std::string& name);

}  // namespace gradloom
