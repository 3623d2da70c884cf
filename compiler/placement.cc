#include "compiler/placement.h"

#include <algorithm>
#include <string>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

std::string NameOfDevice(const Recipe& recipe, int index) {
  return std::string(DeviceKindName(recipe.device)) + ":" + std::to_string(index);
}

// How to have this many devices. Those of other kinds than the CPU are listed one by one.
std::string Devices(const Recipe& recipe, int count) {
  return recipe.device == DeviceKind::kCpu ? "--devices cpu:" + std::to_string(count) : "name " + std::to_string(count) + " in --devices";
}

// With --gather-to, the placed nodes are the tail, or those that relate samples.
void CheckGathering(const Recipe& recipe) {
  const std::string name = NameOfDevice(recipe, recipe.gather_to);
  if (recipe.gather_to >= recipe.devices) {
    throw Error(ErrorCode::kConfig, "there is no device " + name + " among " + std::to_string(recipe.devices), "--gather-to",
                Devices(recipe, recipe.gather_to + 1));
  }
  const bool elsewhere =
      std::any_of(recipe.place.begin(), recipe.place.end(), [&](const PlaceRule& rule) { return rule.stage != recipe.gather_to; });
  if (recipe.place_auto || elsewhere) {
    throw Error(ErrorCode::kConfig, "with --gather-to " + name + ", parts of the model can only be placed on that device", "--place",
                "use --place 'PATTERN=" + name + "', or leave out --gather-to");
  }
}

// With --shard-optimizer, every device has the whole model.
void CheckSharding(const Recipe& recipe) {
  const char* const flag = "--shard-optimizer";
  if (Gathers(recipe)) {
    throw Error(ErrorCode::kConfig, "the optimizer's state cannot be shared out if one device gathers the samples of all", flag,
                recipe.tail.empty() ? "leave out --gather-to, or --shard-optimizer"
                                    : "the model relates samples, so one device must gather them; leave out --shard-optimizer");
  }
  if (recipe.place_auto || recipe.placed_stages > 0 || !recipe.place.empty()) {
    throw Error(ErrorCode::kConfig, "the optimizer's state cannot be shared out if parts of the model are placed on devices of their own",
                flag, "leave out --place, or --shard-optimizer");
  }
  if (recipe.UsesFileAlgorithm()) {
    throw Error(ErrorCode::kConfig, "the states of the file's own training algorithm cannot be shared out", flag,
                "use --loss NAME to train with Gradloom's losses and optimizers, or leave out --shard-optimizer");
  }
}

// With --pipeline, parts of the model are on devices of their own; what --place auto finds may need no parts.
void CheckPipeline(const Recipe& recipe, int stages) {
  const char* const flag = "--pipeline";
  if (Gathers(recipe)) {
    throw Error(ErrorCode::kConfig, "micro-batches cannot be computed at the same time if one device gathers the samples of all", flag,
                "leave out --pipeline, or --gather-to");
  }
  if (stages > 1 || recipe.place_auto) return;
  throw Error(ErrorCode::kConfig, "a device that holds the whole model computes one micro-batch after the other", flag,
              "use --place to put parts of the model on several devices, or --micro-batch to accumulate gradients");
}

}  // namespace

bool Gathers(const Recipe& recipe) { return recipe.gather_to >= 0; }

int CopiesOf(const Recipe& recipe, const Stages& stages) { return Gathers(recipe) ? recipe.devices : recipe.devices / stages.count; }

Stages StagesOf(const Recipe& recipe, const std::function<Stages()>& cut) {
  Stages stages;
  if (recipe.ShardsOptimizer()) CheckSharding(recipe);
  if (Gathers(recipe)) {
    CheckGathering(recipe);
    if (recipe.pipeline > 1) CheckPipeline(recipe, 1);
    stages.count = 2;
    return stages;
  }
  stages.count = std::max(CountStages(recipe.place), recipe.placed_stages);
  stages.of_node = recipe.placed;
  if (recipe.place_auto) stages = cut();
  if (recipe.pipeline > 1) CheckPipeline(recipe, stages.count);
  if (recipe.devices % stages.count == 0) return stages;
  throw Error(ErrorCode::kConfig,
              std::to_string(recipe.devices) + " devices are not a multiple of the model's " + std::to_string(stages.count) + " stages",
              "--place", Devices(recipe, stages.count) + ", or a multiple of it");
}

}  // namespace gradloom
