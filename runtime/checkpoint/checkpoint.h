// Reads checkpoints. Nothing of a checkpoint is used before its hashes are checked, and nothing of a session changes before all of the
// checkpoint is known to fit it. docs/checkpoints.md describes the files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/verified_file.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/session/session.h"
#include "runtime/session/session_copy.h"

namespace gradloom {

// A checkpoint whose hashes are verified. The tensors of a folder stay in its files, which are held open, and are read on demand; a file
// that has changed since is then detected.
class Checkpoint {
 public:
  Checkpoint(Checkpoint&&) = default;
  Checkpoint& operator=(Checkpoint&&) = default;

  // Reads the folder of one checkpoint, once from beginning to end. Throws Error(kCheckpoint) naming the file if there is no valid
  // MANIFEST, if a file is absent or has another size or content, or if there is a part that the manifest does not list; Error(kLimit) if
  // its files together have more than `limit_bytes`; Error(kIo) if they cannot be read.
  static Checkpoint Load(const std::string& folder, int64_t limit_bytes = kLimitBytes);

  // One safetensors file with a whole checkpoint (WriteCheckpointFile), or with weights only: any file without a manifest in its metadata.
  // A path may also name an index, whose shards have weights only. Tensors stay in the files; those of a whole checkpoint are read once
  // now, to verify them. `where` names the file in errors, which are as above, and those of WeightFiles.
  static Checkpoint FromFile(const std::string& path);
  static Checkpoint FromBytes(std::string bytes, const std::string& where);

  // The folder or file.
  const std::string& folder() const { return folder_; }
  // False for weights only, without state and position.
  bool has_manifest() const { return has_manifest_; }
  const Manifest& manifest() const { return manifest_; }

  // Types and shapes of all state by name, without data.
  const std::map<std::string, TensorView>& types() const { return types_; }

  // The elements of one of them. Throws Error(kCheckpoint) if the file has changed since it was verified, and Error(kIo).
  Tensor Read(const std::string& name) const;

  // Warnings: tensors with NaN or infinity.
  std::vector<std::string> Warnings() const;

  // Sets all state and counters of the session, which then continues to the same bits. Throws Error(kCheckpoint), without changing the
  // session, naming what differs: the model, the seed, tensors that are missing, extra or of another type and, unless `any_plan`, the parts
  // of the plan. The number of processes that wrote it does not matter: in a job whose processes hold parts of the state, the session takes
  // those of its process. If a file cannot be read any more, throws what Read throws, and the session is unusable. A file with weights only
  // replaces those that the session has, and nothing else; the session must have at least one of them.
  void Restore(Session& session, const PlanIdentity& plan, bool any_plan = false) const;

  static constexpr int64_t kLimitBytes = int64_t{1} << 40;
  static constexpr int64_t kMaxTensors = int64_t{1} << 20;

 private:
  Checkpoint() = default;
  void CheckFits(const Session& session, const PlanIdentity& plan, bool any_plan) const;

  void AddFile(const CheckpointFile& described, int64_t limit_bytes);
  // The manifest of one file, if it has one, and whether its tensors match it.
  void ReadMetadata(const std::map<std::string, std::string>& metadata);

  void RestoreWeights(Session& session) const;
  // Throws Error(kCheckpoint) if the plan has other values of weights that it does not train.
  void CheckFrozen(const Plan& plan, const std::function<std::string(const std::string&)>& tensor_of) const;

  std::string folder_;
  bool has_manifest_ = true;
  Manifest manifest_;
  std::map<std::string, TensorView> types_;
  std::vector<std::unique_ptr<VerifiedFile>> files_;
  std::map<std::string, const VerifiedFile*> file_of_;  // by tensor
  // For a checkpoint in memory: its bytes, and views into them.
  std::unique_ptr<const std::string> content_;
  std::map<std::string, TensorView> views_;
  // Unless null, the file with all tensors, or the files with all weights; and for a whole checkpoint, hashes of the tensors.
  std::unique_ptr<const WeightFiles> stored_;
  std::map<std::string, uint64_t> verified_;
};

// The manifest with version, plan, seed, position and learning rate; without files, data or callbacks.
Manifest ManifestOf(const SavedState& state, const PlanIdentity& plan);

// Writes a checkpoint as one safetensors file, which Python's readers also open. `manifest`: complete except for the files.
void WriteCheckpointFile(const WriteBytes& write, const Session& session, Manifest manifest);
// Writes only parameters and running statistics.
void WriteWeightsFile(const WriteBytes& write, const Session& session);

struct SkippedCheckpoint {
  std::string path;
  std::string why;
};

struct FoundCheckpoint {
  std::optional<Checkpoint> checkpoint;    // the newest whose hashes verify
  std::vector<SkippedCheckpoint> skipped;  // newer checkpoints, and those of unknown age, with the reason why they do not load
};

struct ListedCheckpoint {
  std::string folder;
  Manifest manifest;
};

// The checkpoints in a run's folder whose manifests are valid, newest first. Their other files are not read. `skipped`, unless null, gets
// the others, sorted by path. An absent folder has none. Throws Error(kIo), and Error(kResource) if the process has no resources left.
std::vector<ListedCheckpoint> ListCheckpoints(const std::string& folder, std::vector<SkippedCheckpoint>* skipped = nullptr);

// Searches a run's folder of checkpoints. Throws like ListCheckpoints.
FoundCheckpoint FindNewestCheckpoint(const std::string& folder, int64_t limit_bytes = Checkpoint::kLimitBytes);

// The MANIFEST of a checkpoint's folder. Throws like Checkpoint::Load.
Manifest ReadManifest(const std::string& folder);

// Reads the files of a checkpoint's folder once and compares them with its MANIFEST, without looking at their tensors: much less work than
// Checkpoint::Load. Throws Error(kCheckpoint) naming what is damaged, and Error(kIo).
void VerifyCheckpoint(const std::string& folder);

// The meaning of a name in a run's folder of checkpoints.
enum class CheckpointName {
  kCheckpoint,  // step-000123, and step-000123.2 of a later save at the same step
  kUnfinished,  // step-000123.tmp.4711 being written, step-000123.old.4711 being removed
  kOther,
};
CheckpointName ParseCheckpointName(const std::string& name);

}  // namespace gradloom
