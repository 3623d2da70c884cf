#include "runtime/session/session.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "runtime/base/counted.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/joined.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/comm/communicator.h"
#include "runtime/exec/step_at_exit.h"
#include "runtime/plan/average_state.h"
#include "runtime/plan/loss_scale_state.h"
#include "runtime/session/entry_match.h"
#include "runtime/session/job_state.h"
#include "runtime/session/schedule.h"
#include "runtime/session/session_copy.h"

namespace gradloom {
namespace {

constexpr std::string_view kLoss = "loss";
constexpr std::string_view kGradNorm = "grad_norm";
constexpr int64_t kShownEntries = 4;

std::string_view KindName(EntryKind kind) {
  switch (kind) {
    case EntryKind::kStep: return "training step";
    case EntryKind::kAccumulate: return "accumulation step";
    case EntryKind::kUpdate: return "update";
    case EntryKind::kEval: return "evaluation";
    case EntryKind::kPredict: return "prediction";
    case EntryKind::kLastBatch: return "last batch of an update";
  }
  return "";
}

// Of equal names, the first counts.
template <typename Named>
std::unordered_map<std::string_view, int> IndicesOf(const std::vector<Named>& named) {
  std::unordered_map<std::string_view, int> indices;
  for (size_t i = 0; i < named.size(); ++i) indices.emplace(named[i].name, static_cast<int>(i));
  return indices;
}

}  // namespace

Session::Session(std::shared_ptr<const Plan> plan, SessionOptions options) : options_(std::move(options)) { Load(std::move(plan)); }

void Session::Load(std::shared_ptr<const Plan> plan) {
  const auto own = std::make_shared<Plan>(*plan);  // shares programs and tensors
  plan.reset();                                    // tensors that nobody else holds are freed as soon as the state has a copy
  if (executor_ == nullptr) {
    executor_ = Executor::Make(own, options_.executor);
  } else if (!KeepsState(*own, *plan_)) {
    throw Error(ErrorCode::kInternal, "the plan with another shape keeps its state in other places");
  } else if (!executor_->Extend(own)) {
    // A device may not have room for the memory of steps of both. If making the new one fails, the old one allocates its own again.
    executor_->ReleaseMemory();
    std::unique_ptr<Executor> made = Executor::Make(own, options_.executor, executor_->shared_state());
    made->TakeOver(*executor_);
    executor_ = std::move(made);
  }
  // The state has copies now. The initial values are as large as all weights together.
  for (StateTensor& tensor : own->state) tensor.initial = Tensor();
  states_ = IndicesOf(own->state);
  fetches_.clear();
  for (const Entry& entry : own->entries) fetches_.push_back(IndicesOf(entry.fetches));
  plan_ = own;
}

int Session::FindEntry(EntryKind kind, const Feeds& feeds) {
  int entry = FittingEntry(*plan_, kind, feeds);
  if (entry < 0 && options_.source != nullptr) {
    const FeedShapes shapes = ShapesToAdd(*plan_, kind, feeds);
    const std::shared_ptr<const Plan> extended = shapes.empty() ? nullptr : options_.source->Extend(*plan_, kind, shapes);
    if (extended != nullptr) {
      Load(extended);
      entry = FittingEntry(*plan_, kind, feeds);
    }
  }
  if (entry >= 0) return entry;
  ThrowNoEntry(kind, feeds);
}

void Session::ThrowNoEntry(EntryKind kind, const Feeds& feeds) const {
  std::string why, shapes;
  std::set<std::string, std::less<>> taken;
  int64_t most = -1, entries = 0;
  for (const Entry& candidate : plan_->entries) {
    if (candidate.kind != kind) continue;
    // Describes the mismatch with the closest entry: a session that has compiled other sizes has many.
    if (const int64_t fitting = CountFitting(candidate, feeds); fitting > most) {
      most = fitting;
      why = Mismatch(candidate, feeds);
    }
    if (++entries <= kShownEntries) shapes += (shapes.empty() ? "" : " | ") + ShapesOf(candidate);
    for (const Feed& feed : candidate.feeds) taken.insert(feed.name);
  }
  if (entries > kShownEntries) shapes += ", and " + std::to_string(entries - kShownEntries) + " more";
  for (const auto& [name, value] : feeds) {
    if (!why.empty() && !taken.contains(name)) why += "; the plan has no input '" + Escaped(name) + "'";
  }
  if (why.empty()) {
    throw Error(ErrorCode::kConfig, "the plan has no entry for a " + std::string(KindName(kind)), "",
                "compile it with that entry   see: gradloom compile --help");
  }
  throw Error(ErrorCode::kData, "the feeds do not match any " + std::string(KindName(kind)) + " of the plan: " + why, "",
              "the plan takes: " + shapes);
}

std::pair<int64_t, int64_t> Session::RowsRead(EntryKind kind, int64_t batch) const {
  const int entry = plan_->FindEntry(kind, batch);
  if (communicator() == nullptr || entry < 0) return {0, batch};
  // If parts of a model are on separate devices, one part may read samples that another one holds.
  const std::vector<RankBinding>& ranks = plan_->entries[static_cast<size_t>(entry)].ranks;
  if (std::any_of(ranks.begin(), ranks.end(), [](const RankBinding& rank) { return !rank.peers.empty(); })) return {0, batch};
  int64_t first = batch, last = 0;
  const RankRange own = communicator()->OwnRanks(plan_->num_ranks());
  for (int rank = own.first; rank < own.last; ++rank) {
    const RankBinding& binding = plan_->entries[static_cast<size_t>(entry)].ranks[static_cast<size_t>(rank)];
    if (binding.shard_length == 0) continue;
    first = std::min(first, binding.shard_start);
    last = std::max(last, binding.shard_start + binding.shard_length);
  }
  return first < last ? std::pair(first, last) : std::pair<int64_t, int64_t>(0, 1);
}

int Session::host_threads() const {
  const RankRange all{0, static_cast<int>(plan_->num_ranks())};
  const RankRange own = communicator() == nullptr ? all : communicator()->OwnRanks(plan_->num_ranks());
  return std::min(Executor::ThreadsOf(*plan_, own), NumCores());
}

std::vector<std::string> Session::AllGather(const std::string& own) const {
  return communicator() == nullptr ? std::vector<std::string>{own} : communicator()->AllGather(own);
}

bool Session::copies_inputs() const {
  return std::any_of(plan_->programs.begin(), plan_->programs.end(), [](const Program& program) { return program.input_bytes > 0; });
}

void Session::Run(int entry_index, const Feeds& feeds, NextRun next) {
  const Entry& entry = plan_->entries[static_cast<size_t>(entry_index)];
  bound_.clear();
  for (const Feed& feed : entry.feeds) bound_.push_back(Bound(feed, feeds));
  StepParams params;
  params.lr = learning_rate();
  params.step = step_ + 1;
  params.batch = batch_;
  params.seed = options_.seed;
  // A run that fails may have written over the fetches of the one before.
  last_entry_ = -1;
  overrun_ = false;
  try {
    executor_->Run(entry_index, bound_, params, std::move(next));
  } catch (...) {
    torn_ = torn_ || !executor_->KeptState();
    throw;
  }
  last_entry_ = entry_index;
  if (const NumericsLog* log = executor_->numerics()) KeepLossOrigin(*log, entry);
}

// An update that runs after it keeps the origin of the batch's loss.
void Session::KeepLossOrigin(const NumericsLog& log, const Entry& entry) {
  bool first = true;
  for (size_t f = 0; f < entry.fetches.size(); ++f) {
    const std::string& name = entry.fetches[f].name;
    const std::vector<std::string>& terms = plan_->loss_terms;
    if (name != kLoss && std::find(terms.begin(), terms.end(), name) == terms.end()) continue;
    if (std::exchange(first, false)) loss_origin_.reset();
    if (!loss_origin_) loss_origin_ = log.OriginOfFetch(f);
  }
}

// Copies the fetches of the last entry, because another entry is about to run in the same memory.
void Session::KeepFetches() {
  const auto& fetches = plan_->entries[static_cast<size_t>(last_entry_)].fetches;
  overrun_fetches_.resize(fetches.size());
  for (size_t i = 0; i < fetches.size(); ++i) {
    const TensorView view = executor_->Fetched(last_entry_, static_cast<int>(i));
    Tensor& kept = overrun_fetches_[i];
    if (kept.dtype() != view.dtype || kept.shape() != view.shape) kept = Tensor(view.dtype, view.shape);
    std::memcpy(kept.data(), view.data, static_cast<size_t>(view.bytes()));
  }
}

void Session::set_epoch(int64_t batches) {
  epoch_ = UpdateRuleOf(*plan_, batches).epoch;
  set_position(step_, batch_);
}

bool Session::EndsUpdate(int64_t batch, int64_t accumulated) const {
  return accumulated + 1 >= plan_->accumulate || (epoch_ > 0 && (batch + 1) % epoch_ == 0);
}

EntryKind Session::TrainingKind(bool last) const {
  if (!CountsBatches()) return EntryKind::kStep;
  return last && plan_->HasEntry(EntryKind::kLastBatch) ? EntryKind::kLastBatch : EntryKind::kAccumulate;
}

StepResult Session::Step(const Feeds& feeds, const std::function<const Feeds*()>& next) {
  const StepAtExit running;  // a step may be several runs, between which no exit may save the state
  if (accumulated_ > 0 && !CountsBatches()) {
    throw Error(ErrorCode::kConfig,
                "the gradients of " + Counted(accumulated_, "batch have", "batches have") + " been accumulated but not applied", "",
                "run the update or drop the gradients before a full training step");
  }
  StepResult result;
  result.lr = learning_rate();
  result.updated = EndsUpdate(batch_, accumulated_);
  const EntryKind kind = TrainingKind(result.updated);
  const int found = FindEntry(kind, feeds);
  NextRun ahead;
  if (next && copies_inputs()) {
    const bool next_ends = EndsUpdate(batch_ + 1, result.updated ? 0 : accumulated_ + 1);
    ahead = [plan = plan_, then = TrainingKind(next_ends), next](std::vector<TensorView>& views) {
      const Feeds* const given = next();
      const int entry = given == nullptr ? -1 : FittingEntry(*plan, then, *given);
      if (entry < 0) return -1;
      for (const Feed& feed : plan->entries[static_cast<size_t>(entry)].feeds) views.push_back(Bound(feed, *given));
      return entry;
    };
  }
  Run(found, feeds, std::move(ahead));
  const int trained = last_entry_;
  result.loss = loss();
  result.terms = loss_terms();
  parts_pending_ = kind == EntryKind::kAccumulate && plan_->HasPartialState();
  const bool updates_separately = result.updated && kind == EntryKind::kAccumulate;
  if (updates_separately) {
    KeepFetches();
    // Until the update of what has been accumulated is done.
    const bool torn = std::exchange(torn_, true);
    Run(FindEntry(EntryKind::kUpdate, {}), {});
    torn_ = torn;
    parts_pending_ = false;
  }
  if (result.updated && HasFetch(kGradNorm)) {
    result.grad_norm = ElementAsDouble(Fetched(kGradNorm), 0);
  }
  last_entry_ = trained;
  overrun_ = updates_separately;
  CountBatch(result.updated);
  result.step = step_;
  result.batch = batch_;
  return result;
}

void Session::CountBatch(bool updated) {
  ++batch_;
  if (updated) ++step_;
  if (CountsBatches()) accumulated_ = updated ? 0 : accumulated_ + 1;
}

void Session::CheckSeparateUpdate() const {
  if (CountsBatches()) {
    throw Error(ErrorCode::kConfig, "the plan itself accumulates " + std::to_string(plan_->accumulate) + " batches per update", "",
                "use Step, or compile the plan with train.accumulate = 1");
  }
  if (plan_->FindEntry(EntryKind::kUpdate, 0) < 0) {
    throw Error(ErrorCode::kConfig, "the plan computes gradients and update only as one step", "",
                "compile it with gradients: GRADLOOM_WITH_GRADIENTS, gradients=True in Python, or gradloom compile --gradients");
  }
}

StepResult Session::Accumulate(const Feeds& feeds) {
  CheckSeparateUpdate();
  StepResult result;
  result.lr = learning_rate();
  Run(FindEntry(EntryKind::kAccumulate, feeds), feeds);
  result.loss = loss();
  result.terms = loss_terms();
  result.step = step_;
  result.batch = ++batch_;
  ++accumulated_;
  return result;
}

StepResult Session::Update() {
  CheckSeparateUpdate();
  if (accumulated_ == 0) throw Error(ErrorCode::kConfig, "no gradients are accumulated", "", "run a training step first");
  StepResult result;
  result.lr = learning_rate();
  Run(FindEntry(EntryKind::kUpdate, {}), {});
  if (HasFetch(kGradNorm)) result.grad_norm = ElementAsDouble(Fetched(kGradNorm), 0);
  accumulated_ = 0;
  result.updated = true;
  result.step = ++step_;
  result.batch = batch_;
  return result;
}

void Session::DropGradients() {
  CheckSeparateUpdate();
  for (const StateTensor& state : plan_->state) {
    if (state.kind == StateKind::kAccumulator) executor_->state().Set(state, Tensor(state.dtype, state.shape).view());
  }
  accumulated_ = 0;
}

void Session::SetGradient(const StateTensor& sum, const TensorView& value) {
  CheckSeparateUpdate();
  executor_->state().Set(sum, value);
  accumulated_ = std::max<int64_t>(accumulated_, 1);
}

void Session::KeepState() {
  const StateArena& arena = executor_->state();
  kept_.state.resize(arena.ranks());
  int64_t missing = 0;
  for (size_t rank = 0; rank < arena.ranks(); ++rank) {
    if (arena.holds(rank) && SnapshotRank(rank) == rank && kept_.state[rank].empty()) missing += arena.bytes(rank);
  }
  if (missing > 0)
    RequireHostMemory(missing, "the copy of the state that undoes a step", "", "stop at values that are not finite: --on-nan stop");
  for (size_t rank = 0; rank < arena.ranks(); ++rank) {
    if (!arena.holds(rank) || SnapshotRank(rank) != rank) continue;
    std::vector<std::byte>& kept = kept_.state[rank];
    kept.resize(static_cast<size_t>(arena.bytes(rank)));
    arena.SaveArena(rank, kept.data());
  }
  kept_.step = step_;
  kept_.batch = batch_;
  kept_.accumulated = accumulated_;
  kept_.parts_pending = parts_pending_;
}

// Ranks of one place hold the same state, except for partial sums.
size_t Session::SnapshotRank(size_t rank) const {
  const StateArena& arena = executor_->state();
  size_t first = plan_->HasPartialState() ? rank : 0;
  while (!arena.holds(first) || plan_->PlaceOf(first) != plan_->PlaceOf(rank)) ++first;
  return first;
}

void Session::UndoStep() {
  StateArena& arena = executor_->state();
  for (size_t rank = 0; rank < arena.ranks(); ++rank) {
    if (!arena.holds(rank)) continue;
    const std::vector<std::byte>& kept = kept_.state.at(SnapshotRank(rank));
    GRADLOOM_CHECK(static_cast<int64_t>(kept.size()) == arena.bytes(rank));
    arena.RestoreArena(rank, kept.data());
  }
  torn_ = false;
  set_position(kept_.step, kept_.batch);
  // The position does not tell it if steps were made before epochs ended updates.
  accumulated_ = kept_.accumulated;
  parts_pending_ = kept_.parts_pending;
}

StepResult Session::SkipBatch(bool none_left) {
  const StepAtExit running;
  StepResult result{.lr = learning_rate()};
  const bool ends = CountsBatches() && EndsUpdate(batch_, accumulated_);
  result.updated = ends && !none_left;
  if (result.updated) {
    Run(FindEntry(EntryKind::kUpdate, {}), {});
    parts_pending_ = false;
  }
  CountBatch(result.updated);
  if (ends) accumulated_ = 0;
  result.step = step_;
  result.batch = batch_;
  return result;
}

std::string Session::OwnNonFiniteState() const {
  SavedState saved = SavedStateOf(*this);
  saved.get = [this](const StateTensor& state) { return executor_->state().Get(state); };
  return gradloom::NonFiniteState(saved);
}

std::string Session::NonFiniteState() const {
  std::string found = OwnNonFiniteState();
  if (communicator() == nullptr || (EachProcessHoldsState(*plan_, communicator()) && !plan_->HasPartialState())) return found;
  const std::vector<std::string> all = communicator()->AllGather(found);
  for (const StateTensor& state : plan_->state) {
    if (std::find(all.begin(), all.end(), state.name) != all.end()) return state.name;
  }
  return "";
}

std::optional<NonFiniteOrigin> Session::OriginOfState(const std::string& state) const {
  const int index = state.empty() ? -1 : FindState(state);
  if (index < 0 || !checks_numerics()) return std::nullopt;
  return executor_->numerics()->OriginOfState(plan_->state[static_cast<size_t>(index)]);
}

std::string Session::NonFiniteOrigin(const std::string& state) const {
  if (!checks_numerics()) return "";
  const std::optional<gradloom::NonFiniteOrigin> own = loss_origin_ ? loss_origin_ : OriginOfState(state);
  if (communicator() == nullptr) return own ? own->text : "";
  // The kind in front makes the best origin the least text; of equal ones, that of the first process is taken.
  const std::string sent = own ? std::to_string(static_cast<int>(own->kind)) + own->text : "";
  std::string best;
  for (const std::string& text : communicator()->AllGather(sent)) {
    if (!text.empty() && (best.empty() || text[0] < best[0])) best = text;
  }
  return best.empty() ? "" : best.substr(1);
}

bool Session::checks_numerics() const { return executor_->numerics() != nullptr; }

std::string Session::OwnNonFiniteOrigin() const {
  if (!checks_numerics()) return "";
  const std::optional<gradloom::NonFiniteOrigin> own = OriginOfState(OwnNonFiniteState());
  return own ? own->text : "";
}

std::optional<Session::LossScaleCounts> Session::loss_scale() const {
  const int index = FindState(kLossScaleState);
  if (index < 0 || !Holds(plan_->state[static_cast<size_t>(index)])) return std::nullopt;
  return LossScaleCounts{.scale = ElementAsDouble(Get(kLossScaleState).view(), 0),
                         .skipped = IntValues(Get(kSkippedUpdatesState).view())[0]};
}

double Session::loss() const {
  if (HasFetch(kLoss)) return ElementAsDouble(Fetched(kLoss), 0);
  double sum = 0;
  for (const double term : loss_terms()) sum += term;
  return sum;
}

std::vector<double> Session::loss_terms() const {
  std::vector<double> values;
  for (const std::string& name : plan_->loss_terms) values.push_back(ElementAsDouble(Fetched(name), 0));
  return values;
}

void Session::Forward(EntryKind kind, const Feeds& feeds) { Run(FindEntry(kind, feeds), feeds); }

std::map<std::string, Tensor> Session::Evaluate(const Feeds& feeds) {
  Forward(EntryKind::kEval, feeds);
  std::map<std::string, Tensor> values = FetchAll();
  if (!values.contains(std::string(kLoss)) && !plan_->loss_terms.empty()) {
    Tensor sum(DType::kFloat64, Shape{});
    sum.as<double>()[0] = loss();
    values.emplace(kLoss, std::move(sum));
  }
  return values;
}

std::map<std::string, Tensor> Session::Predict(const Feeds& feeds) {
  Forward(EntryKind::kPredict, feeds);
  return FetchAll();
}

std::map<std::string, Tensor> Session::FetchAll() const {
  std::map<std::string, Tensor> values;
  const Entry& entry = plan_->entries[static_cast<size_t>(last_entry_)];
  for (size_t i = 0; i < entry.fetches.size(); ++i) {
    if (!IsOnlyExtent(entry, i)) values.emplace(entry.fetches[i].name, Tensor::Copy(FetchedAt(static_cast<int>(i))));
  }
  return values;
}

int Session::FindFetch(std::string_view name) const {
  if (last_entry_ < 0) return -1;
  const Indices& fetches = fetches_[static_cast<size_t>(last_entry_)];
  const auto found = fetches.find(name);
  return found == fetches.end() ? -1 : found->second;
}

bool Session::HasFetch(std::string_view name) const { return FindFetch(name) >= 0; }

int Session::FetchIndex(std::string_view name) const {
  if (const int index = FindFetch(name); index >= 0) return index;
  if (last_entry_ < 0) {
    throw Error(ErrorCode::kConfig,
                "there is no output '" + Escaped(name) + "': nothing has run yet, the last run failed, or memory was released since", "",
                "run a training step, an evaluation or a prediction first");
  }
  const Entry& entry = plan_->entries[static_cast<size_t>(last_entry_)];
  const std::string known = JoinedTexts(entry.fetches, [](const Fetch& fetch) { return Escaped(fetch.name); });
  const std::string ran = "the last run, of the kind '" + std::string(KindName(entry.kind)) + "', has no output";
  if (known.empty()) {
    throw Error(ErrorCode::kConfig, ran + "s, so there is no '" + Escaped(name) + "'", "",
                "run a training step, an evaluation or a prediction, and read its outputs before the next run");
  }
  std::vector<std::string> kinds;  // of runs that have it
  for (const Entry& other : plan_->entries) {
    const std::string kind(KindName(other.kind));
    const bool has = std::ranges::any_of(other.fetches, [&](const Fetch& fetch) { return fetch.name == name; });
    if (has && other.kind != entry.kind && std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  }
  const std::string elsewhere = JoinedTexts(
      kinds, [](const std::string& kind) { return (std::string_view("aeu").find(kind[0]) == std::string::npos ? "a " : "an ") + kind; });
  throw Error(ErrorCode::kConfig, ran + " '" + Escaped(name) + "'", "",
              "it has: " + known + (kinds.empty() ? "" : "; another kind of run has it: " + elsewhere));
}

TensorView Session::Fetched(std::string_view name) const { return FetchedAt(FetchIndex(name)); }

TensorView Session::FetchedAt(int index) const {
  return overrun_ ? overrun_fetches_[static_cast<size_t>(index)].view() : executor_->Fetched(last_entry_, index);
}

std::optional<DeviceTensor> Session::FetchedOnDevice(std::string_view name) const {
  const int index = FetchIndex(name);
  const Fetch& fetch = plan_->entries[static_cast<size_t>(last_entry_)].fetches[static_cast<size_t>(index)];
  if (overrun_ || !fetch.extents.empty()) return std::nullopt;
  return executor_->FetchedOnDevice(last_entry_, index);
}

bool Session::PartsPending() const { return parts_pending_; }

void Session::JoinParts() {
  if (!parts_pending_) return;
  for (const StateTensor& state : plan_->state) {
    if (state.partial) JoinPartsOf(state, *plan_, communicator(), executor_->state());
  }
  parts_pending_ = false;
}

int Session::FindState(std::string_view state) const {
  const auto found = states_.find(state);
  return found == states_.end() ? -1 : found->second;
}

std::string Session::TrainedState(const std::string& weight) const {
  const int average = FindState(AverageOf(weight));
  return average >= 0 && plan_->state[static_cast<size_t>(average)].kind == StateKind::kAverage ? AverageOf(weight) : weight;
}

Tensor Session::Get(std::string_view state) const {
  const int index = FindState(state);
  if (index < 0)
    throw Error(ErrorCode::kConfig, "the plan has no state '" + Escaped(state) + "'", "", "gradloom inspect PLAN   lists them");
  if (parts_pending_ && communicator() != nullptr && plan_->state[static_cast<size_t>(index)].partial) {
    throw Error(ErrorCode::kPlan, "each process holds only a part of '" + Escaped(state) + "' until the next update", "",
                "read it or save after the update");
  }
  return executor_->state().Get(plan_->state[static_cast<size_t>(index)]);
}

void Session::Set(std::string_view state, const TensorView& value) {
  const int index = FindState(state);
  if (index < 0 || plan_->state[static_cast<size_t>(index)].derived())
    throw Error(ErrorCode::kConfig, "the plan has no state '" + Escaped(state) + "'", "", "gradloom inspect PLAN   lists them");
  const StateTensor& set = plan_->state[static_cast<size_t>(index)];
  executor_->state().Set(set, value);
  // Before the first update, the average is the weight.
  if (set.kind != StateKind::kParameter || step_ > 0) return;
  if (const int average = FindState(TrainedState(set.name)); average != index)
    executor_->state().Set(plan_->state[static_cast<size_t>(average)], value);
}

void Session::set_position(int64_t step, int64_t batch) {
  step_ = step;
  batch_ = batch;
  if (CountsBatches()) accumulated_ = UpdateRule{plan_->accumulate, epoch_}.Pending(batch);
}

double Session::learning_rate() const { return fixed_lr_ >= 0 ? fixed_lr_ : LearningRate(plan_->schedule, step_); }

void Session::ReleaseMemory() {
  executor_->ReleaseMemory();
  last_entry_ = -1;
}

int64_t Session::planned_bytes() const {
  int64_t most = 0;
  for (size_t rank = 0; rank < plan_->num_ranks(); ++rank) {
    const Place& place = plan_->places[static_cast<size_t>(plan_->PlaceOf(rank))];
    most = std::max(most, place.state_bytes + place.constants_bytes + executor_->transient_bytes(rank) + executor_->input_bytes(rank));
  }
  return most;
}

}  // namespace gradloom
