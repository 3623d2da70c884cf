// A checkpoint whose state lies in several processes of a job: each writes a part, a file of what no process before it holds, and process 0
// puts the manifest beside them when all are on disk. docs/checkpoints.md describes the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file_calls.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/plan.h"
#include "runtime/session/manifest.h"
#include "runtime/session/session_copy.h"

namespace gradloom {

// Writes `saved.tensors` as the file of part `part` into the folder of a checkpoint. It is on disk when this returns, the folder's entry
// too. Throws Error(kResource).
CheckpointFile WriteCheckpointPart(const std::string& folder, int64_t part, const SavedState& saved, FileCalls& calls);

// What a save of process 0 has others write.
class OtherParts {
 public:
  virtual ~OtherParts() = default;
  // The folder is there: they may write.
  virtual void Begin(const std::string& folder) = 0;
  // Parts 1 and so on, when all are on disk. Throws the error of a process that has failed, naming it.
  virtual std::vector<CheckpointFile> Finish() = 0;
  // Where a save has failed: returns when nobody writes into its folder any more. Nothing after Finish, and of a save that has not begun
  // they are told so.
  virtual void Abandon() noexcept = 0;
};

// Process 0's side: it says of each save whether there is one.
class PartsOfJob : public OtherParts {
 public:
  PartsOfJob(const Plan& plan, std::shared_ptr<Communicator> communicator);

  // Each time that a save could be. After one that is, nothing is announced before Finish or Abandon.
  void Announce(bool saves);

  void Begin(const std::string& folder) override;
  std::vector<CheckpointFile> Finish() override;
  void Abandon() noexcept override;

 private:
  enum class Phase : uint8_t { kNone, kAnnounced, kBegun };
  CheckpointFile TakePart(int64_t part);

  const std::shared_ptr<Communicator> communicator_;
  std::vector<int> writers_;  // by part: processes, this one first
  std::string folder_;
  int64_t taken_ = 0;  // parts whose writers have answered, this process's included
  Phase phase_ = Phase::kNone;
};

// The side of another process.
class PartWriter {
 public:
  // Null where process 0 holds all of what this process holds, or processes before it do.
  static std::unique_ptr<PartWriter> Make(const Plan& plan, std::shared_ptr<Communicator> communicator,
                                          FileCalls& calls = FileCalls::System());

  // Waits for what process 0 announces. Throws Error(kPeer).
  bool Announced();

  // After a save was announced: waits for its folder, writes this process's part of `saved` and tells process 0 what came of it. Another
  // thread may do it. `check`: of that part, throws where it must not be saved. Throws Error(kPeer) alone.
  void Write(SavedState saved, const std::function<void(const SavedState&)>& check = {});

 private:
  PartWriter(const Plan& plan, std::shared_ptr<Communicator> communicator, int64_t part, FileCalls& calls);
  CheckpointFile WriteInto(const std::string& folder, const SavedState& saved);

  const std::shared_ptr<Communicator> communicator_;
  const int64_t part_;
  FileCalls& calls_;
  std::vector<bool> own_;  // by index into Plan::state
};

// Throws Error(kDiverged) naming a tensor of `saved` that is not finite; `where` as in Error.
void CheckFinite(const SavedState& saved, const std::string& where = "");

}  // namespace gradloom
