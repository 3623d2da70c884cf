#include "tools/run/train/training_job.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/host_name.h"
#include "runtime/base/thrown.h"
#include "runtime/base/version.h"
#include "runtime/checkpoint/plan_identity.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/device/choose_devices.h"
#include "runtime/exec/check_machine.h"
#include "runtime/exec/shared_parameters.h"
#include "runtime/plan/plan_file.h"
#include "runtime/session/job_state.h"
#include "tools/run/options/job_devices.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/train/job.h"
#include "tools/screen/screen.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

// Keys that may differ between processes: where a run is written and what is shown, which only rank 0 does.
constexpr std::string_view kOwn[] = {"run.", "log.", "job.", "train.dry_run", "train.collective_timeout", "train.connect_timeout"};

// Timeout until the first step, while processes read data and compile.
constexpr auto kSetUp = std::chrono::minutes(10);

std::chrono::seconds SecondsOf(const Configuration& configuration, const char* name) {
  const std::string& text = configuration.Text(name);
  try {
    const Interval interval = Interval::Parse(text, name);
    // Ten years do not overflow where they are counted in nanoseconds.
    constexpr int64_t kMost = int64_t{10} * 365 * 24 * 3600;
    if (interval.unit == Interval::Unit::kSeconds) return std::chrono::seconds(std::min(interval.count, kMost));
  } catch (const Error&) {
    // A timeout has fewer forms than an interval, so the error below is the right one.
  }
  throw Error(ErrorCode::kConfig, std::string(name) + " cannot be '" + Escaped(text) + "'", "", "expected 90s or 10min");
}

// The GPUs may differ between processes.
bool WantsGpus(const DeviceSpec& devices) { return devices.best || devices.kind == DeviceKind::kCuda; }

// Adds this process's topology to an error, because it may be why others do not connect.
std::shared_ptr<Communicator> ConnectJob(const JobTopology& topology, const CommunicatorOptions& options) {
  try {
    return Communicator::Connect(topology, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kPeer) throw;
    throw Error(error.code(), error.message(),
                (error.where().empty() ? "" : error.where() + "; ") + "topology " + Escaped(ToString(topology), 1000), error.help());
  }
}

bool IsOwn(std::string_view key) {
  return std::any_of(std::begin(kOwn), std::end(kOwn), [&](std::string_view own) { return key.starts_with(own); });
}

}  // namespace

std::shared_ptr<TrainingJob> TrainingJob::Join(const Configuration& configuration, const std::function<void(const JobTopology&)>& known) {
  auto job = std::shared_ptr<TrainingJob>(new TrainingJob);
  job->topology_ = TopologyOf(configuration);
  known(job->topology_);
  // Parsed even if it does not matter, so that errors are reported.
  job->timeout_ = SecondsOf(configuration, "train.collective_timeout");
  const auto connect_timeout = SecondsOf(configuration, "train.connect_timeout");
  if (job->topology_.world == 1) return job;
  job->hogwild_ = configuration.Text("train.sync") == "hogwild";
  job->communicator_ = ConnectJob(job->topology_, {.timeout = kSetUp,
                                                   .connect_timeout = connect_timeout,
                                                   .shared_memory = configuration.Text("train.transport") == "auto",
                                                   .mpi = configuration.Text("train.transport") == "mpi"});
  job->waited_.resize(static_cast<size_t>(job->topology_.world));
  job->waited_before_ = job->waited_;
  return job;
}

std::string TrainingJob::TransportLine() const { return alone() ? "" : "transport " + Escaped(communicator_->transport(), 200); }

std::string TrainingJob::BroadcastText(const std::string& text) const { return alone() ? text : communicator_->Broadcast(text); }

void TrainingJob::Refuse(const Error& error) const {
  communicator_->Leave();
  throw error;
}

void TrainingJob::AbortFor(const std::exception_ptr& failure) const {
  if (alone()) return;
  // A launcher that sees another process end, possibly at once, asks all to end. This process ends by itself once it has reported the
  // reason.
  std::signal(SIGTERM, SIG_IGN);
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    communicator_->Abort(std::string(ErrorName(error.code())) + ": " + error.message());
  } catch (const std::exception& thrown) {
    const Error error = ErrorFrom(thrown);
    communicator_->Abort(std::string(ErrorName(error.code())) + ": " + error.message());
  }
}

void TrainingJob::CheckSame(const std::string& lines, const std::string& help) const {
  if (alone()) return;
  // Every process would get the lines of all others, and those of data in many files are long.
  const std::vector<std::string> hashes = communicator_->AllGather(HashText(HashOf(lines)));
  if (std::all_of(hashes.begin(), hashes.end(), [&](const std::string& hash) { return hash == hashes.front(); })) return;
  const std::vector<std::string> all = communicator_->AllGather(lines);
  for (int process = 1; process < communicator_->processes(); ++process) {
    if (all[static_cast<size_t>(process)] == all[0]) continue;
    std::istringstream first(all[0]), other(all[static_cast<size_t>(process)]);
    std::string here, there;
    while (here == there) {
      if (!std::getline(first, here)) here = "nothing else";
      if (!std::getline(other, there)) there = "nothing else";
    }
    Refuse({ErrorCode::kConfig,
            "the processes of the job differ: " + communicator_->name(0) + " has " + Escaped(here, 400) + ", but " +
                communicator_->name(process) + " has " + Escaped(there, 400),
            "", help});
  }
}

void TrainingJob::CheckConfiguration(const Configuration& configuration, bool resumed) const {
  if (alone()) return;
  std::string lines = std::string("version = ") + kVersion + "\n" + (resumed ? "a resumed run\n" : "a new run\n");
  for (const Key& key : Keys()) {
    if (IsOwn(key.name)) continue;
    if (std::string_view(key.name) == "devices.use" && WantsGpus(ParseDevices(configuration.Text(key.name)))) {
      lines += "devices.use = GPUs\n";
      continue;
    }
    lines +=
        std::string(key.name) + " = " + (configuration.has_value(key.name) ? TomlOf(key, configuration.value(key.name)) : "nothing") + "\n";
  }
  CheckSame(lines, "start all processes with the same command, configuration and release");
}

namespace {

// What is not supported if processes update parameters without locks.
std::optional<Error> HogwildObstacle(const Configuration& configuration, const JobTopology& topology) {
  const auto obstacle = [&](const std::string& what, const char* key, const std::string& help) {
    return Error(ErrorCode::kUnsupported, what, Escaped(configuration.origin(key).ToString(), 4096),
                 help + ", or train with  --sync allreduce");
  };
  const DeviceSpec devices = ParseDevices(configuration.Text("devices.use"));
  if (devices.kind != DeviceKind::kCpu)
    return obstacle("hogwild needs CPU devices: the parameters of a GPU are in its own memory", "devices.use", "omit --devices");
  if (devices.count > 1) return obstacle("with hogwild each process must have one device", "devices.use", "omit --devices");
  if (topology.nodes > 1)
    return obstacle("hogwild needs all processes on one host, but the job has " + std::to_string(topology.nodes), "train.sync",
                    "start it on one host");
  if (configuration.Integer("train.accumulate") > 1)
    return obstacle("with hogwild each process updates after each of its batches", "train.accumulate", "omit --accumulate");
  // A micro-batch below the batch size results in several batches per update once the plan is set up.
  if (const int64_t micro = configuration.Integer("data.micro_batch"); micro > 0 && micro < configuration.Integer("data.batch"))
    return obstacle("with hogwild each process updates after each of its batches", "data.micro_batch", "omit --micro-batch");
  if (configuration.has_value("optimizer.ema"))
    return obstacle("with hogwild each process would average the weights after its own updates only", "optimizer.ema", "omit --ema");
  if (configuration.Text("train.on_nan") == "skip")
    return obstacle("with hogwild an update cannot be undone, as other processes build on it", "train.on_nan", "omit --on-nan");
  return std::nullopt;
}

}  // namespace

void TrainingJob::ShareDevices(Configuration& configuration, bool resumed) const {
  if (alone()) return;
  if (hogwild_) {
    if (const std::optional<Error> obstacle = HogwildObstacle(configuration, topology_)) {
      // All processes have found this, and none must take the end of another one for a failure.
      communicator_->Leave();
      throw Error(*obstacle);
    }
    configuration.Decide("devices.use", "cpu:1", kJobOrigin);
    if (configuration.Integer("devices.threads") == 0)
      configuration.Decide("devices.threads", std::to_string(std::max(1, ThreadsOfProcess(topology_.local_world))), kJobOrigin);
    return;
  }
  const int world = topology_.world;
  const bool of_the_job = resumed && configuration.origin("devices.use").kind == OriginKind::kFile;
  const DeviceSpec devices = ParseDevices(configuration.Text("devices.use"));
  if (WantsGpus(devices)) return ShareGpus(configuration, devices, of_the_job);
  const int given = std::max(devices.count, 1), all = of_the_job ? given : given * world;
  if (all < world) RefuseTooFew(configuration, all);
  configuration.Decide("devices.use", "cpu:" + std::to_string(all), kJobOrigin);
  ShareThreads(configuration, all);
}

void TrainingJob::RefuseTooFew(const Configuration& configuration, int devices) const {
  const Origin& origin = configuration.origin("devices.use");
  const bool gpus = WantsGpus(ParseDevices(configuration.Text("devices.use")));
  Refuse({ErrorCode::kConfig,
          "the run is for " + std::to_string(devices) + " devices, but the job has " + std::to_string(topology_.world) + " processes",
          Escaped(origin.ToString(), 4096),
          std::string("start as many processes as there are devices, or use  --devices ") + (gpus ? "cuda" : "cpu:1") + "  for one each"});
}

void TrainingJob::ShareThreads(Configuration& configuration, int devices) const {
  if (configuration.Integer("devices.threads") > 0) return;
  // The number that a single process would use, on the host with the fewest.
  const int mine = std::max(1, ThreadsOfProcess(topology_.local_world) / ((devices + topology_.world - 1) / topology_.world));
  int fewest = mine;
  for (const std::string& theirs : communicator_->AllGather(std::to_string(mine))) fewest = std::min(fewest, std::atoi(theirs.c_str()));
  configuration.Decide("devices.threads", std::to_string(std::max(fewest, 1)), kJobOrigin);
}

void TrainingJob::ShareGpus(Configuration& configuration, const DeviceSpec& wanted, bool of_the_job) const {
  DeviceSpec own = wanted;
  if (of_the_job && wanted.count > 0 && wanted.count < topology_.world) RefuseTooFew(configuration, wanted.count);
  if (of_the_job && !wanted.ordinals.empty()) {
    const RankRange mine = communicator_->OwnRanks(wanted.ordinals.size());
    own.ordinals.assign(wanted.ordinals.begin() + mine.first, wanted.ordinals.begin() + mine.last);
    own.count = mine.count();
  }
  std::vector<OwnDevices> all;
  for (const std::string& text : communicator_->AllGather(TakeOwnDevices(own, topology_, ThisMachinesCuda()).ToText()))
    all.push_back(OwnDevices::FromText(text));
  OwnDevices together;
  try {
    together = CombineDevices(all, Names());
  } catch (const Error& error) {
    Refuse(error);
  }
  configuration.Decide("devices.use", together.devices.ToString(), kJobOrigin);
  // GPU numbers of other processes are not looked up on this one.
  if (together.devices.kind == DeviceKind::kCuda && !configuration.is_set("devices.target"))
    configuration.Decide("devices.target", together.isa, kJobOrigin);
  if (together.devices.kind == DeviceKind::kCpu) ShareThreads(configuration, together.devices.count);
}

std::vector<std::string> TrainingJob::Names() const {
  std::vector<std::string> names;
  for (int process = 0; process < communicator_->processes(); ++process) names.push_back(communicator_->name(process));
  return names;
}

void TrainingJob::DivideWork(Configuration& configuration) {
  if (alone()) return;
  const DeviceSpec wanted = ParseDevices(configuration.Text("devices.use"));
  const bool placed = !configuration.Texts("devices.place").empty() || GathersByConfiguration(configuration);
  const bool enough = configuration.origin("devices.use").kind != OriginKind::kFile || wanted.count >= topology_.world;
  // Lists of GPUs may differ, but all processes must decide alike.
  shares_batches_ = BroadcastText(placed && enough ? "together" : "") == "together";
  if (shares_batches_) return ShareDevices(configuration, true);
  if (topology_.local_world == 1) return;
  DeviceSpec taken = wanted;
  if (wanted.best || wanted.kind == DeviceKind::kCuda) taken = DeviceOfLocalRank(wanted, topology_.local_rank, ThisMachinesCuda());
  if (taken.ordinals != wanted.ordinals) configuration.Decide("devices.use", taken.ToString(), kJobOrigin);
  if (configuration.Integer("devices.threads") > 0) return;
  const int threads = ThreadsOfProcess(topology_.local_world) / std::max(wanted.count, 1);
  configuration.Decide("devices.threads", std::to_string(std::max(threads, 1)), kJobOrigin);
}

void TrainingJob::CheckSetUp(const TrainingSetUp& set_up) const {
  if (alone()) return;
  const Plan& plan = *set_up.plan;
  const PlanIdentity identity = IdentityOf(plan);
  std::string lines = "model " + identity.model_hash + "\n";
  for (const auto& [name, value] : identity.parts) lines += name + " " + Escaped(value, 1000) + "\n";
  lines += "plan " + PlanHash(plan) + "\n";
  lines += std::to_string(set_up.data.train.rows()) + " rows to train on\n" + std::to_string(set_up.data.eval.rows()) +
           " rows to evaluate with\n";
  lines += DataToJson(set_up.data);
  CheckSame(lines, "make sure that all processes read the same model and data, with the same release on the same kind of processor");
}

void TrainingJob::CheckMemory(const Plan& plan, bool apart) const {
  if (alone()) return;
  const RankRange all_ranks{0, static_cast<int>(plan.num_ranks())};
  int64_t wanted = HostBytesOf(plan, apart || hogwild_ ? all_ranks : communicator_->OwnRanks(plan.num_ranks()));
  if (hogwild_ && !apart) {
    // Rank 0 has a copy to evaluate and save; the others share its parameters.
    wanted += leads() ? wanted : -SharedStateBytes(plan);
  }
  std::vector<HostMemoryRequest> requests;
  for (const std::string& text :
       communicator_->AllGather(std::to_string(wanted) + " " + std::to_string(FreeHostBytes()) + " " + HostName())) {
    HostMemoryRequest& request = requests.emplace_back();
    std::istringstream words(text);
    words >> request.wanted_bytes >> request.free_bytes >> request.host;
  }
  try {
    CheckHosts(requests);
  } catch (const Error& error) {
    Refuse(error);
  }
}

void TrainingJob::CheckWeights(const Plan& plan, const std::string& path) const {
  if (EachProcessHoldsState(plan, communicator_.get())) return;
  // A manifest has the hashes of a checkpoint's files.
  const uint64_t hash = std::filesystem::is_directory(path) ? HashOf(ReadWholeFile(path + "/MANIFEST")) : WeightFiles(path).ContentHash();
  CheckSame("weights " + HashText(hash), "make sure that all processes read the same --init-weights");
}

void TrainingJob::CheckFolder(const std::string& folder) const {
  namespace fs = std::filesystem;
  constexpr char kSeen[] = "yes";
  // Another folder may have the same name on another host, but not the entry that rank 0 creates in it now. The entry is removed in any
  // case.
  fs::path probe;
  std::error_code error;
  if (leads()) {
    probe = fs::absolute(folder) / ("step-000000.tmp." + std::to_string(std::random_device()()));
    if (!fs::create_directory(probe, error)) throw WriteError("cannot create the folder", probe.string(), error.value());
  }
  const std::string path = BroadcastText(probe.string());
  const std::vector<std::string> all = communicator_->AllGather(fs::is_directory(path, error) ? kSeen : "");
  if (leads()) fs::remove(probe, error);
  for (size_t process = 0; process < all.size(); ++process) {
    if (all[process] == kSeen) continue;
    Refuse({ErrorCode::kConfig,
            communicator_->name(static_cast<int>(process)) + " does not see the run's folder, where it must save its part of the model",
            Escaped(FolderOf(path), 4096), "set --out to a folder that all hosts of the job share"});
  }
}

void TrainingJob::ShareState(Session& session, std::string& trainer_state, int64_t saved_step, const Checkpoint* restored) {
  if (alone()) return;
  int64_t position[] = {session.step(), session.batch(), saved_step};
  communicator_->Broadcast(position, sizeof position);
  trainer_state = communicator_->Broadcast(trainer_state);
  BroadcastState(session, *communicator_,
                 restored == nullptr ? ReadState() : ReadState([restored](const std::string& name) { return restored->Read(name); }));
  session.set_position(position[0], position[1]);
  saved_step_ = position[2];
  EndSetUp();
}

void TrainingJob::EndSetUp() const {
  if (!alone()) communicator_->set_timeout(timeout_);
}

std::shared_ptr<SharedTraining> TrainingJob::ShareParameters(const Plan& plan) const {
  return hogwild_ && !alone() ? SharedTraining::Make(plan, communicator_) : nullptr;
}

// Rank 0 collects the reports and tells all the result, so that the others have two messages per step, however many they are. A call
// collects the reports of the call before, which have arrived by now, and acts on what the call before has collected, which the others
// have received by now. So nobody waits for a process that is less than a step behind.
int TrainingJob::StopSignal(int received, int64_t saved_step, bool save_is_due) {
  if (alone()) return received;
  const StepNews mine{received, saved_step, communicator_->waited().count(), save_is_due ? 1 : 0};
  waited_[static_cast<size_t>(communicator_->process())] = mine.waited;
  StepNews agreed;
  if (leads()) {
    agreed = std::exchange(collected_, reports_ > 0 ? CollectReports() : StepNews());
    saved_step_ = saved_step;
  } else {
    communicator_->Send(0, Communicator::kScalarsTag, &mine, sizeof mine);
    if (reports_ > 1) {
      communicator_->Receive(0, Communicator::kScalarsTag, &agreed, sizeof agreed);
      saved_step_ = agreed.saved_step;
    }
  }
  ++reports_;
  reported_ = mine;
  save_agreed_ |= agreed.save_is_due != 0;
  return static_cast<int>(agreed.signal);
}

TrainingJob::StepNews TrainingJob::CollectReports() {
  StepNews news = reported_;
  for (int i = 1; i < communicator_->processes(); ++i) {
    StepNews theirs;
    communicator_->Receive(i, Communicator::kScalarsTag, &theirs, sizeof theirs);
    if (news.signal == 0) news.signal = theirs.signal;
    waited_[static_cast<size_t>(i)] = theirs.waited;
  }
  for (int i = 1; i < communicator_->processes(); ++i) communicator_->Send(i, Communicator::kScalarsTag, &news, sizeof news);
  return news;
}

void TrainingJob::SetBusy(bool busy) {
  if (alone()) return;
  communicator_->SetBusy(busy);
  if (busy) {
    busy_since_ = std::chrono::steady_clock::now();
  } else {
    busy_ += std::chrono::steady_clock::now() - busy_since_;
  }
}

TrainingJob::WaitTime TrainingJob::TakeWaitTime() {
  using Seconds = std::chrono::duration<double>;
  const auto now = std::chrono::steady_clock::now();
  const double seconds = Seconds(now - taken_).count(), busy = Seconds(busy_).count();
  std::vector<double> waited;
  for (size_t i = 0; i < waited_.size(); ++i) {
    waited.push_back(static_cast<double>(waited_[i] - waited_before_[i]) * 1e-9);
    // Waiting for a file to be written does not make a process a straggler.
    if (i != 0) waited.back() = std::max(waited.back() - busy, 0.0);
  }
  const auto found = leads() ? FindStraggler(waited, seconds - busy) : std::nullopt;
  late_ = !found
              ? ""
              : communicator_->name(found->process) + ": the others wait " + Short(std::round(100 * found->share)) + "% of the time for it";
  waited_before_ = waited_;
  taken_ = now;
  busy_ = {};
  return {waited.empty() ? 0 : waited[static_cast<size_t>(topology_.rank)], seconds};
}

std::string TrainingJob::Activity(const Error& error) const {
  if (!error.where().empty()) return "waited " + error.where() + (phase_ == JobPhase::kEvaluation ? " of an evaluation" : "");
  switch (phase_) {
    case JobPhase::kStart: return "was starting";
    case JobPhase::kSteps: return hogwild_ ? "was training" : "waited between two steps";
    case JobPhase::kEvaluation: return "was evaluating";
    case JobPhase::kSave: return "was saving";
    case JobPhase::kEnd: return "waited for the others to end";
    case JobPhase::kPrediction: return "was predicting";
  }
  return "";
}

Error TrainingJob::Located(const Error& error) const {
  const bool open = error.where().empty() || error.where().starts_with("in ");
  if (alone() || error.code() != ErrorCode::kPeer || !open) return error;
  return {error.code(), error.message(), "rank " + std::to_string(topology_.rank) + " " + Activity(error),
          error.message().find(Communicator::kStopped) == std::string::npos ? "start the job again" : "see its own output"};
}

Error TrainingJob::Explained(const Error& error, int64_t step, const std::string& run, int64_t saved_step) const {
  if (alone() || error.code() != ErrorCode::kPeer) return error;
  saved_step = std::max(saved_step, saved_step_);
  const std::string checkpoint =
      saved_step < 0 ? "there is no checkpoint yet" : "last checkpoint: step " + WithCommas(saved_step) + " (complete)";
  const std::string when = phase_ == JobPhase::kSteps ? ", at step " + WithCommas(step + 1) : ", after step " + WithCommas(step);
  return {error.code(), error.message() + when, "rank " + std::to_string(topology_.rank) + " " + Activity(error) + "; " + checkpoint,
          saved_step < 0 ? "start the job again" : "gradloom resume " + ShellWord(run)};
}

void TrainingJob::Leave() const {
  if (!alone()) communicator_->Leave();
}

}  // namespace gradloom
