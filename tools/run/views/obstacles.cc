#include "tools/run/views/obstacles.h"

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

}  // namespace gradloom
