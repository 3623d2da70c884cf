// A model with things that are not supported fails with all of them, not with the first.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "tools/config/configuration.h"

namespace gradloom {

// At least one obstacle; as an Error it is the first.
class UnsupportedModel : public Error {
 public:
  explicit UnsupportedModel(std::vector<Error> all) : Error(all.front()), all_(std::move(all)) {}

  const std::vector<Error>& all() const { return all_; }

 private:
  std::vector<Error> all_;
};

// Calls `compile`, which loads and compiles the configured model. Where it fails with E-UNSUPPORTED, the model file is
// searched for everything that stands in the way (FindObstacles), and UnsupportedModel is thrown instead if there is more.
void NamingAllObstacles(const Configuration& configuration, const std::function<void()>& compile);

}  // namespace gradloom
