// Data sets and batches of the C table.
#include <algorithm>
#include <map>
#include <set>

#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/base/host_memory.h"
#include "runtime/base/run_on_threads.h"
#include "runtime/data/training_data.h"
#include "runtime/plan/sample_axes.h"

namespace gradloom::api {
namespace {

// The shape of an output of the model that some entry fetches; null if none does.
const Shape* ShapeOfOutput(const GradloomPlan& plan, const std::string& name) {
  for (const std::vector<TensorFacts>& outputs : plan.outputs) {
    const auto found = std::find_if(outputs.begin(), outputs.end(), [&](const TensorFacts& output) { return output.name == name; });
    if (found != outputs.end()) return &found->shape;
  }
  return nullptr;
}

void SetTargets(const GradloomPlan& plan, DataOptions& options) {
  for (const LossInfo& loss : plan.plan->losses) {
    if (const auto domain = DomainOf(loss)) options.domains[loss.target] = *domain;
    const Shape* const output = ShapeOfOutput(plan, loss.output);
    if (output == nullptr) continue;
    if (const auto range = ClassesOf(loss, *output)) options.classes[loss.target] = *range;
  }
}

// The inputs of the plan's training entry, and which of them are not inputs of the model.
DataOptions OptionsFor(const GradloomDataOptions& given, const GradloomPlan& plan) {
  DataOptions options;
  Array(given.columns, given.num_columns, "the array of columns");
  Array(given.transforms, given.num_transforms, "the array of transforms");
  for (size_t i = 0; i < given.num_columns; ++i)
    options.columns[TextOf(given.columns[i].key, "the name of a column")] = TextOf(given.columns[i].value, "the source of a column");
  for (size_t i = 0; i < given.num_transforms; ++i) {
    options.transforms[TextOf(given.transforms[i].key, "the name of a column")].push_back(TextOf(given.transforms[i].value, "a transform"));
  }
  if (given.eval_path != nullptr) options.eval = given.eval_path;
  if (given.eval_split != nullptr) options.eval_split = given.eval_split;
  if (given.format != nullptr) options.format = given.format;
  options.on_demand = true;
  options.large_rows = false;
  options.large_bytes = LargeBytesFor(FreeHostBytes());
  SetTargets(plan, options);
  const std::vector<TensorFacts>& known = plan.inputs[GRADLOOM_PREDICT];
  for (const TensorFacts& feed : plan.inputs[GRADLOOM_TRAIN]) {
    const bool is_input = std::any_of(known.begin(), known.end(), [&](const TensorFacts& input) { return input.name == feed.name; });
    if (!known.empty() && !is_input) options.targets.insert(feed.name);
  }
  return options;
}

// The threads that compute in one process.
int ThreadsOf(const Plan& plan) { return plan.targets.front().threads * static_cast<int>(plan.num_ranks()); }

GradloomStatus* LoadDataset(const char* path, const GradloomPlan* plan, const GradloomDataOptions* options, GradloomDataset** train,
                            GradloomDataset** eval) {
  return Guarded([&] {
    GradloomDataset*& handle = Out(train);
    if (eval != nullptr) *eval = nullptr;
    const GradloomDataOptions given = OptionsOf(options);
    DataOptions reading = OptionsFor(given, NotNull(plan, "the plan"));
    reading.train = TextOf(path, "the path");
    if (eval == nullptr && !(reading.eval.empty() && reading.eval_split.empty()))
      throw Error(ErrorCode::kConfig, "evaluation data is requested, but the output pointer for it is null");
    if (plan->inputs[GRADLOOM_TRAIN].empty())
      throw Error(ErrorCode::kConfig, "the plan has no training step, so it cannot use training data");
    // The entry of these inputs (PlanHandle).
    const std::vector<Entry>& entries = plan->plan->entries;
    const auto trains = [](const Entry& entry) { return entry.kind == EntryKind::kStep || entry.kind == EntryKind::kAccumulate; };
    const auto entry = std::find_if(entries.begin(), entries.end(), trains);
    TrainingData data = LoadTrainingData(reading, BySamples(entry->feeds, entry->batch), given.seed);
    const std::map<std::string, int> axes = FeedAxes(*plan->plan);
    std::string notes;
    for (const std::string& note : data.notes) notes += note + "\n";
    const int threads = ThreadsOf(*plan->plan);
    auto made =
        std::make_unique<GradloomDataset>(GradloomDataset{std::make_shared<const Dataset>(std::move(data.train)), axes, threads, notes});
    if (eval != nullptr && data.eval.rows() > 0)
      *eval = new GradloomDataset{std::make_shared<const Dataset>(std::move(data.eval)), axes, threads, notes};
    handle = made.release();
  });
}

GradloomStatus* CreateDataset(const char* const* names, const GradloomTensor* columns, size_t num_columns, GradloomDataset** out) {
  return Guarded([&] {
    GradloomDataset*& handle = Out(out);
    if (num_columns == 0) throw Error(ErrorCode::kConfig, "a data set needs at least one column");
    NotNull(names, "the array of names");
    NotNull(columns, "the array of columns");
    int64_t bytes = 0;
    for (size_t i = 0; i < num_columns; ++i) bytes += ViewOf(columns[i], "a column").bytes();
    RequireHostMemory(bytes, "a copy of the columns", "", "make the data set of fewer samples, or from a file");
    std::map<std::string, Tensor> copies;
    for (size_t i = 0; i < num_columns; ++i) {
      const std::string name = TextOf(names[i], "the name of a column");
      if (!copies.emplace(name, Tensor::Copy(ViewOf(columns[i], "column '" + Escaped(name) + "'"))).second)
        throw Error(ErrorCode::kConfig, "column '" + Escaped(name) + "' is given twice");
    }
    handle = new GradloomDataset{std::make_shared<const Dataset>(std::move(copies))};
  });
}

GradloomStatus* GetDatasetRows(const GradloomDataset* dataset, int64_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = NotNull(dataset, "the data set").data->rows(); });
}

GradloomStatus* GetDatasetNotes(const GradloomDataset* dataset, GradloomText** out) {
  return Guarded([&] {
    GradloomText*& text = Out(out);
    text = new GradloomText{NotNull(dataset, "the data set").notes};
  });
}

void ReleaseDataset(GradloomDataset* dataset) { delete dataset; }

constexpr int64_t kDefaultBatch = 32;  // like Fit's

GradloomStatus* CreateBatches(const GradloomDataset* dataset, const GradloomBatchOptions* options, GradloomBatches** out) {
  return Guarded([&] {
    GradloomBatches*& handle = Out(out);
    const GradloomBatchOptions given = OptionsOf(options);
    const std::shared_ptr<const Dataset>& data = NotNull(dataset, "the data set").data;
    if (given.batch < 0) throw Error(ErrorCode::kConfig, "the batch size must be at least 1, got " + std::to_string(given.batch));
    if (given.epoch < 0) throw Error(ErrorCode::kConfig, "the epoch must be at least 0, got " + std::to_string(given.epoch));
    const Plan* const plan = given.plan == nullptr ? nullptr : given.plan->plan.get();
    const int threads = plan == nullptr ? dataset->threads : ThreadsOf(*plan);
    auto made = std::make_unique<GradloomBatches>();
    made->data = data;
    const auto seed = static_cast<uint64_t>(given.seed), epoch = static_cast<uint64_t>(given.epoch);
    made->order = given.in_order != 0 ? RowsInOrder(data->rows()) : ShuffledRows(data->rows(), seed, epoch);
    made->batches = std::make_unique<Batches>(*made->data, made->order, given.batch == 0 ? kDefaultBatch : given.batch,
                                              BatchesOptions{.draw = RowDraw(seed, epoch),
                                                             .axes = plan == nullptr ? dataset->axes : FeedAxes(*plan),
                                                             .cores = std::min(threads, NumCores())});
    handle = made.release();
  });
}

GradloomStatus* GetBatchCount(const GradloomBatches* batches, int64_t* out) {
  return Guarded([&] { NotNull(out, "the output pointer for the result") = NotNull(batches, "the batches").batches->count(); });
}

// Whether this is a child of the process that made batches whose rows are read by threads.
bool LacksThreads(const GradloomBatches& batches) { return batches.forks != ForkCount() && !batches.data->lazy_columns().empty(); }

GradloomStatus* GetBatch(GradloomBatches* batches, int64_t index, const char* const** names, const GradloomTensor** columns,
                         size_t* count) {
  return Guarded([&] {
    const char* const*& out_names = Out(names);
    const GradloomTensor*& out_columns = Out(columns);
    NotNull(count, "the place for the count") = 0;
    GradloomBatches& handle = NotNull(batches, "the batches");
    if (LacksThreads(handle)) {
      throw Error(ErrorCode::kConfig, "the batches were created before a fork, and the child process does not have their threads", "",
                  "create batches in the process that uses them");
    }
    if (index < 0 || index >= handle.batches->count()) {
      throw Error(ErrorCode::kConfig,
                  "batch index " + std::to_string(index) + " is out of range: there are " + std::to_string(handle.batches->count()));
    }
    handle.feeds = handle.batches->Get(index);
    handle.names.clear();
    handle.columns.clear();
    for (const auto& [name, view] : handle.feeds) {
      handle.names.push_back(name.c_str());
      handle.columns.push_back(TensorOf(view, view.shape));
    }
    out_names = handle.names.data();
    out_columns = handle.columns.data();
    *count = handle.names.size();
  });
}

// The threads that it would end are not in a child of their process.
void ReleaseBatches(GradloomBatches* batches) {
  if (batches != nullptr && !LacksThreads(*batches)) delete batches;
}

}  // namespace

void AddDatasets(GradloomApi& api) {
  api.LoadDataset = LoadDataset;
  api.CreateDataset = CreateDataset;
  api.GetDatasetRows = GetDatasetRows;
  api.GetDatasetNotes = GetDatasetNotes;
  api.ReleaseDataset = ReleaseDataset;
  api.CreateBatches = CreateBatches;
  api.GetBatchCount = GetBatchCount;
  api.GetBatch = GetBatch;
  api.ReleaseBatches = ReleaseBatches;
}

}  // namespace gradloom::api
