// Reports all unsupported parts of a model, not only the first one.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "runtime/base/error.h"
#include "tools/config/configuration.h"

namespace gradloom {

// At least one obstacle; as an Error it is the first one.
class UnsupportedModel : public Error {
 public:
  explicit UnsupportedModel(std::vector<Error> all) : Error(all.front()), all_(std::move(all)) {}

  const std::vector<Error>& all() const { return all_; }

 private:
  std::vector<Error> all_;
};

// Calls `compile`, which loads and compiles the configured model. If it fails with E-UNSUPPORTED, searches the model file for all obstacles
// (FindObstacles), and throws UnsupportedModel instead if there are any.
void ReportingAllObstacles(const Configuration& configuration, const std::function<void()>& compile);

// Throws Error(kConfig) if the report of a compiled model has nothing to train. `path`: of the model.
void RefuseNothingToTrain(const CompileReport& report, const std::string& path);

}  // namespace gradloom
