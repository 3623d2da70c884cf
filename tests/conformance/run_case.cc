#include "tests/conformance/run_case.h"

#include <algorithm>
#include <memory>

#include "compiler/compile.h"
#include "runtime/plan/device_spec.h"
#include "tests/conformance/random_placement.h"
#include "tools/api/compiling_source.h"

namespace gradloom {
namespace {

std::shared_ptr<const Plan> CompileCase(const TrainingCase& recorded, const Model& model, const RunOptions& options,
                                        SessionOptions& session) {
  CompileOptions compile;
  compile.recipe = recorded.recipe;
  SetDevices(options, compile.recipe, session);
  compile.recipe.gather_to = options.gather_to;
  compile.recipe.shard_optimizer = options.shards;
  if (options.recompute) compile.recipe.recompute = RecomputeMode::kFull;
  compile.recipe.copy_inputs = options.copy_inputs;
  compile.recipe.sync_bn = true;  // the recording was made on one device
  compile.recipe.fetch_gradients = options.gradients;
  compile.control.disabled = options.disabled_passes;
  compile.import = ReadingOf(recorded, model);
  std::vector<int64_t> sizes = recorded.batch_sizes;
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  for (int64_t size : sizes) compile.entries.push_back({EntryKind::kStep, size});
  if (options.stages > 1) compile.recipe.place = RandomPlacement(model, compile, options.stages, options.place_seed);
  compile.recipe.pipeline = options.pipeline;
  auto plan = std::make_shared<const Plan>(Compile(model, compile));
  session.source = std::make_shared<CompilingSource>(model, std::move(compile));
  return plan;
}

// Parameters, statistics, and initializers that are not part of the state because nothing changes them.
std::map<std::string, Tensor> Values(const Session& session) {
  std::map<std::string, Tensor> values;
  for (const StateTensor& state : session.plan().state) {
    if (state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic)
      values.emplace(state.name, session.Get(session.TrainedState(state.name)));
  }
  for (const Constant& constant : session.plan().constants) values.emplace(constant.name, constant.value);
  return values;
}

}  // namespace

Precision PrecisionNamed(const std::string& text) {
  if (text == "fp32") return Precision::kFloat32;
  if (text == "tf32") return Precision::kTf32;
  if (text == "bf16") return Precision::kBfloat16;
  if (text == "fp16") return Precision::kFloat16;
  throw Error(ErrorCode::kConfig, "no precision '" + Escaped(text) + "'", "", "fp32, tf32, bf16, fp16");
}

void SetDevices(const RunOptions& options, Recipe& recipe, SessionOptions& session) {
  recipe.threads = options.threads;
  recipe.precision = options.precision;
  recipe.loss_scale = options.loss_scale;
  recipe.streams = options.streams;
  recipe.fixed_order = options.fixed_order;
  const DeviceSpec devices = ParseDevices(options.devices);
  recipe.device = devices.kind;
  recipe.devices = devices.count;
  if (devices.kind == DeviceKind::kCuda) recipe.isa = options.isa;
  session.executor.ordinals = devices.ordinals;
  session.executor.graph = options.graph;
  session.executor.autotune = options.autotune;
}

Feeds FeedsOfStep(const TrainingCase& recorded, int step) {
  Feeds feeds;
  for (const auto* names : {&recorded.inputs, &recorded.targets}) {
    for (const std::string& name : *names) {
      const auto found = recorded.batches.find(name + std::to_string(step));
      if (found == recorded.batches.end())
        throw Error(ErrorCode::kData, "batches.npz has no array '" + Escaped(name + std::to_string(step)) + "'");
      feeds.emplace(name, found->second.view());
    }
  }
  return feeds;
}

ImportOptions ReadingOf(const TrainingCase& recorded, const Model& model) {
  ImportOptions reading, first;
  reading.detached = recorded.detached;
  for (const auto& [name, view] : FeedsOfStep(recorded, 0)) first.inputs.emplace(name, view.shape);
  for (const OpenExtent& extent : OpenExtents(model, first)) {
    if (!extent.is_batch) reading.shapes[extent.symbol] = extent.value;
  }
  return reading;
}

TrainingRun RunCase(const TrainingCase& recorded, const RunOptions& options) {
  const Model model = Model::Load(recorded.model_path);
  SessionOptions session_options;
  const std::shared_ptr<const Plan> plan = CompileCase(recorded, model, options, session_options);
  Session session(plan, session_options);
  if (options.chaos) session.executor().SetChaos(*options.chaos);
  TrainingRun run;
  run.fetches_gradients = options.gradients;
  run.initial = Values(session);
  for (int step = 0; step < recorded.steps(); ++step) {
    if (!recorded.lr_factors.empty()) {
      session.set_learning_rate(recorded.recipe.optimizer.lr * recorded.lr_factors[static_cast<size_t>(step)]);
    }
    // If the plan copies inputs ahead, the inputs of the next step are copied during this one.
    const Feeds feeds = FeedsOfStep(recorded, step), next = step + 1 < recorded.steps() ? FeedsOfStep(recorded, step + 1) : Feeds();
    run.losses.push_back(session.Step(feeds, [&] { return next.empty() ? nullptr : &next; }).loss);
    session.FinishPrefetch();
    if (step > 0) continue;
    for (const std::string& name : recorded.trainable) {
      if (session.HasFetch("grad/" + name)) run.gradients.emplace(name, Tensor::Copy(session.Fetched("grad/" + name)));
    }
  }
  run.parameters = Values(session);
  return run;
}

}  // namespace gradloom
