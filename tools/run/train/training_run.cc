#include "tools/run/train/training_run.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "compiler/onnx/export/export.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/free_memory.h"
#include "runtime/base/stopwatch.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "runtime/session/shared_training.h"
#include "tools/run/options/deterministic.h"
#include "tools/run/options/idle_flags.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/outputs.h"
#include "tools/run/records/environment.h"
#include "tools/run/records/hparams.h"
#include "tools/run/records/run_instruments.h"
#include "tools/run/records/run_profile.h"
#include "tools/run/records/run_records.h"
#include "tools/run/serve/trained_model.h"
#include "tools/run/set_up.h"
#include "tools/run/stop_signals.h"
#include "tools/run/train/initial_weights.h"
#include "tools/run/train/job.h"
#include "tools/run/train/run_checkpoints.h"
#include "tools/run/train/run_ending.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/run_observers.h"
#include "tools/run/train/run_parts.h"
#include "tools/run/train/run_screen.h"
#include "tools/run/train/training_job.h"
#include "tools/screen/json_line.h"
#include "tools/screen/shell_word.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

// The NCCL variables of the environment, which NCCL reads itself.
std::string NcclVariables() {
  std::string text;
  for (const char* name : kNcclVariables) {
    if (const char* value = std::getenv(name)) text += (text.empty() ? "" : " ") + std::string(name) + "=" + Escaped(value, 200);
  }
  return text;
}

class TrainingRun {
 public:
  TrainingRun(const Configuration& configuration, bool json, const std::shared_ptr<TrainingJob>& job,
              std::optional<RecipePlan> planned = std::nullopt)
      : configuration_(configuration),
        json_((json || configuration.Text("log.report") == "json") && job->leads()),
        job_(job),
        planned_(std::move(planned)) {
    // If the reader of the output closes it, the run continues, and its folder has the same lines.
    std::signal(SIGPIPE, SIG_IGN);
    SetStderrLines(configuration.Text("log.format") == "json", job_->leads() ? configuration.Text("log.file") : "");
    // Only rank 0 prints.
    log_.set_quiet(!job_->leads());
    if (!job_->leads()) configuration_.Decide("log.progress", "none", "rank " + std::to_string(job_->topology().rank));
    RequireDeterministic(configuration_);
    // These lines were printed before waiting for the others.
    for (const std::string& line : LinesOf(job_->topology())) log_.Record(line);
    if (!job_->alone()) log_.Line(job_->TransportLine());
    if (const std::string nccl = NcclVariables(); !nccl.empty()) log_.Line("nccl    " + nccl);
    if (job_->leads()) PrintSetKeys(configuration_);
  }

  int Train() {
    CheckOutputs(!configuration_.Switch("train.dry_run"));
    SetUp();
    if (configuration_.Switch("train.dry_run")) {
      PrintHeader(log_, configuration_, set_up_, "");
      if (json_) std::printf("%s\n", JsonLine(ReportOfDryRun(set_up_)).c_str());
      return 0;
    }
    if (job_->leads()) {
      instruments_->Measure(configuration_, *session_, *set_up_.plan);
      MakeFolder();
      PrintHeader(log_, configuration_, set_up_, folder_->path());
    }
    return TrainAndFinish();
  }

  int Resume(const ResumeOptions& options) {
    resumed_ = true;
    run_ = options.run;
    from_start_ = options.from == "start";
    if (!job_->leads()) {
      SetUp();
      return TrainAndFinish();
    }
    folder_ = RunFolder::Open(options.run);
    folder_->CheckWritten();
    CheckOutputs(false);
    SetUp();
    instruments_->Measure(configuration_, *session_, *set_up_.plan);
    PrintHeader(log_, configuration_, set_up_, folder_->path());
    OpenCheckpoints();
    // From now on the run belongs to this process.
    log_.AttachFile(folder_->File("log.txt"));
    for (const ChangedKey& change : options.changed) log_.Line("config  " + change.text);
    // A changed plan is written again, with its initial weights.
    if (options.changed.empty()) ReleaseInitialPlan();
    const ResumeChecks checks(*folder_, set_up_, options.changed);
    const bool restored = checkpoints_->Restore(options.from, checks, !options.changed.empty());
    if (restored) {
      if (snapshot_) CopyState(*snapshot_, *session_);
      log_.Line("resume  " + Escaped(checkpoints_->last_path(), 4096) + "  step " + std::to_string(session_->step()));
      checks.CheckLength(configuration_, *session_);
    } else {
      for (const std::string& difference : checks.CheckBeginning()) log_.Line("changed " + difference);
      log_.Line("resume  " + FromStart());
    }
    WriteEnvironment(ResumedEnvironment());
    RecordData(restored);
    if (!options.changed.empty()) {
      WriteFileAtomically(folder_->ConfigPath(), ConfigurationOfRun());
      WritePlan(*set_up_.plan, folder_->PlanPath());
    }
    return TrainAndFinish();
  }

 private:
  // Checks before compilation what would otherwise fail when it is written.
  void CheckOutputs(bool new_run) {
    CheckIdleFlags(configuration_);
    if (!job_->leads()) return;
    CheckOutputsOfRun(configuration_, new_run);
    if (!configuration_.Switch("train.dry_run")) instruments_.emplace(configuration_);
  }

  void SetUp() {
    job_->CheckConfiguration(configuration_, resumed_);
    job_->ShareDevices(configuration_, resumed_);
    const std::unique_ptr<const InitialWeights> weights = OpenInitialWeights();
    SetUpFrom(weights.get());
    for (const auto& [name, text] : set_up_.decided)
      configuration_.Decide(name, text, name == "devices.threads" ? "the cores of this machine" : set_up_.model_path);
    job_->CheckSetUp(set_up_);
    job_->CheckMemory(*set_up_.plan);
    // The GPUs of a target may be on another machine.
    if (configuration_.Switch("train.dry_run") && !configuration_.Text("devices.target").empty()) return;
    SessionOptions options{.seed = configuration_.Integer("train.seed"), .executor = ExecutorOptionsOf(configuration_)};
    shared_ = configuration_.Switch("train.dry_run") ? nullptr : job_->ShareParameters(*set_up_.plan);
    if (shared_ == nullptr) {
      options.executor.communicator = job_->communicator();
    } else {
      if (job_->leads()) snapshot_.emplace(set_up_.plan, options);
      options.executor.parameters = shared_->parameters();
    }
    session_.emplace(set_up_.plan, options);
    // Errors are reported before the run has a folder.
    CheckTrainerOptions(set_up_.options, set_up_.plan->schedule);
    if (configuration_.has_value("train.chaos"))
      session_->executor().SetChaos(static_cast<uint64_t>(configuration_.Integer("train.chaos")));
    if (weights != nullptr) {
      if (weights->path() != configuration_.Text("model.init_weights"))
        set_up_.notes.push_back("weights " + Escaped(weights->path(), 4096));
      set_up_.notes.insert(set_up_.notes.end(), weights->notes().begin(), weights->notes().end());
      LoadWeights(*session_, *weights, configuration_.Texts("model.init_except"), set_up_.frozen, set_up_.notes);
      if (shared_ == nullptr) job_->CheckWeights(*set_up_.plan, weights->path());
    }
    parts_.emplace(*session_, options.executor.communicator, set_up_.options.save);
    // All processes have written initial values; from now on none does.
    if (shared_ != nullptr) shared_->Barrier();
  }

  // Null if the run begins with the weights of its model.
  std::unique_ptr<const InitialWeights> OpenInitialWeights() {
    const std::string& given = configuration_.Text("model.init_weights");
    if (given.empty()) return nullptr;
    // A run that was saved does not need them any more, whatever is at their path by now.
    const bool begins = !resumed_ || from_start_ || (job_->leads() && !HasCheckpoints(folder_->File("checkpoints")));
    constexpr char kBegins[] = "begins";
    if (job_->BroadcastText(begins ? kBegins : "") != kBegins) return nullptr;
    return std::make_unique<const InitialWeights>(given);
  }

  // A resumed run has its frozen weights in its plan, whatever has become of the file or the run that they came from.
  void SetUpFrom(const InitialWeights* weights) {
    std::optional<RecipePlan> planned = std::exchange(planned_, std::nullopt);
    const std::string plan = resumed_ && !configuration_.Text("model.init_weights").empty() ? RunFolder::Open(run_).PlanPath() : "";
    if (std::filesystem::exists(plan)) {
      const std::map<std::string, Tensor> kept = KeptTensors(ReadPlan(plan, PlanTensors::kSkipped).model);
      const FrozenSource own{plan, ValuesOf(kept), {}};
      set_up_ = SetUpTraining(configuration_, std::move(planned), &own);
    } else if (weights != nullptr) {
      const FrozenSource given{weights->path(), weights->values(), configuration_.Texts("model.init_except")};
      set_up_ = SetUpTraining(configuration_, std::move(planned), &given);
    } else {
      set_up_ = SetUpTraining(configuration_, std::move(planned));
    }
  }

  void OpenCheckpoints() {
    checkpoints_.emplace(folder_->File("checkpoints"), configuration_, set_up_, Saved(), log_, parts_->saves());
    folder_->RemoveLeftovers();
  }

  // The session that is evaluated and saved.
  Session& Saved() { return snapshot_ ? *snapshot_ : *session_; }

  // Rank and transport are not stored, since they must not affect how a run is resumed.
  std::string ConfigurationOfRun() const {
    Configuration kept = configuration_;
    kept.ForgetSection("job");
    if (kept.origin("devices.target").place == kJobOrigin) kept.Reset("devices.target");
    if (kept.is_set("train.transport")) kept.Decide("train.transport", "auto", "every job by itself");
    return kept.ToToml(true);
  }

  void MakeFolder() {
    // These throw before the folder is created.
    const std::string configuration = ConfigurationOfRun(), data = DataToJson(set_up_.data) + "\n";
    folder_ = RunFolder::Make(configuration_.Text("run.out"), configuration_.Text("run.name"), configuration_.Text("run.resume") == "auto");
    // Comes first: from here on no other process can start this run.
    OpenCheckpoints();
    WriteFileAtomically(folder_->ConfigPath(), configuration);
    WriteFileAtomically(folder_->File("data.json"), data);
    WriteEnvironment("environment.json");
    WritePlan(*set_up_.plan, folder_->PlanPath());
    log_.AttachFile(folder_->File("log.txt"));
  }

  // What a run that begins again does to what it has written before.
  std::string FromStart() const {
    if (!HasCheckpoints(folder_->File("checkpoints"))) return "from the start: nothing has been saved yet";
    std::string line =
        "from the start, as --from start says: metrics.jsonl and results.csv begin anew, and new checkpoints replace the old ones (--keep)";
    if (std::filesystem::exists(folder_->ExportPath())) line += "; export/model.onnx stays until the run ends";
    return line;
  }

  // Records what a resumed run trains with from now on, and warns if that is not what it has trained with.
  void RecordData(bool trained) {
    const std::string path = folder_->File("data.json"), data = DataToJson(set_up_.data) + "\n";
    const std::string before = std::filesystem::exists(path) ? ReadWholeFile(path) : "";
    if (before == data) return;
    const std::string changes = before.empty() ? "" : ChangesOfFeeds(before, Escaped(path, 4096), set_up_.data);
    if (!changes.empty()) {
      log_.Line(std::string("warning the run ") +
                (trained ? "goes on with other inputs or targets than it has trained with"
                         : "begins again with other inputs or targets than before") +
                ": " + changes + "; if no option asks for that, the data has changed");
    }
    WriteFileAtomically(path, data);
  }

  // The file for the environment of a process that resumes the run. A run that ended before it began is started again with the first file,
  // so that its folder still counts as unbegun (RunFolder::HasNoPlan).
  std::string ResumedEnvironment() const {
    for (int i = 1;; ++i) {
      std::string name = "environment-resume-" + std::to_string(i) + ".json";
      if (!std::filesystem::exists(folder_->File(name))) return name;
    }
  }

  void WriteEnvironment(const std::string& name) const {
    nlohmann::json environment = Environment();
    environment["command"] = CommandLine();
    environment["started"] = Timestamp();
    WriteFileAtomically(folder_->File(name), environment.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

  int TrainAndFinish() {
    const StopSignals signals;
    if (checkpoints_) trainer_state_ = checkpoints_->trainer_state();
    if (parts_->needed()) job_->CheckFolder(folder_ ? folder_->File("checkpoints") : "");
    job_->ShareState(*session_, trainer_state_, SavedStep(), checkpoints_ ? checkpoints_->restored() : nullptr);
    if (checkpoints_) checkpoints_->DropRestored();
    if (shared_ != nullptr) {
      if (job_->leads()) {
        shared_->Begin(session_->batch());
        shared_->set_saved_step(SavedStep());
      }
      shared_->Barrier();
      log_.Line("sync    hogwild: " + std::to_string(shared_->processes()) +
                " processes update one set of parameters without locks; losses of steps are those of rank 0");
    }
    run_path_ = job_->BroadcastText(folder_ ? folder_->path() : "");
    job_->set_phase(JobPhase::kSteps);
    try {
      job_->leads() ? TrainAll() : TrainAlong();
      // Processes that hold parts of the model send them while rank 0 writes; the others need not wait for it.
      const bool complete = ending_.stopped != StopReason::kRequested;
      job_->set_phase(JobPhase::kEnd);
      if (complete && parts_->needed()) job_->leads() ? Save() : parts_->SendParts(*session_);
      job_->Leave();
      if (complete && !parts_->needed() && job_->leads()) Save();
    } catch (const Error& error) {
      if (checkpoints_) checkpoints_->WaitIgnoringErrors();
      const Error explained = shared_ == nullptr ? WithSearch(job_->Explained(error, session_->step(), run_path_, SavedStep()))
                                                 : job_->Explained(error, shared_->done(), run_path_, shared_->saved_step());
      if (screen_) screen_->Clear();
      log_.Record(explained.Describe());
      throw explained;
    }
    const bool stopped = ending_.stopped == StopReason::kRequested;
    if (job_->leads()) {
      if (!stopped) screen_->PrintTable();
      const RunEnding ending = Ending();
      PrintEnding(log_, ending, set_up_, *session_);
      if (json_) std::printf("%s\n", JsonLine(ReportOf(ending, set_up_, *session_)).c_str());
    }
    return stopped ? StopSignals::ExitCodeOf(ending_.signal) : 0;
  }

  // Adds to an error about numbers that are not finite how to find where they came from. A run that is repeated gets there again.
  Error WithSearch(const Error& error) const {
    if (error.code() != ErrorCode::kDiverged || run_path_.empty() || configuration_.Switch("train.check_numerics")) return error;
    return {error.code(), error.message(), error.where(),
            error.help() + "; to see which node it came from:   gradloom resume " + ShellWord(run_path_) + " --check-numerics"};
  }

  // Keeps this rank's log next to rank 0's files; false if this host does not see the run's folder.
  bool KeepRankLog() {
    std::error_code error;
    if (!std::filesystem::is_directory(run_path_, error)) return false;
    const std::filesystem::path logs = std::filesystem::path(run_path_) / "logs";
    std::filesystem::create_directory(logs, error);
    PrintHeader(log_, configuration_, set_up_, run_path_);
    try {
      log_.AttachFile((logs / ("rank-" + std::to_string(job_->topology().rank) + ".log")).string());
      return true;
    } catch (const Error&) {
      // A log file that cannot be written does not end the job.
      return false;
    }
  }

  // The run on a rank other than 0: the same steps and evaluations, without writing anything but its log.
  void TrainAlong() {
    JobLog job_log(*job_, log_, KeepRankLog(), [] {});
    const std::unique_ptr<RunTrace> trace = RunTrace::Make(*session_, configuration_, job_->topology().rank);
    std::vector<TrainerObserver*> listening{&job_log};
    if (trace) listening.insert(listening.begin(), trace.get());
    std::optional<RunProfile> profile;
    if (!configuration_.Text("log.profile").empty()) listening.push_back(&profile.emplace(*session_, *set_up_.plan, ""));
    const std::unique_ptr<RunCheckpointPart> part = parts_->MakePart(*session_);
    if (part != nullptr) listening.push_back(part.get());
    if (trace) listening.push_back(&trace->after());
    Observers observers(listening, *job_, false);
    ReleaseInitialPlan();
    Trainer trainer(*session_, set_up_.data.train, set_up_.data.eval, Options(), observers);
    if (!trainer_state_.empty()) trainer.set_state(trainer_state_);
    ending_.stopped = trainer.Run();
    if (trace) trace->Finish();
    if (profile) profile->Finish();
    if (shared_ != nullptr && ending_.stopped == StopReason::kRequested) ending_.signal = shared_->stop();
  }

  // Frees the initial weights of the plan, which are in the state and on disk by now.
  void ReleaseInitialPlan() {
    set_up_.plan = session_->shared_plan();
    ReturnFreeMemory();
  }

  int64_t SavedStep() const { return checkpoints_ ? checkpoints_->saved_step() : -1; }

  TrainerOptions Options() {
    TrainerOptions options = set_up_.options;
    options.shared = shared_.get();
    if (snapshot_) options.snapshot = &*snapshot_;
    options.stops_evaluations = shared_ == nullptr;
    options.saves_on_failure = job_->alone();
    options.stop_requested = [this] {
      if (shared_ != nullptr) {
        if (StopSignals::received() != 0) shared_->RequestStop(StopSignals::received());
        if (job_->leads()) shared_->set_saved_step(SavedStep());
        return shared_->stop() != 0;
      }
      ending_.signal = job_->StopSignal(StopSignals::received(), SavedStep(), parts_->IsSaveDue());
      return ending_.signal != 0;
    };
    if (parts_->needed()) options.save_is_due = [this] { return parts_->IsDue(job_->TakeSaveAgreed()); };
    return options;
  }

  // The memory that the plan takes on the GPU that holds most of it; 0 if it runs on the CPU.
  int64_t PlannedGpuBytes() const {
    const Plan& plan = session_->plan();
    int64_t most = 0;
    if (plan.targets.front().device != DeviceKind::kCuda) return most;
    for (size_t place = 0; place < plan.places.size(); ++place)
      most = std::max(most, ArenasOf(plan, static_cast<int>(place)).total_bytes());
    return most;
  }

  // Begins the records of the run, or continues them.
  void OpenRecords(int64_t gpu_bytes, std::optional<RunRecords>& recorder) {
    RecordOptions records{.every = configuration_.Integer("log.every"),
                          .tensorboard = configuration_.Switch("log.tensorboard"),
                          .hparams = HparamsOf(configuration_, set_up_.options.batch),
                          .terms = set_up_.plan->loss_terms,
                          .gpu_bytes = gpu_bytes,
                          .memory = [this] { return session_->device_memory(); }};
    if (configuration_.Text("checkpoint.on_error") == "continue") {
      records.on_failure = [this](const Error& error) {
        screen_->Clear();
        log_.Line("warning records of the run are left out: " + error.message() + " (" + error.where() + ")");
      };
    }
    if (set_up_.data.eval.rows() > 0) {
      records.eval_columns = records.terms;
      records.eval_columns.insert(records.eval_columns.begin(), "loss");
      for (const MetricSpec& spec : set_up_.options.metrics) records.eval_columns.push_back(spec.shown());
    }
    const std::string& kept = checkpoints_->records_state();
    if (resumed_) {
      recorder.emplace(folder_->path(), records, kept.empty() ? RunRecords::kStart : kept, kept.empty() ? -1 : session_->step());
    } else {
      recorder.emplace(folder_->path(), records);
    }
  }

  void TrainAll() {
    const int64_t gpu_bytes = PlannedGpuBytes();
    std::optional<RunRecords> recorder;
    OpenRecords(gpu_bytes, recorder);
    ending_.last_epoch = recorder->last_epoch();
    screen_.emplace(log_, configuration_, set_up_);
    instruments_->Begin(configuration_, *session_, folder_->path(), set_up_.model_path, *checkpoints_);
    std::vector<TrainerObserver*> listening = instruments_->first();
    listening.insert(listening.end(), {&*screen_, &*recorder, &*checkpoints_});
    instruments_->AddTo(listening);
    ReportLines report_lines(configuration_.Integer("log.report_every"), set_up_.plan->loss_terms, gpu_bytes);
    if (configuration_.Integer("log.report_every") > 0) listening.push_back(&report_lines);
    if (const std::string page = instruments_->page(); !page.empty()) log_.Line("metrics " + page);
    JobLog job_log(*job_, log_, false, [this] { screen_->Clear(); });
    listening.push_back(&job_log);
    KernelNotes kernel_notes(*session_, log_, [this] { screen_->Clear(); });
    listening.push_back(&kernel_notes);
    instruments_->AddLast(listening);
    // Other processes that train meanwhile do not wait.
    Observers observers(listening, *job_, shared_ == nullptr);
    ReleaseInitialPlan();
    Trainer trainer(*session_, set_up_.data.train, set_up_.data.eval, Options(), observers);
    if (!trainer_state_.empty()) trainer.set_state(trainer_state_);
    if (const std::string& formerly = trainer.formerly_watched(); !formerly.empty())
      log_.Line("best    begins anew: the run compared " + Escaped(formerly) + ", now it compares " +
                Escaped(set_up_.options.watch.ToString()));
    checkpoints_->Keep(trainer, *recorder, *screen_);
    if (session_->batch() >= trainer.total_batches() && !trainer.evaluation_due())
      log_.Line(std::string("the run is complete; to continue it, set more ") + (set_up_.options.updates > 0 ? "--steps" : "--epochs") +
                " than before");
    parts_->StartClock();
    ending_.stopped = trainer.Run();
    if (shared_ != nullptr && ending_.stopped == StopReason::kRequested) ending_.signal = shared_->stop();
    screen_->Clear();
    recorder->Finish();
    if (recorder->lost() > 0) log_.Line("warning " + std::to_string(recorder->lost()) + " records of the run could not be written");
    instruments_->Finish();
    if (trainer.has_best()) ending_.best = {trainer.best(), trainer.best_step()};
    ending_.waited_seconds = trainer.waited_seconds();
    ending_.batches_left_out = trainer.skipped();
    ending_.train_seconds = screen_->seconds();
  }

  // Writes the results of a run that has ended.
  void Save() {
    const Stopwatch time;
    if (parts_->needed()) job_->SetBusy(true);
    StateOfJob state = parts_->State(*session_);
    const auto read = [&](const std::string& name) { return state.Read(name); };
    const auto read_trained = [&](const std::string& name) { return state.Read(session_->TrainedState(name)); };
    std::map<std::string, TensorView> types;
    TrainedValues weights{.types = {}, .read = read_trained};
    for (const StateTensor& tensor : set_up_.plan->state) {
      const TensorView type{tensor.dtype, tensor.shape, nullptr};
      types.emplace(tensor.name, type);
      if (tensor.kind == StateKind::kParameter || tensor.kind == StateKind::kStatistic) weights.types.emplace(tensor.name, type);
    }
    folder_->WriteState(types, read, session_->step(), session_->batch(), session_->seed());
    ExportTrained(set_up_.plan->model, weights, folder_->ExportPath());
    state.End();
    if (parts_->needed()) job_->SetBusy(false);
    save_seconds_ = time.seconds();
  }

  // The ending with everything known so far.
  RunEnding Ending() const {
    RunEnding ending = ending_;
    ending.seconds = time_.seconds();
    ending.save_seconds = save_seconds_ + checkpoints_->seconds();
    ending.run = folder_->path();
    ending.checkpoint = checkpoints_->last_path();
    ending.model = folder_->ExportPath();
    if (screen_->last_epoch() != nullptr) ending.last_epoch = *screen_->last_epoch();
    if (shared_ != nullptr) {
      ending.processes = shared_->processes();
      ending.shared = shared_->counts();
    }
    return ending;
  }

  Configuration configuration_;
  const bool json_;
  const Stopwatch time_;
  const std::shared_ptr<TrainingJob> job_;
  std::optional<RecipePlan> planned_;  // until the set-up
  Log log_;
  TrainingSetUp set_up_;
  std::shared_ptr<SharedTraining> shared_;  // null: gradients are summed, or there is one process
  std::optional<Session> session_;
  std::optional<Session> snapshot_;  // copy of the trained state if that changes during an evaluation
  std::optional<RunFolder> folder_;
  std::optional<RunInstruments> instruments_;
  std::optional<RunCheckpoints> checkpoints_;
  std::optional<RunScreen> screen_;
  bool resumed_ = false;
  std::string run_;          // the folder of a resumed run
  bool from_start_ = false;  // whether the resumed run ignores its checkpoints
  std::optional<RunParts> parts_;
  std::string trainer_state_, run_path_;
  RunEnding ending_;  // as far as the trainer reports it
  double save_seconds_ = 0;
};

}  // namespace

int Train(const Configuration& configuration, bool json, const std::shared_ptr<TrainingJob>& job, std::optional<RecipePlan> planned) {
  return TrainingRun(configuration, json, job, std::move(planned)).Train();
}

int Resume(const Configuration& configuration, const ResumeOptions& options, bool json, const std::shared_ptr<TrainingJob>& job) {
  return TrainingRun(configuration, json, job).Resume(options);
}

}  // namespace gradloom
