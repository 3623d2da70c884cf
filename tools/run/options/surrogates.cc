#include "tools/run/options/surrogates.h"

#include <cmath>
#include <map>
#include <string>

#include "runtime/base/error.h"
#include "tools/run/options/key_values.h"

namespace gradloom {
namespace {

struct Form {
  SurrogateKind kind;
  bool has_slope;
};

const std::map<std::string, Form>& Forms() {
  static const std::map<std::string, Form> forms = {{"atan", {SurrogateKind::kAtan, true}},
                                                    {"fast_sigmoid", {SurrogateKind::kFastSigmoid, true}},
                                                    {"sigmoid", {SurrogateKind::kSigmoid, true}},
                                                    {"straight_through", {SurrogateKind::kStraightThrough, false}}};
  return forms;
}

Surrogate SurrogateOf(const std::string& text) {
  constexpr char kForms[] =
      "use atan(SLOPE), fast_sigmoid(SLOPE), sigmoid(SLOPE) or straight_through, and @PATTERN for some of the steps: 'atan(2)@/encoder/*'";
  const size_t at = text.find('@');
  const std::string function = text.substr(0, at);
  const size_t bracket = function.find('(');
  const std::string name = function.substr(0, bracket);
  const auto found = Forms().find(name);
  const bool closed = bracket == std::string::npos || function.ends_with(')');
  if (found == Forms().end() || !closed || found->second.has_slope != (bracket != std::string::npos) || text.ends_with('@'))
    throw Error(ErrorCode::kConfig, "cannot read --surrogate '" + Escaped(text) + "'", "", kForms);
  Surrogate surrogate{.kind = found->second.kind};
  if (found->second.has_slope) {
    surrogate.slope = ParseNumber(function.substr(bracket + 1, function.size() - bracket - 2), "the slope of " + name);
    if (!std::isfinite(surrogate.slope) || surrogate.slope <= 0)
      throw Error(ErrorCode::kConfig, "the slope of --surrogate '" + Escaped(text) + "' must be above 0", "", kForms);
  }
  if (at != std::string::npos) surrogate.pattern = text.substr(at + 1);
  return surrogate;
}

}  // namespace

std::vector<Surrogate> SurrogatesOf(const Configuration& configuration) {
  std::vector<Surrogate> surrogates;
  Reading(configuration, "model.surrogate", [&] {
    for (const std::string& text : configuration.Texts("model.surrogate")) surrogates.push_back(SurrogateOf(text));
  });
  return surrogates;
}

}  // namespace gradloom
