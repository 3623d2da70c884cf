#include "tools/run/initial_weights.h"

#include <cstdint>
#include <functional>

#include "runtime/base/error.h"
#include "runtime/base/listing.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/nearest.h"
#include "runtime/checkpoint/weight_files.h"
#include "tools/run/run_folder.h"
#include "tools/run/stored_tensors.h"
#include "tools/run/trained_model.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

// The names of the parameters for which `is` is true, shortened; "" if there are none.
std::string ParameterNames(const Session& session, const std::function<bool(const std::string& name)>& is) {
  Listing names(8);
  for (const StateTensor& tensor : session.plan().state) {
    if (tensor.kind == StateKind::kParameter && is(tensor.name)) names.Add(Escaped(tensor.name, 80));
  }
  return names.text();
}

void CheckPatterns(const std::vector<std::string>& except, const StoredTensors& stored) {
  std::vector<std::string> names;
  for (const auto& [name, type] : stored.types()) names.push_back(name);
  for (const std::string& pattern : except) {
    if (PatternMatchesAny(pattern, names)) continue;
    const std::string near = Nearest(pattern, names);
    throw Error(ErrorCode::kConfig, "--init-except '" + Escaped(pattern) + "' matches none of its tensors", Escaped(stored.path(), 4096),
                near.empty() ? "gradloom inspect " + ShellWord(stored.path()) + "   lists them" : "did you mean '" + Escaped(near) + "'?");
  }
}

}  // namespace

std::string InitialWeightsPath(const std::string& path) {
  if (path.ends_with(".onnx")) {
    throw Error(ErrorCode::kCheckpoint, "this is a model, not weights", Escaped(path, 4096),
                "to begin with its weights, train this model instead");
  }
  return RunFolder::IsRun(path) ? WeightsPathOf({.path = path}) : path;
}

void LoadWeights(Session& session, const std::string& path, const std::vector<std::string>& except, std::vector<std::string>& notes) {
  const StoredTensors stored(path);
  CheckPatterns(except, stored);
  int64_t loaded = 0;
  NonFiniteWeights non_finite;
  for (const auto& [name, type] : stored.types()) {
    const int index = session.plan().FindState(name);
    if (index < 0 || MatchesAnyPattern(except, name)) continue;
    // A new run counts its updates from 0, and foreign moments would be bias-corrected as if they had been accumulated since then.
    const StateTensor& state = session.plan().state[static_cast<size_t>(index)];
    if (state.kind != StateKind::kParameter && state.kind != StateKind::kStatistic) continue;
    try {
      const Tensor value = AsWeight(stored.Read(name), state.dtype);
      session.Set(name, value.view());
      non_finite.Add(name, value.view());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kShape) throw;
      throw Error(ErrorCode::kCheckpoint, error.message(), Escaped(path, 4096),
                  "use weights of this model, or begin with the tensor as the model has it: --init-except " + ShellWord(name));
    }
    ++loaded;
  }
  if (loaded == 0) {
    throw Error(ErrorCode::kCheckpoint, "none of its tensors is trained by the model", Escaped(path, 4096),
                "the model has: " + ParameterNames(session, [](const std::string&) { return true; }));
  }
  if (const std::string line = non_finite.Warning(path); !line.empty()) notes.push_back(line);
  const auto is_kept = [&](const std::string& name) { return !stored.types().contains(name) || MatchesAnyPattern(except, name); };
  if (const std::string kept = ParameterNames(session, is_kept); !kept.empty())
    notes.push_back("weights begin as the model has them, not from " + Escaped(path, 4096) + ": " + kept);
  if (const std::string line = UnusedTensors(session.plan(), stored); !line.empty())
    notes.push_back("warning " + line +
                    "   [frozen weights are those of the model; to begin with all of a run's weights, train its export/model.onnx]");
}

}  // namespace gradloom
