// Checkpoints whose state is in several processes of a job. Each process writes a part, a file of the tensors that no process before it
// holds; process 0 adds the manifest when all are on disk. docs/checkpoints.md describes the protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file_calls.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/comm/communicator.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session_copy.h"

namespace gradloom {

// Writes `saved.tensors` as the file of part `part` into the folder of a checkpoint. When this returns, the file and its folder entry are
// on disk. Throws Error(kResource).
CheckpointFile WriteCheckpointPart(const std::string& folder, int64_t part, const SavedState& saved, FileCalls& calls);

// The parts of a save that other processes write, as process 0 sees them.
class OtherParts {
 public:
  virtual ~OtherParts() = default;
  // The folder exists: the others may write.
  virtual void Begin(const std::string& folder) = 0;
  // Waits until parts 1 and following are on disk, and returns them. Throws the error of a process that has failed, naming it.
  virtual std::vector<CheckpointFile> Finish() = 0;
  // After a failed save: waits until nobody writes into its folder any more. Does nothing after Finish; if the save has not begun, tells
  // the others so.
  virtual void Abandon() noexcept = 0;
};

// Process 0's side. It announces whether there is a save.
class PartCollector : public OtherParts {
 public:
  PartCollector(const Plan& plan, std::shared_ptr<Communicator> communicator);

  // Called each time a save could happen. If it does, Announce must not be called again before Finish or Abandon.
  void Announce(bool saves);

  void Begin(const std::string& folder) override;
  std::vector<CheckpointFile> Finish() override;
  void Abandon() noexcept override;

 private:
  enum class Phase : uint8_t { kNone, kAnnounced, kBegun };
  CheckpointFile TakePart(int64_t part);

  const std::shared_ptr<Communicator> communicator_;
  std::vector<int> writers_;  // by part: the process that writes it, this one first
  std::string folder_;
  int64_t taken_ = 0;  // number of parts whose writers have answered, including this process
  Phase phase_ = Phase::kNone;
};

// The side of another process.
class PartWriter {
 public:
  // Null if process 0, or other processes before this one, hold everything that this process holds.
  static std::unique_ptr<PartWriter> Make(const Plan& plan, std::shared_ptr<Communicator> communicator,
                                          FileCalls& calls = FileCalls::System());

  // Waits for process 0's announcement. Throws Error(kPeer).
  bool Announced();

  // After a save was announced: waits for its folder, writes this process's part of `saved`, and reports the result to process 0. May run
  // on another thread. `check`: throws if this part must not be saved. Only throws Error(kPeer).
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
