#include "tools/run/options/recipe.h"

#include <cmath>

#include "runtime/base/error.h"
#include "tools/config/topology.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/loss_terms.h"
#include "tools/run/options/memory_limit.h"
#include "tools/run/options/named_devices.h"
#include "tools/run/options/node_placement.h"
#include "tools/run/options/optimizer_options.h"
#include "tools/run/options/surrogates.h"
#include "tools/run/views/mode_notes.h"

namespace gradloom {
namespace {

Precision PrecisionOf(const std::string& text) {
  if (text == "tf32") return Precision::kTf32;
  if (text == "bf16") return Precision::kBfloat16;
  return text == "fp16" ? Precision::kFloat16 : Precision::kFloat32;
}

LossScale LossScaleOf(const std::string& text, Precision precision) {
  constexpr double kInitial = 65536;
  if (text == "off" || (text.empty() && precision != Precision::kFloat16)) return {};
  if (text == "dynamic" || text.empty()) return {.initial = kInitial, .dynamic = true};
  const double number = ParseNumber(text, "the loss scale");
  if (std::isfinite(number) && number > 0) return {.initial = number};
  throw Error(ErrorCode::kConfig, "the loss scale must be above 0, got '" + Escaped(text) + "'", "",
              "use dynamic, off, or a number such as 1024");
}

void CheckOwnAlgorithm(const Configuration& configuration, const Recipe& recipe) {
  if (!recipe.UsesFileAlgorithm()) return;
  for (const char* key : {"model.detach", "model.surrogate"}) {
    if (!configuration.has_value(key)) continue;
    throw Error(ErrorCode::kConfig,
                std::string(FindKey(key)->flag) + " cannot be combined with the file's own training algorithm, which fixes the gradients",
                Escaped(configuration.origin(key).place, 4096), "use --loss NAME to train with Gradloom's losses and optimizers");
  }
  for (const Key& key : Keys()) {
    if (!IsChanged(configuration, key) || !(key.section() == "optimizer" || key.section() == "schedule")) continue;
    throw Error(ErrorCode::kConfig, std::string(key.flag) + " cannot be combined with the file's own training algorithm",
                Escaped(configuration.origin(key.name).place, 4096), "use --loss NAME to train with Gradloom's losses and optimizers");
  }
}

}  // namespace

Recipe RecipeOf(const Configuration& configuration, const Model& model, const Graph& graph, int64_t total_updates,
                std::vector<std::string>& notes) {
  Recipe recipe;
  recipe.mode = configuration.Text("model.mode") == "train" ? GraphMode::kTrain : GraphMode::kGraph;
  for (std::string& note : ModeNotes(graph, recipe.mode)) notes.push_back(std::move(note));
  recipe.losses = LossTermsOf(configuration, model, graph, notes);
  CheckOwnAlgorithm(configuration, recipe);
  recipe.optimizer = OptimizerOf(configuration);
  recipe.accumulate = configuration.Integer("train.accumulate");
  recipe.accumulate_samples = configuration.Text("train.accumulate_by") == "samples";
  recipe.precision = PrecisionOf(configuration.Text("train.precision"));
  Reading(configuration, "train.loss_scale",
          [&] { recipe.loss_scale = LossScaleOf(configuration.Text("train.loss_scale"), recipe.precision); });
  recipe.freeze = configuration.Texts("model.freeze");
  recipe.trainable = configuration.Texts("model.trainable");
  recipe.surrogates = SurrogatesOf(configuration);
  recipe.tie = !configuration.Switch("model.no_tie");
  const NamedDevices named = DevicesOf(configuration, notes);
  recipe.device = named.devices.kind;
  recipe.devices = named.devices.count;
  recipe.isa = named.isa;
  PlaceNodes(configuration, model, named.devices, recipe, notes);
  recipe.pipeline = static_cast<int>(configuration.Integer("devices.pipeline"));
  recipe.shard_optimizer = configuration.Switch("devices.shard_optimizer");
  recipe.sync_bn = configuration.Switch("devices.sync_bn");
  recipe.fixed_order = configuration.Text("devices.sum_order") != "any";
  if (const std::string& limit = configuration.Text("devices.memory_limit"); !limit.empty())
    recipe.memory_limit = ParseBytes(limit, "--memory-limit");
  const std::string& recompute = configuration.Text("devices.recompute");
  recipe.recompute = recompute == "none" ? RecomputeMode::kNone : recompute == "full" ? RecomputeMode::kFull : RecomputeMode::kAuto;
  if (const std::string& path = configuration.Text("devices.topology"); !path.empty())
    recipe.bucket_bytes = BucketBytes(ReadTopology(path), recipe.devices);
  recipe.threads = ThreadsOfDevice(configuration, recipe.devices);
  recipe.streams = static_cast<int>(configuration.Integer("devices.streams"));
  recipe.schedule = ScheduleOf(configuration, total_updates);
  return recipe;
}

}  // namespace gradloom
