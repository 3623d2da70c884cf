#include "tools/run/options/idle_flags.h"

#include <string>

#include "runtime/base/error.h"
#include "tools/config/keys.h"
#include "tools/run/options/key_values.h"

namespace gradloom {
namespace {

struct Needs {
  const char* key;
  bool missing;  // what it needs
  const char *what, *help;
};

}  // namespace

void CheckIdleFlags(const Configuration& configuration) {
  const auto is_empty = [&](const char* key) { return configuration.Text(key).empty(); };
  const bool no_eval = is_empty("data.eval") && is_empty("data.eval_split");
  const bool never = configuration.Text("eval.every") == "never";
  const Needs all[] = {
      {"model.init_except", is_empty("model.init_weights"), "--init-weights",
       "name the weights to begin with: --init-weights runs/pretrained"},
      {"eval.every", no_eval && !never, "evaluation data, but there is none",
       "use --eval-split 20% to hold back a part of the training data"},
      {"eval.batch", no_eval, "evaluation data, but there is none", "use --eval-split 20% to hold back a part of the training data"},
      {"log.trace_steps", is_empty("log.trace"), "--trace", "name the file to write: --trace run.pftrace"},
      {"log.trace_format", is_empty("log.trace"), "--trace", "name the file to write: --trace run.pftrace"},
      {"log.metrics_address", !configuration.has_value("log.metrics_port"), "--metrics-port", "add --metrics-port 9100"},
  };
  for (const Needs& needs : all) {
    const Key& key = *FindKey(needs.key);
    if (!needs.missing || !IsChanged(configuration, key) || configuration.origin(needs.key).recorded) continue;
    throw Error(ErrorCode::kConfig, std::string(key.flag) + " needs " + needs.what, Escaped(configuration.origin(needs.key).place, 4096),
                std::string(needs.help) + ", or leave it out");
  }
}

}  // namespace gradloom
