#include "tools/run/obstacles.h"

#include <algorithm>

#include "compiler/onnx/survey.h"
#include "compiler/passes/choose_trainable.h"
#include "tools/run/recipe.h"

namespace gradloom {

void NamingAllObstacles(const Configuration& configuration, const std::function<void()>& compile) {
  std::vector<Error> obstacles;
  try {
    compile();
    return;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    const std::vector<std::string>& freeze = configuration.Texts("model.freeze");
    obstacles = FindObstacles(
        ModelPathOf(configuration),
        [&](const std::string& name) {
          return std::any_of(freeze.begin(), freeze.end(), [&](const std::string& pattern) { return FitsPattern(pattern, name); });
        },
        LoadOptionsOf(configuration));
    for (const std::string& path : LossFilesOf(configuration)) {
      std::vector<Error> more = FindObstacles(path, [](const std::string&) { return true; });
      obstacles.insert(obstacles.end(), more.begin(), more.end());
    }
    if (obstacles.empty()) throw;
  }
  throw UnsupportedModel(std::move(obstacles));
}

}  // namespace gradloom
