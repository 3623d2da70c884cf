#include "tools/run/train/resume_checks.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>

#include "runtime/base/checked.h"
#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/plan/plan_file.h"
#include "runtime/session/update_rule.h"
#include "tools/screen/screen.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

// Which rows a batch has.
bool DecidesRows(const Key& key) { return key.section() == "data" || std::string_view(key.name) == "train.seed"; }

// What a step computes. The other keys say how long a run is, and what is measured, saved and shown.
bool DecidesSteps(const Key& key) {
  for (const char* section : {"eval", "checkpoint", "log", "run", "job"}) {
    if (key.section() == section) return false;
  }
  for (const char* name : {"train.epochs", "train.steps", "train.early_stop", "train.on_nan"}) {
    if (std::string_view(key.name) == name) return false;
  }
  return true;
}

}  // namespace

bool ResumeChecks::IsChanged(std::string_view name) const {
  return std::any_of(changed_.begin(), changed_.end(), [&](const ChangedKey& changed) { return changed.key->name == name; });
}

std::string ResumeChecks::HelpToUndo(bool (*decides)(const Key& key), const std::string& otherwise) const {
  std::string flags;
  for (const ChangedKey& changed : changed_) {
    if (decides(*changed.key)) flags += (flags.empty() ? "" : ", ") + std::string(changed.key->flag);
  }
  return (flags.empty() ? otherwise : "omit " + flags) + ", or start a new run with --init-weights " + ShellWord(run_.path());
}

std::vector<std::string> ResumeChecks::CheckBeginning() const {
  const PlanIdentity before = IdentityOf(ReadPlan(run_.PlanPath())), now = IdentityOf(*set_up_.plan);
  const std::vector<std::string> differences = DifferencesOf(before, now, "when the run began", "now");
  if (before.model_hash != now.model_hash) {
    throw Error(ErrorCode::kCheckpoint, "the run began with another model: " + differences.front(), Escaped(set_up_.model_path, 4096),
                HelpToUndo([](const Key& key) { return key.section() == "model"; }, "restore the model file that the run began with"));
  }
  const std::string path = DataPath();
  if (std::filesystem::exists(path)) {
    // Nothing is lost if another share is held back from a run that begins.
    const bool asked = IsChanged("data.eval_split") || IsChanged("data.eval") || IsChanged("train.seed");
    const std::string difference = DifferenceOfData(ReadWholeFile(path), Escaped(path, 4096), set_up_.data, !asked);
    if (!difference.empty()) {
      throw Error(ErrorCode::kCheckpoint, "the data is not what the run began with: " + difference, Escaped(path, 4096),
                  HelpToUndo(DecidesRows, "resume with the original data"));
    }
  }
  return before.hash == now.hash ? std::vector<std::string>() : differences;
}

void ResumeChecks::CheckNextRows(const Checkpoint& checkpoint, int64_t seed) const {
  const DataCursor& cursor = checkpoint.manifest().cursor;
  const int64_t rows = set_up_.data.train.rows(), batch = set_up_.options.batch;
  std::string difference;
  if (cursor.rows == rows && cursor.batch_size == batch) {
    difference = DifferenceOfData(ReadWholeFile(DataPath()), Escaped(DataPath(), 4096), set_up_.data);
    // Another seed, which holds back other rows, is told by Checkpoint::Restore.
    if (difference.empty() || checkpoint.manifest().seed != seed) return;
  } else if (cursor.rows == rows) {
    difference = "a run keeps the size of its batches: it was trained in batches of " + std::to_string(cursor.batch_size) +
                 ", and would go on in batches of " + std::to_string(batch);
  } else {
    difference = "the run was trained on " + std::to_string(cursor.rows) + " rows in batches of " + std::to_string(cursor.batch_size) +
                 "; there are now " + std::to_string(rows) + " rows in batches of " + std::to_string(batch);
  }
  throw Error(ErrorCode::kCheckpoint, difference, Escaped(checkpoint.folder(), 4096),
              HelpToUndo(DecidesRows, "resume with the original data"));
}

Error ResumeChecks::Explained(const Error& error) const {
  if (error.code() != ErrorCode::kCheckpoint ||
      std::ranges::none_of(changed_, DecidesSteps, [](const ChangedKey& changed) -> const Key& { return *changed.key; }))
    return error;
  return {error.code(), error.message(), error.where(),
          HelpToUndo(DecidesSteps, "") + (error.help().empty() ? "" : "   (" + error.help() + ")")};
}

void ResumeChecks::CheckLength(const Configuration& configuration, const Session& session) const {
  if (!IsChanged("train.epochs") && !IsChanged("train.steps")) return;
  const TrainerOptions& options = set_up_.options;
  const int64_t per_epoch = (set_up_.data.train.rows() + options.batch - 1) / options.batch, done = session.batch();
  const bool by_steps = options.updates > 0;
  const int64_t total = by_steps ? UpdateRuleOf(*set_up_.plan, per_epoch).BatchesOf(options.updates)
                                 : CheckedMul(options.epochs, per_epoch).value_or(std::numeric_limits<int64_t>::max());
  if (total >= done) return;
  std::string had = Counted(session.step(), "step");
  if (!by_steps) {
    had = Counted(done / per_epoch, "epoch");
    if (done % per_epoch > 0)
      had += " and " + std::to_string(done % per_epoch) + " of the " + std::to_string(per_epoch) + " batches of the next";
  }
  const char* flag = by_steps ? "--steps" : "--epochs";
  const int64_t least = by_steps ? session.step() : (done + per_epoch - 1) / per_epoch;
  throw Error(ErrorCode::kConfig,
              "the run has trained for " + had + " already, and " + flag + " " +
                  std::to_string(by_steps ? options.updates : options.epochs) + " counts all of them",
              Escaped(configuration.origin(by_steps ? "train.steps" : "train.epochs").ToString(), 4096),
              std::string("use ") + flag + " " + std::to_string(least) + " or more, or --from with an earlier checkpoint");
}

}  // namespace gradloom
