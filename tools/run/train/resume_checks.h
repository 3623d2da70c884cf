// Checks of a run that is resumed against what it has recorded.
#pragma once

#include <string>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/session/session.h"
#include "tools/config/configuration.h"
#include "tools/run/set_up.h"
#include "tools/run/train/run_folder.h"

namespace gradloom {

// A key whose value is not that of the run that is resumed.
struct ChangedKey {
  const Key* key = nullptr;
  std::string text;  // "optimizer.lr = 0.1, was 0.01"
};

// The checks of a run with these changes. All arguments are borrowed.
class ResumeChecks {
 public:
  ResumeChecks(const RunFolder& run, const TrainingSetUp& set_up, const std::vector<ChangedKey>& changed)
      : run_(run), set_up_(set_up), changed_(changed) {}

  // Of a run that begins again. Throws Error(kCheckpoint) if its model is not the one that it began with, or if other rows would be trained
  // on and no change asks for that. Returns lines that say what else is different about its plan.
  std::vector<std::string> CheckBeginning() const;

  // Of a run that continues: throws Error(kCheckpoint) if the next rows would not be the same as in the run without a stop. `seed`: of the
  // session.
  void CheckNextRows(const Checkpoint& checkpoint, int64_t seed) const;

  // The error of a checkpoint that does not fit the plan; if a change may be the cause, its help is to undo that.
  Error Explained(const Error& error) const;

  // Throws Error(kConfig) if a change would let the run end before what the session has done already.
  void CheckLength(const Configuration& configuration, const Session& session) const;

 private:
  std::string DataPath() const { return run_.File("data.json"); }
  bool IsChanged(std::string_view name) const;
  // "omit --batch, or start a new run with --init-weights runs/exp1", or `otherwise` instead of what to omit; `decides`: which keys may be
  // the cause.
  std::string HelpToUndo(bool (*decides)(const Key& key), const std::string& otherwise) const;

  const RunFolder& run_;
  const TrainingSetUp& set_up_;
  const std::vector<ChangedKey>& changed_;
};

}  // namespace gradloom
