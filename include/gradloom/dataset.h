// Data sets, and their batches.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/error.h"
#include "gradloom/plan.h"
#include "gradloom/tensor.h"

namespace gradloom {
inline namespace v1 {

struct DataOptions {
  Settings columns{};  // model input or target -> array or columns of the file: {"features", "CRIM..LSTAT"}; none: chosen by docs/data.md
  Settings transforms{};     // input or target -> transform, in order: {"features", "standardize"}
  std::string eval_path{};   // evaluation data of the same format
  std::string eval_split{};  // alternatively, a share to hold back: "20%", "tail:20%"
  int64_t seed = 0;          // of that split
  std::string format{};      // format of all files: csv, tsv, npz, npy, idx, tokens, images or tar; empty: chosen by their names
};

struct BatchOptions {
  int64_t size = 32;      // samples per batch; the last batch of an epoch has the remainder
  int64_t epoch = 0;      // from 0
  int64_t seed = 0;       // decides the order, together with the epoch
  bool in_order = false;  // in the order of the file
};

namespace internal {

// The state of a data set. How to read a data set depends on a plan, so it may be read only when its first batch is used: by the first of
// several threads that use it, for which the others wait.
struct DatasetState {
  std::string path;
  DataOptions options;
  bool of_tensors = false;  // and not read for a plan
  std::mutex reading;
  std::shared_ptr<GradloomDataset> train, eval;  // guarded by `reading` until they are read, and constant then

  void Read(const Plan& plan) {
    const std::lock_guard lock(reading);
    if (train != nullptr) return;
    const auto list = [](const Settings& settings) {
      std::vector<GradloomSetting> pairs;
      for (const auto& [key, value] : settings) pairs.push_back({key.c_str(), value.c_str()});
      return pairs;
    };
    const std::vector<GradloomSetting> columns = list(options.columns), transforms = list(options.transforms);
    auto given = Sized<GradloomDataOptions>();
    given.columns = columns.data();
    given.num_columns = columns.size();
    given.transforms = transforms.data();
    given.num_transforms = transforms.size();
    given.eval_path = options.eval_path.empty() ? nullptr : options.eval_path.c_str();
    given.eval_split = options.eval_split.empty() ? nullptr : options.eval_split.c_str();
    given.seed = options.seed;
    given.format = options.format.empty() ? nullptr : options.format.c_str();
    GradloomDataset *made = nullptr, *held_back = nullptr;
    Check(Api().LoadDataset(path.c_str(), plan.c(), &given, &made, &held_back));
    auto first = Shared(made, Api().ReleaseDataset);
    if (held_back != nullptr) eval = Shared(held_back, Api().ReleaseDataset);
    train = std::move(first);
  }

  bool IsRead() {
    const std::lock_guard lock(reading);
    return train != nullptr;
  }
  GradloomDataset* Handle() {
    const std::lock_guard lock(reading);
    if (train == nullptr)
      throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "the data set has not been read: reading it needs a plan", path,
                  "construct it as Dataset(path, plan), or pass it to a Trainer first");
    return train.get();
  }
};

// The batches of an epoch, made when the first is used.
struct BatchesState {
  std::shared_ptr<DatasetState> data;
  BatchOptions options;
  std::shared_ptr<GradloomBatches> handle;
  // Of tensors, the same with samples along the axes where this plan has them.
  std::optional<Plan> plan;
  std::shared_ptr<GradloomBatches> of_plan;

  GradloomBatches* Handle() {
    if (handle == nullptr) handle = Make(nullptr);
    return handle.get();
  }
  GradloomBatches* HandleFor(const Plan& wanted) {
    if (!data->of_tensors) return Handle();
    if (!plan || plan->c() != wanted.c()) {
      of_plan = Make(wanted.c());
      plan = wanted;
    }
    return of_plan.get();
  }
  int64_t Count() {
    int64_t count = 0;
    if (data->of_tensors && options.size > 0) {
      // Made by the first step, whose plan is not known yet.
      Check(Api().GetDatasetRows(data->Handle(), &count));
      return count / options.size + (count % options.size != 0);
    }
    Check(Api().GetBatchCount(Handle(), &count));
    return count;
  }

 private:
  std::shared_ptr<GradloomBatches> Make(const GradloomPlan* for_plan) const {
    // The table takes zero for its default.
    if (options.size == 0) throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "the batch size must be at least 1, got 0");
    auto given = Sized<GradloomBatchOptions>();
    given.batch = options.size;
    given.epoch = options.epoch;
    given.seed = options.seed;
    given.in_order = options.in_order ? 1 : 0;
    given.plan = for_plan;
    GradloomBatches* made = nullptr;
    Check(Api().CreateBatches(data->Handle(), &given, &made));
    return Shared(made, Api().ReleaseBatches);
  }
};

struct BatchArrays {
  const char* const* names = nullptr;
  const GradloomTensor* tensors = nullptr;
  size_t count = 0;
};

}  // namespace internal

// One batch of an epoch, valid until the next one is used.
class Batch {
 public:
  int64_t index() const { return index_; }

  // The column of this name, with samples along the axis where the plan of the data set has them; of tensors, along the first axis. Borrows
  // it.
  TensorView operator[](const std::string& name) const {
    const internal::BatchArrays arrays = Arrays(state_->Handle());
    for (size_t i = 0; i < arrays.count; ++i) {
      if (name == arrays.names[i]) return TensorView(arrays.tensors[i]);
    }
    throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "the data set has no column '" + name + "'");
  }

 private:
  friend class BatchRange;
  friend class Session;
  Batch(std::shared_ptr<internal::BatchesState> state, int64_t index) : state_(std::move(state)), index_(index) {}

  internal::BatchArrays Get(const Plan& plan) const {
    state_->data->Read(plan);
    return Arrays(state_->HandleFor(plan));
  }
  internal::BatchArrays Arrays(GradloomBatches* batches) const {
    internal::BatchArrays arrays;
    internal::Check(internal::Api().GetBatch(batches, index_, &arrays.names, &arrays.tensors, &arrays.count));
    return arrays;
  }

  std::shared_ptr<internal::BatchesState> state_;
  int64_t index_;
};

// The batches of an epoch, for a range-based loop.
class BatchRange {
 public:
  class Iterator {
   public:
    Batch operator*() const { return Batch(state_, index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    // Compares with the end only. A data set that has not been read is read for its first batch, which is there then.
    bool operator!=(const Iterator&) const { return (index_ == 0 && !state_->data->IsRead()) || index_ < state_->Count(); }

   private:
    friend class BatchRange;
    Iterator(std::shared_ptr<internal::BatchesState> state, int64_t index) : state_(std::move(state)), index_(index) {}
    std::shared_ptr<internal::BatchesState> state_;
    int64_t index_;
  };

  Iterator begin() const { return Iterator(state_, 0); }
  Iterator end() const { return Iterator(state_, -1); }
  int64_t size() const { return state_->Count(); }

 private:
  friend class Dataset;
  explicit BatchRange(std::shared_ptr<internal::BatchesState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::BatchesState> state_;
};

// A table of samples. Copies share it.
class Dataset {
 public:
  // Read when a session steps on its first batch, for that session's plan.
  explicit Dataset(const std::string& path, DataOptions options = {}) : state_(std::make_shared<internal::DatasetState>()) {
    state_->path = path;
    state_->options = std::move(options);
  }
  // Read now.
  Dataset(const std::string& path, const Plan& plan, DataOptions options = {}) : Dataset(path, std::move(options)) { state_->Read(plan); }
  // Copies tensors whose first axis is the sample. A session or a trainer lays their samples along the axis where its plan has them.
  explicit Dataset(const Feeds& columns) : state_(std::make_shared<internal::DatasetState>()) {
    state_->of_tensors = true;
    const internal::FeedArrays arrays(columns);
    GradloomDataset* made = nullptr;
    internal::Check(internal::Api().CreateDataset(arrays.names.data(), arrays.tensors.data(), arrays.names.size(), &made));
    state_->train = internal::Shared(made, internal::Api().ReleaseDataset);
  }

  int64_t rows() const {
    int64_t rows = 0;
    internal::Check(internal::Api().GetDatasetRows(c(), &rows));
    return rows;
  }
  // What reading the data guessed and warned of, one per line: the columns that were chosen, the names of classes, NaN.
  std::string Notes() const {
    GradloomText* text = nullptr;
    internal::Check(internal::Api().GetDatasetNotes(c(), &text));
    return internal::Take(text);
  }
  // The evaluation data that was held back or given separately. Throws Error if there is none.
  Dataset Eval() const {
    c();
    if (state_->eval == nullptr) throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "the data set has no evaluation data", state_->path);
    auto state = std::make_shared<internal::DatasetState>();
    state->path = state_->path;
    state->train = state_->eval;
    return Dataset(std::move(state));
  }
  BatchRange Batches(const BatchOptions& options = {}) const {
    return BatchRange(std::make_shared<internal::BatchesState>(internal::BatchesState{state_, options, nullptr, std::nullopt, nullptr}));
  }

  // Reads the data set for the plan, unless it has been read before.
  void Read(const Plan& plan) const { state_->Read(plan); }
  GradloomDataset* c() const { return state_->Handle(); }

 private:
  explicit Dataset(std::shared_ptr<internal::DatasetState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::DatasetState> state_;
};

}  // namespace v1
}  // namespace gradloom
