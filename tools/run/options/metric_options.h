// The metrics of a configuration.
#pragma once

#include <vector>

#include "compiler/compile.h"
#include "compiler/onnx/import.h"
#include "runtime/session/metrics.h"
#include "runtime/session/trainer.h"
#include "tools/config/configuration.h"

namespace gradloom {

// The configured metrics. Those without an output and target use those of the first loss; an empty output means the graph's first one. How
// they read them is set by the compiled plan (MetricSpec::ReadLikeLoss). Throws Error(kConfig).
std::vector<MetricSpec> MetricsOf(const Configuration& configuration, const Recipe& recipe, const Graph& graph);

// Checks before the run what the first evaluation would find: throws Error(kConfig) for metrics of outputs or targets that do not exist,
// and if the value that selects the best model is not measured.
void CheckMetrics(const TrainerOptions& options, const Recipe& recipe, const ImportedGraph& imported, const std::vector<Feed>& feeds);

// Checks the shapes and the numbers of the target before the run, once it is known how the metric is read. Throws Error(kConfig).
void CheckMetric(const MetricSpec& spec, const Graph& graph, const std::vector<Feed>& feeds, const Dataset& data,
                 const Configuration& configuration);

}  // namespace gradloom
