#include "tools/run/train/run_checkpoints.h"

#include <filesystem>
#include <new>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/stopwatch.h"
#include "runtime/plan/memory_report.h"
#include "tools/run/train/run_folder.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

// The keys under which the manifest stores states.
constexpr char kTrainer[] = "trainer";
constexpr char kRecords[] = "records";

// The size limit of a checkpoint file. The header of a safetensors file may have 100 MB, and foreign state is to be refused by name rather
// than by size, unless it is very large.
int64_t LimitFor(const Plan& plan) { return 4 * SavedStateBytes(plan) + (int64_t{1} << 30); }

// Above this number of bytes of state, a better state waits for the write in progress instead of being copied meanwhile: large models
// should not need the memory for a second copy.
constexpr int64_t kMostKeptBytes = int64_t{64} << 20;

CheckpointOptions OptionsOf(const Configuration& configuration) { return {.keep = configuration.Integer("checkpoint.keep")}; }

// The folder of the run with these checkpoints, quoted for a shell.
std::string RunOf(const std::string& checkpoints) { return ShellWord(std::filesystem::path(checkpoints).parent_path().string()); }

std::string CallbackOf(const Manifest& manifest, const std::string& name) {
  const auto found = manifest.callbacks.find(name);
  return found == manifest.callbacks.end() ? "" : found->second;
}

}  // namespace

bool HasCheckpoints(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (ParseCheckpointName(it->path().filename().string()) == CheckpointName::kCheckpoint) return true;
  }
  return false;
}

RunCheckpoints::RunCheckpoints(const std::string& folder, const Configuration& configuration, const TrainingSetUp& set_up, Session& session,
                               Log& log, PartCollector* parts)
    : set_up_(set_up),
      session_(session),
      log_(log),
      plan_(IdentityOf(*set_up.plan)),
      folder_(folder, plan_, OptionsOf(configuration)),
      parts_(parts),
      continue_on_failure_(configuration.Text("checkpoint.on_error") == "continue") {
  for (const std::string& name : folder_.leftovers()) log_.Line("skipped " + Escaped(name, 4096) + ": an unfinished save; removed");
}

std::optional<Checkpoint> RunCheckpoints::Newest() {
  FoundCheckpoint found = FindNewestCheckpoint(folder_.path(), LimitFor(*set_up_.plan));
  bool damaged = false;
  for (const SkippedCheckpoint& skipped : found.skipped) {
    log_.Line("skipped " + Escaped(skipped.path, 4096) + ": " + skipped.why);
    const std::string name = std::filesystem::path(skipped.path).filename().string();
    damaged |= ParseCheckpointName(name) == CheckpointName::kCheckpoint;
  }
  if (!found.checkpoint && damaged) {
    throw Error(ErrorCode::kCheckpoint, "no checkpoint of the run can be loaded", Escaped(folder_.path(), 4096),
                "gradloom resume " + RunOf(folder_.path()) + " --from start   restarts it from the first step");
  }
  return std::move(found.checkpoint);
}

Checkpoint RunCheckpoints::Choose(const std::string& from) {
  const std::string path = from == "best" ? folder_.BestPath() : from.find('/') != std::string::npos ? from : folder_.path() + "/" + from;
  if (path.empty())
    throw Error(ErrorCode::kCheckpoint, "the run has no best checkpoint", Escaped(folder_.path(), 4096),
                "gradloom resume " + RunOf(folder_.path()) + "   continues from the newest");
  try {
    return Checkpoint::Load(path, LimitFor(*set_up_.plan));
  } catch (const Error& error) {
    const FoundCheckpoint other = FindNewestCheckpoint(folder_.path(), LimitFor(*set_up_.plan));
    if (error.code() != ErrorCode::kCheckpoint || !other.checkpoint) throw;
    const std::string name = std::filesystem::path(other.checkpoint->folder()).filename().string();
    throw Error(error.code(), error.message(), error.where(), "gradloom resume " + RunOf(folder_.path()) + " --from " + name);
  }
}

bool RunCheckpoints::Restore(const std::string& from, const ResumeChecks& checks, bool any_plan) {
  if (from == "start") return false;
  std::optional<Checkpoint> checkpoint = from.empty() ? Newest() : Choose(from);
  if (!checkpoint) return false;
  checks.CheckNextRows(*checkpoint, session_.seed());
  const Manifest& manifest = checkpoint->manifest();
  trainer_state_ = CallbackOf(manifest, kTrainer);
  records_state_ = CallbackOf(manifest, kRecords);
  if (trainer_state_.empty() || records_state_.empty()) {
    throw Error(ErrorCode::kCheckpoint, "the checkpoint was not saved by gradloom train", Escaped(checkpoint->folder(), 4096),
                "start a new run from its weights with --init-weights");
  }
  try {
    checkpoint->Restore(session_, plan_, any_plan);
  } catch (const Error& error) {
    throw checks.Explained(error);
  }
  for (const std::string& warning : checkpoint->Warnings()) log_.Line("warning " + warning);
  for (const std::string& difference : DifferencesOf(manifest.plan, plan_)) log_.Line("changed " + difference);
  last_path_ = checkpoint->folder();
  if (from.empty()) {
    for (const std::string& warning : folder_.FinishSave(std::filesystem::path(last_path_).filename().string(), manifest))
      log_.Line("warning " + warning);
  }
  saved_batch_ = session_.batch();
  saved_step_ = session_.step();
  restored_ = std::move(checkpoint);
  return true;
}

void RunCheckpoints::Keep(const Trainer& trainer, RunRecords& records, RunScreen& screen) {
  trainer_ = &trainer;
  records_ = &records;
  screen_ = &screen;
}

void RunCheckpoints::Warn(const std::string& text) {
  screen_->Clear();
  log_.Line("warning " + text);
}

void RunCheckpoints::OnStep(const StepReport&) {
  if (writing_ && written_) Finish();
}

void RunCheckpoints::OnEvaluation(const EvaluationReport&) {
  // One that a stop has interrupted before, after this step: what it found is not saved yet.
  if (session_.batch() == saved_batch_) saved_batch_ = -1;
}

void RunCheckpoints::OnSave(SaveReason reason) {
  const Stopwatch time;
  if (writing_ && written_) Finish();
  if (!PutsOff(reason)) {
    FinishAll();
    const bool saves = session_.batch() != saved_batch_ || reason == SaveReason::kBest;
    if (parts_ != nullptr) parts_->Announce(saves);
    if (saves) Save(reason == SaveReason::kBest, reason != SaveReason::kBest && reason != SaveReason::kInterval);
    if (reason == SaveReason::kFailure && saved_batch_ == session_.batch()) {
      screen_->Clear();
      log_.Line("saved   " + Escaped(last_path_, 4096) + "   before the failure: gradloom resume " + RunOf(folder_.path()) + "   goes on");
    }
  }
  seconds_ += time.seconds();
}

bool RunCheckpoints::PutsOff(SaveReason reason) {
  // Processes that save parts agree on the next save only after this one is complete.
  if (!writing_ || parts_ != nullptr) return false;
  if (reason == SaveReason::kInterval) return set_up_.may_skip_saves || current_.batch == session_.batch();
  return reason == SaveReason::kBest && set_up_.may_skip_saves && KeepBest();
}

bool RunCheckpoints::KeepBest() {
  if (SavedStateBytes(*set_up_.plan) > kMostKeptBytes) return false;
  // The state that was kept before is not the best any more.
  has_next_ = false;
  Describe(true, next_);
  has_next_ = Copy(next_);
  return has_next_;
}

void RunCheckpoints::Describe(bool best, PendingSave& save) const {
  const int64_t batch = session_.batch(), per_epoch = trainer_->batches_per_epoch();
  save.state.cursor = {batch / per_epoch, batch % per_epoch, set_up_.options.batch, set_up_.data.train.rows()};
  save.state.callbacks = {{kTrainer, trainer_->state()}, {kRecords, records_->state()}};
  save.best = best;
  save.batch = batch;
  save.step = session_.step();
}

bool RunCheckpoints::Copy(PendingSave& save) {
  try {
    save.copy.Take(session_);
    return true;
  } catch (const std::bad_alloc&) {
    save.copy.Release();
  }
  if (!std::exchange(told_, true)) {
    Warn("training waits for each save: a copy of the state takes " + std::to_string((SavedStateBytes(*set_up_.plan) >> 20) + 1) +
         " MiB of memory, which are not free");
  }
  return false;
}

void RunCheckpoints::Save(bool best, bool last) {
  // What a run had at its end is older than this checkpoint, even if it had trained for longer, so nobody may take it for the newest. It
  // is removed first, because a process may be killed in between.
  std::error_code error;
  std::filesystem::remove(RunFolder::Open(std::filesystem::path(folder_.path()).parent_path().string()).StatePath(), error);
  Describe(best, current_);
  // A run that has ended waits anyway. (Reading partial sums would add the zeros of the other devices to them, which changes -0.)
  const bool direct = last && !set_up_.plan->HasPartialState();
  if (direct) {
    current_.copy.Release();
    next_.copy.Release();
  }
  const bool copied = !direct && Copy(current_);
  if (copied) {
    StartWrite();
  } else {
    Write(SavedStateOf(session_));
    writing_ = true;
  }
  if (last || !copied) FinishAll();
}

void RunCheckpoints::StartWrite() {
  written_ = false;
  writer_.Start([this] { Write(current_.copy.state()); });
  writing_ = true;
}

void RunCheckpoints::Write(const SavedState& saved) {
  try {
    CheckFinite(saved, last_path_.empty() ? "" : "last checkpoint: " + Escaped(last_path_, 4096));
    saved_ = folder_.Save(saved, current_.state, current_.best, parts_);
  } catch (...) {
    failure_ = std::current_exception();
  }
  // For values that are not finite, no save was started.
  if (parts_ != nullptr) parts_->Abandon();
  written_ = true;
}

void RunCheckpoints::Finish() {
  if (writing_) {
    writer_.Wait();
    writing_ = false;
    TakeResult();
  }
  if (!has_next_) return;
  has_next_ = false;
  std::swap(current_, next_);
  StartWrite();
}

void RunCheckpoints::TakeResult() {
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  try {
    if (failure != nullptr) std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (!continue_on_failure_ || error.code() != ErrorCode::kResource) throw;
    return Warn("saving the checkpoint of step " + std::to_string(current_.step) + " failed: " + error.message());
  }
  const SavedCheckpoint saved = *std::exchange(saved_, std::nullopt);
  for (const std::string& warning : saved.warnings) Warn(warning);
  last_path_ = saved.path;
  ++saves_;
  saved_batch_ = current_.batch;
  saved_step_ = current_.step;
}

void RunCheckpoints::FinishAll() {
  while (writing_ || has_next_) Finish();
}

void RunCheckpoints::WaitIgnoringErrors() {
  while (writing_ || has_next_) {
    try {
      Finish();
    } catch (const std::exception&) {
      // The run has failed for another reason.
    }
  }
}

}  // namespace gradloom
