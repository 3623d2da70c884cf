#include "tools/run/options/data_options.h"

#include <algorithm>
#include <utility>

#include "compiler/passes/loss/loss_info.h"
#include "runtime/base/error.h"
#include "runtime/base/host_memory.h"
#include "tools/run/options/loss_terms.h"
#include "tools/run/train/job.h"

namespace gradloom {

void ChooseOnDemand(const Configuration& configuration, DataOptions& options) {
  const JobTopology topology = TopologyOf(configuration);
  options.on_demand = true;
  // Without locks a process may take any batch of the run.
  options.large_rows = topology.world > 1 && configuration.Text("train.sync") != "hogwild";
  if (!options.large_rows) options.large_bytes = LargeBytesFor(FreeHostBytes() / topology.local_world);
}

DataOptions DataOptionsOf(const Configuration& configuration) {
  DataOptions options{.train = configuration.Text("data.train"),
                      .eval = configuration.Text("data.eval"),
                      .eval_split = configuration.Text("data.eval_split"),
                      .format = configuration.Text("data.format")};
  if (options.train.empty()) throw Error(ErrorCode::kConfig, "no training data is given", "", "pass a file: --data train.csv");
  for (const auto& [name, columns] : configuration.Named("data.map")) options.columns[name] = columns[0];
  options.transforms = configuration.Named("data.transform");
  ChooseOnDemand(configuration, options);
  return options;
}

std::set<std::string> TargetsAmong(const std::vector<Feed>& feeds, const Graph& model) {
  std::set<std::string> targets;
  for (const Feed& feed : feeds) {
    const auto is_it = [&](ValueId id) { return model.value(id).name == feed.name; };
    if (std::none_of(model.inputs.begin(), model.inputs.end(), is_it)) targets.insert(feed.name);
  }
  return targets;
}

void SetTargets(const std::vector<Feed>& feeds, const Recipe& recipe, const Graph& graph, DataOptions& options) {
  options.targets = TargetsAmong(feeds, graph);
  for (const LossTerm& term : recipe.losses) {
    if (graph.outputs.empty()) continue;
    const Value& output = OutputOf(term, graph);
    const LossInfo loss{.type = term.type,
                        .output = output.name,
                        .target = term.TargetName(),
                        .classes = TargetIsClass(term),
                        .class_axis = term.class_axis,
                        .ignore_index = term.ignore_index};
    if (const auto range = ClassesOf(loss, output.shape)) options.classes[loss.target] = *range;
    if (const auto domain = DomainOf(loss)) options.domains[loss.target] = *domain;
  }
}

Dataset EvaluationDataOf(const Configuration& configuration, const RecordedData& recorded, const std::vector<Feed>& feeds,
                         const DataOptions& targets, std::vector<std::string>& notes) {
  if (configuration.Text("data.eval").empty() && configuration.Text("data.eval_split").empty()) {
    throw Error(ErrorCode::kConfig, "no data is given, and the run has no evaluation data", "", "pass a file: --data test.csv");
  }
  DataOptions options = DataOptionsOf(configuration);
  options.targets = targets.targets;
  options.classes = targets.classes;
  options.domains = targets.domains;
  const int64_t seed = configuration.Integer("train.seed");
  TrainingData data;
  if (recorded.json.empty()) {
    data = LoadTrainingData(options, feeds, seed);
  } else {
    options.columns = recorded.columns;
    data = LoadEvaluationData(options, feeds, seed, recorded.fitted, recorded.names);
    const std::string difference = options.eval.empty() ? DifferenceOfData(recorded.json, Escaped(recorded.path, 4096), data) : "";
    if (!difference.empty()) {
      throw Error(ErrorCode::kData, "the training data, from which the run holds back what it is evaluated on, has changed: " + difference,
                  Escaped(options.train, 4096), "restore it, or pass the data to evaluate on: --data test.csv");
    }
  }
  notes.insert(notes.end(), data.notes.begin(), data.notes.end());
  return std::move(data.eval);
}

}  // namespace gradloom
