#include "tools/run/options/metric_options.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/loss_terms.h"

namespace gradloom {
namespace {

// Errors name the origin of the key.
MetricSpec MetricAt(const Configuration& configuration, const std::string& text) {
  try {
    MetricSpec spec = MetricSpec::Parse(text);
    Metric::Make(spec);
    return spec;
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), Escaped(configuration.origin("eval.metric").place, 4096), error.help());
  }
}

// The configured metrics, and the one that selects the best model if it is not among them.
std::vector<MetricSpec> WantedMetrics(const Configuration& configuration) {
  std::vector<MetricSpec> wanted;
  for (const std::string& text : configuration.Texts("eval.metric")) wanted.push_back(MetricAt(configuration, text));
  const std::string& best = configuration.Text("eval.best");
  if (best.empty()) return wanted;
  const std::string watched = Watch::Parse(best).name, name = watched.substr(0, watched.find('/'));
  const bool known = name == "loss" || std::any_of(wanted.begin(), wanted.end(), [&](const MetricSpec& spec) { return spec.name == name; });
  const std::vector<std::string> names = MetricNames();
  if (!known && std::find(names.begin(), names.end(), name) != names.end()) wanted.push_back({.name = name});
  return wanted;
}

}  // namespace

std::vector<MetricSpec> MetricsOf(const Configuration& configuration, const Recipe& recipe, const Graph& graph) {
  std::vector<MetricSpec> metrics;
  for (MetricSpec& spec : WantedMetrics(configuration)) {
    const LossTerm* about = &recipe.losses.front();
    for (const LossTerm& term : recipe.losses) {
      if (!spec.target.empty() && term.TargetName() == spec.target) about = &term;
    }
    const bool names_none = about->graph != nullptr || about->type == "algorithm" || about->type == "output";
    if (names_none && spec.target.empty()) {
      throw Error(ErrorCode::kConfig, "the metric '" + Escaped(spec.name) + "' needs an output and a target, which this loss does not name",
                  "eval.metric", "write --metric '" + Escaped(spec.name) + "(OUTPUT, TARGET)'");
    }
    if (spec.output.empty()) spec.output = OutputOf(*about, graph).name;
    if (spec.target.empty()) spec.target = about->TargetName();
    metrics.push_back(std::move(spec));
  }
  DisambiguateNames(metrics);
  return metrics;
}

void CheckMetrics(const TrainerOptions& options, const Recipe& recipe, const ImportedGraph& imported, const std::vector<Feed>& feeds) {
  std::vector<std::string> outputs, fetched, inputs, measured{"eval/loss"};
  for (const ValueId id : imported.graph->outputs) {
    outputs.push_back(imported.graph->value(id).name);
    const auto named = imported.output_names.find(id);
    fetched.push_back(named == imported.output_names.end() ? outputs.back() : named->second);
  }
  for (const std::string& term : LossTermFetches(recipe.losses, fetched)) measured.push_back("eval/" + term);
  for (const Feed& feed : feeds) inputs.push_back(feed.name);
  for (const MetricSpec& spec : options.metrics) {
    const std::string where = "metric " + Escaped(spec.name);
    CheckOneOf(spec.output, outputs, "the model has no output '" + Escaped(spec.output) + "'", where);
    CheckOneOf(spec.target, inputs, "the model has no input or target '" + Escaped(spec.target) + "'", where);
    measured.push_back("eval/" + spec.shown());
    // A part of a metric, which is known only once values are computed.
    if (options.watch.name.starts_with(spec.shown() + "/")) measured.push_back("eval/" + options.watch.name);
  }
  CheckOneOf("eval/" + options.watch.name, measured,
             "'" + Escaped(options.watch.name) + "' is not measured, so it cannot select the best model", "eval.best");
}

void CheckMetric(const MetricSpec& spec, const Graph& graph, const std::vector<Feed>& feeds, const Dataset& data,
                 const Configuration& configuration) {
  const auto output =
      std::find_if(graph.outputs.begin(), graph.outputs.end(), [&](ValueId id) { return graph.value(id).name == spec.output; });
  const auto target = std::find_if(feeds.begin(), feeds.end(), [&](const Feed& feed) { return feed.name == spec.target; });
  if (output == graph.outputs.end() || target == feeds.end()) return;  // CheckMetrics has reported it
  try {
    spec.CheckShapes({graph.value(*output).dtype, graph.value(*output).shape, nullptr}, {target->dtype, target->shape, nullptr});
    // Numbers that are read on demand are checked by the evaluation.
    if (const auto column = data.columns().find(spec.target); column != data.columns().end()) spec.CheckTargets(column->second.view());
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), Escaped(configuration.origin("eval.metric").place, 4096), error.help());
  }
}

}  // namespace gradloom
