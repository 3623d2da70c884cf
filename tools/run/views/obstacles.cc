#include "tools/run/views/obstacles.h"

#include <algorithm>

#include "compiler/onnx/survey.h"
#include "runtime/base/name_pattern.h"
#include "tools/run/options/loss_terms.h"
#include "tools/run/options/model_options.h"

namespace gradloom {

void ReportingAllObstacles(const Configuration& configuration, const std::function<void()>& compile) {
  std::vector<Error> obstacles;
  try {
    compile();
    return;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    const std::vector<std::string>& freeze = configuration.Texts("model.freeze");
    obstacles = FindObstacles(
        ModelPathOf(configuration), [&](const std::string& name) { return MatchesAnyPattern(freeze, name); }, LoadOptionsOf(configuration));
    for (const std::string& path : LossFilesOf(configuration)) {
      std::vector<Error> more = FindObstacles(path, [](const std::string&) { return true; });
      obstacles.insert(obstacles.end(), more.begin(), more.end());
    }
    if (obstacles.empty()) throw;
  }
  throw UnsupportedModel(std::move(obstacles));
}

void RefuseNothingToTrain(const CompileReport& report, const std::string& path) {
  if (report.trained_elements > 0) return;
  if (report.initializer_elements == 0 && report.frozen.empty()) {
    throw Error(ErrorCode::kConfig, "there is nothing to train: the model has no weights", Escaped(path, 4096),
                "export the model with its weights; in PyTorch, do not keep them as inputs of the graph");
  }
  const auto is_of_steps = [](const std::string& warning) { return warning.find("--surrogate") != std::string::npos; };
  const auto steps = std::ranges::find_if(report.warnings, is_of_steps);
  std::string names;
  for (size_t i = 0; i < report.frozen.size() && i < 3; ++i)
    names += (names.empty() ? "" : ", ") + ("'" + Escaped(report.frozen[i].name, 80) + "' (" + report.frozen[i].reason + ")");
  if (report.frozen.size() > 3) names += " and " + std::to_string(report.frozen.size() - 3) + " more";
  throw Error(ErrorCode::kConfig, "there is nothing to train: every weight of the model is frozen" + (names.empty() ? "" : ": " + names),
              Escaped(path, 4096),
              (steps == report.warnings.end() ? "" : *steps + "   ") +
                  "omit --freeze where it is the reason; --trainable PATTERN trains what matches");
}

}  // namespace gradloom
