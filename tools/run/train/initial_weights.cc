#include "tools/run/train/initial_weights.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/listing.h"
#include "runtime/base/name_pattern.h"
#include "runtime/base/nearest.h"
#include "runtime/base/suggestion.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/plan/average_state.h"
#include "runtime/plan/plan_file.h"
#include "tools/config/configuration.h"
#include "tools/run/serve/trained_model.h"
#include "tools/run/train/run_folder.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

// Shortened; "" if there are none.
std::string Listed(const std::vector<std::string>& names) {
  Listing listed(8);
  for (const std::string& name : names) listed.Add(Escaped(name, 80));
  return listed.text();
}

// The names of the parameters for which `is` is true.
std::vector<std::string> ParameterNames(const Session& session, const std::function<bool(const std::string& name)>& is) {
  std::vector<std::string> names;
  for (const StateTensor& tensor : session.plan().state) {
    if (tensor.kind == StateKind::kParameter && is(tensor.name)) names.push_back(tensor.name);
  }
  return names;
}

void CheckPatterns(const std::vector<std::string>& except, const InitialWeights& weights) {
  std::vector<std::string> names;
  for (const auto& [name, type] : weights.types()) names.push_back(name);
  for (const std::string& pattern : except) {
    if (PatternMatchesAny(pattern, names)) continue;
    const std::string near = Nearest(pattern, names);
    throw Error(ErrorCode::kConfig, "--init-except '" + Escaped(pattern) + "' matches none of its tensors", Escaped(weights.path(), 4096),
                near.empty() ? "gradloom inspect " + ShellWord(weights.path()) + "   lists them" : DidYouMean(near));
  }
}

Error DoesNotFit(const std::string& message, const std::string& path, const std::string& name) {
  return {ErrorCode::kCheckpoint, message, Escaped(path, 4096),
          "use weights of this model, or begin with the tensor as the model has it: --init-except " + ShellWord(name)};
}

StoredTensors Open(const std::string& path, std::vector<std::string>& notes) {
  if (path.ends_with(".onnx")) {
    throw Error(ErrorCode::kCheckpoint, "this is a model, not weights", Escaped(path, 4096),
                "to begin with its weights, train this model instead");
  }
  return RunFolder::IsRun(path) ? OpenWeights({.path = path}, notes) : StoredTensors(path);
}

}  // namespace

std::map<std::string, Tensor> FrozenWeightsOfRun(const std::string& path) {
  std::map<std::string, Tensor> weights;
  if (!RunFolder::IsRun(path)) return weights;
  const RunFolder run = RunFolder::Open(path);
  Configuration configuration;
  configuration.ReadFile(run.ConfigPath());
  const std::vector<std::string>&freeze = configuration.Texts("model.freeze"), &trainable = configuration.Texts("model.trainable");
  if (freeze.empty()) return weights;
  for (auto& [name, tensor] : KeptTensors(ReadPlan(run.PlanPath(), PlanTensors::kSkipped).model)) {
    if (tensor.shape().rank() > 0 && MatchesAnyPattern(freeze, name) && !MatchesAnyPattern(trainable, name)) weights.emplace(name, tensor);
  }
  return weights;
}

InitialWeights::InitialWeights(const std::string& path)
    : stored_(Open(path, notes_)), frozen_(FrozenWeightsOfRun(path)), types_(stored_.types()) {
  for (const auto& [name, tensor] : frozen_) types_.emplace(name, TensorView{tensor.dtype(), tensor.shape(), nullptr});
}

TrainedValues InitialWeights::values() const {
  return {.types = types_, .read = [this](const std::string& name) { return Read(name); }};
}

Tensor InitialWeights::Read(const std::string& name) const {
  return stored_.types().contains(name) ? stored_.Read(name) : frozen_.at(name);
}

Model WithFrozenWeights(const Model& model, const CompileOptions& options, const FrozenSource& source, std::set<std::string>& taken) {
  std::map<std::string, Tensor> values;
  const CompileReport report = ReportWeights(model, options);
  std::set<std::string> names;
  for (const auto* list : {&report.trained, &report.frozen}) {
    for (const CompileReport::Reason& weight : *list) names.insert(weight.name);
  }
  const auto is_weight = [&](const std::string& name) { return names.contains(name); };
  for (const CompileReport::Reason& frozen : report.frozen) {
    const auto type = source.values.types.find(frozen.name);
    if (type == source.values.types.end() || MatchesAnyPattern(source.except, frozen.name)) continue;
    // Types of 8 bits need scales, which are stored in other tensors.
    if (!IsFloating(type->second.dtype) || DTypeBytes(type->second.dtype) < 2) {
      throw DoesNotFit("tensor '" + Escaped(frozen.name) + "' is " + std::string(DTypeName(type->second.dtype)) +
                           ", but the model's is in floating point",
                       source.path, frozen.name);
    }
    values.emplace(frozen.name, source.values.read(TrainedTensor(source.values.types, frozen.name, is_weight)));
    taken.insert(frozen.name);
  }
  try {
    return model.WithTensors(values);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kShape) throw;
    throw Error(ErrorCode::kCheckpoint, error.where() + ": " + error.message(), Escaped(source.path, 4096),
                "use weights of this model, or begin with the tensor as the model has it: --init-except NAME");
  }
}

void LoadWeights(Session& session, const InitialWeights& weights, const std::vector<std::string>& except,
                 const std::set<std::string>& taken, std::vector<std::string>& notes) {
  CheckPatterns(except, weights);
  const std::string where = Escaped(weights.path(), 4096);
  bool loaded = false;
  NonFiniteWeights non_finite;
  const std::map<std::string, TensorView> kept_types = KeptTypes(session.plan().model);
  const auto is_weight = [&](const std::string& name) {
    const int index = session.FindState(name);
    return index >= 0 ? session.plan().state[static_cast<size_t>(index)].kind != StateKind::kAverage : kept_types.contains(name);
  };
  for (const auto& [name, type] : weights.types()) {
    if (taken.contains(name)) {
      non_finite.Add(name, weights.Read(name).view());
      loaded = true;
    }
    const int index = session.FindState(name);
    if (index < 0 || MatchesAnyPattern(except, name)) continue;
    // A new run counts its updates from 0, and foreign moments would be bias-corrected as if they had been accumulated since then.
    const StateTensor& state = session.plan().state[static_cast<size_t>(index)];
    if (state.kind != StateKind::kParameter && state.kind != StateKind::kStatistic) continue;
    try {
      const Tensor value = AsWeight(weights.Read(TrainedTensor(weights.types(), name, is_weight)), state.dtype);
      session.Set(name, value.view());
      if (!taken.contains(name)) non_finite.Add(name, value.view());
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kShape) throw;
      throw DoesNotFit(error.message(), weights.path(), name);
    }
    loaded = true;
  }
  if (!loaded) {
    throw Error(ErrorCode::kCheckpoint, "the model has none of its tensors", where,
                "the model has: " + Listed(ParameterNames(session, [](const std::string&) { return true; })));
  }
  if (const std::string line = non_finite.Warning(weights.path()); !line.empty()) notes.push_back(line);
  const auto is_kept = [&](const std::string& name) { return !weights.types().contains(name) || MatchesAnyPattern(except, name); };
  if (const std::string kept = Listed(ParameterNames(session, is_kept)); !kept.empty())
    notes.push_back("weights begin as the model has them, not from " + where + ": " + kept);
  std::set<std::string> known = taken;
  std::vector<std::string> fixed;
  for (const auto& [name, type] : kept_types) {
    if (taken.contains(name) || !weights.stored().types().contains(name)) continue;
    known.insert(name);
    if (!MatchesAnyPattern(except, name)) fixed.push_back(name);
  }
  if (!fixed.empty()) notes.push_back("warning frozen weights are those of the plan, not from " + where + ": " + Listed(fixed));
  if (const std::string line = UnusedTensors(session.plan(), weights.stored(), known); !line.empty()) notes.push_back("warning " + line);
}

}  // namespace gradloom
