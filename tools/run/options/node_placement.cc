#include "tools/run/options/node_placement.h"

#include <algorithm>

#include "compiler/onnx/device_annotations.h"
#include "compiler/passes/devices/place_devices.h"
#include "runtime/base/call_text.h"
#include "runtime/base/error.h"
#include "tools/run/options/key_values.h"
#include "tools/run/options/named_devices.h"

namespace gradloom {
namespace {

// "encoder.*=cpu:1", or "encoder.*=cuda:3" if that is one of the devices.
PlaceRule ParsePlace(const std::string& text, const DeviceSpec& devices) {
  const size_t equals = text.rfind('=');
  const int index = equals == std::string::npos ? -1 : ParseDeviceIndex(Trimmed(text.substr(equals + 1)), devices);
  if (index < 0 || equals == 0) {
    throw Error(ErrorCode::kConfig, "cannot read the placement '" + Escaped(text) + "'", "",
                devices.kind == DeviceKind::kCuda ? "expected PATTERN=cuda:0, a GPU of " + devices.ToString() +
                                                        " that occurs there once, PATTERN=cpu:0 for the first of them, or auto"
                                                  : "expected PATTERN=cpu:1, for example --place 'encoder.*=cpu:1', or auto");
  }
  return {Trimmed(text.substr(0, equals)), index};
}

// Uses the placement in the model file, if it is requested or if no devices are configured.
void PlaceByFile(const Configuration& configuration, const Model& model, Recipe& recipe, std::vector<std::string>& notes) {
  const std::vector<std::string>& words = configuration.Texts("devices.place");
  const bool asked = std::find(words.begin(), words.end(), kPlaceByFile) != words.end();
  if (asked && words.size() > 1)
    throw Error(ErrorCode::kConfig, "the placement cannot be both 'file' and given by patterns", "", "omit one of them");
  const FilePlacement file = ReadPlacement(model);
  if (asked && !file.placement) {
    throw Error(ErrorCode::kConfig, file.note.empty() ? "the model file has no placement" : file.note, "",
                "use --place 'PATTERN=cpu:1', or omit --place to train on one device");
  }
  const bool told = !words.empty() || GathersByConfiguration(configuration) || configuration.is_set("devices.target");
  if (!file.note.empty()) notes.push_back("devices " + file.note);
  if (!file.placement) return;
  if (!asked && told) {
    notes.push_back("devices the file's placement on " + std::to_string(file.placement->devices) +
                    " devices is ignored: flags set another");
    return;
  }
  const DevicePlacement& placement = *file.placement;
  if (!configuration.is_set("devices.use")) {
    recipe.devices = placement.devices;
  } else if (!asked) {
    notes.push_back("devices the file's placement on " + std::to_string(placement.devices) +
                    " devices is ignored: " + configuration.origin("devices.use").place + " is " + configuration.Text("devices.use"));
    return;
  }
  recipe.placed = placement.of_node;
  recipe.placed_stages = placement.stages > 1 ? placement.stages : 0;
  const std::string used =
      configuration.is_set("devices.use") ? configuration.Text("devices.use") : "cpu:" + std::to_string(recipe.devices);
  notes.push_back("devices " + used + ", " + std::to_string(placement.stages) +
                  " per copy of the model   [the file's annotations: set --devices to change]");
}

}  // namespace

bool GathersByConfiguration(const Configuration& configuration) {
  const std::string& device = configuration.Text("devices.gather_to");
  return !device.empty() && device != kGatherNowhere;
}

void PlaceNodes(const Configuration& configuration, const Model& model, const DeviceSpec& devices, Recipe& recipe,
                std::vector<std::string>& notes) {
  Reading(configuration, "devices.place", [&] {
    for (const std::string& text : configuration.Texts("devices.place")) {
      if (text == "auto") {
        recipe.place_auto = true;
      } else if (text != kPlaceByFile) {
        recipe.place.push_back(ParsePlace(text, devices));
      }
    }
    if (recipe.place_auto && !recipe.place.empty()) {
      throw Error(ErrorCode::kConfig, "the placement cannot be both 'auto' and given by patterns", "", "omit one of them");
    }
    if (!configuration.is_set("devices.use")) recipe.devices = CountStages(recipe.place);
    PlaceByFile(configuration, model, recipe, notes);
  });
  Reading(configuration, "devices.gather_to", [&] {
    const std::string& device = configuration.Text("devices.gather_to");
    recipe.gather_related = device != kGatherNowhere;
    if (!recipe.gather_related) return;
    recipe.gather_to = ParseDeviceIndex(device, devices);
    if (!device.empty() && recipe.gather_to < 0)
      throw Error(ErrorCode::kConfig, "cannot gather on device '" + Escaped(device) + "'", "",
                  devices.kind == DeviceKind::kCuda ? "use --gather-to with a GPU of " + devices.ToString() +
                                                          " that occurs there once, or with cpu:0 for the first of them"
                                                    : "use --gather-to cpu:0");
  });
}

void DropUnfitPlacement(Configuration& configuration) {
  const auto weaker = [&](const char* key) { return configuration.origin(key).IsFileUnder(configuration.origin("devices.use")); };
  if (!weaker("devices.place") && !weaker("devices.gather_to")) return;
  const DeviceSpec devices = ParseDevices(configuration.Text("devices.use"));
  const int count = std::max(devices.count, 1);
  int parts = 1;  // of the model; 0: there is no such device
  for (const std::string& text : configuration.Texts("devices.place")) {
    if (text == "auto") continue;
    const int index = text == kPlaceByFile ? 1 : ParseDeviceIndex(Trimmed(text.substr(text.rfind('=') + 1)), devices);
    parts = index < 0 || parts == 0 ? 0 : std::max(parts, index + 1);
  }
  if (GathersByConfiguration(configuration)) {
    const int index = ParseDeviceIndex(configuration.Text("devices.gather_to"), devices);
    if (index >= 0 && index < count && parts <= count) return;
  } else if (parts > 0 && count % parts == 0) {
    return;
  }
  for (const char* key : {"devices.place", "devices.pipeline", "devices.gather_to"}) {
    if (weaker(key)) configuration.Reset(key);
  }
}

int64_t CopiesOf(const Configuration& configuration) {
  std::vector<std::string> notes;
  const NamedDevices named = DevicesOf(configuration, notes);
  std::vector<PlaceRule> rules;
  Reading(configuration, "devices.place", [&] {
    for (const std::string& text : configuration.Texts("devices.place")) {
      if (text == "auto" || text == kPlaceByFile) {
        throw Error(ErrorCode::kConfig, "the number of devices per copy of the model is unknown before it is compiled", "",
                    "use --batch and --accumulate instead of --micro-batch");
      }
      rules.push_back(ParsePlace(text, named.devices));
    }
  });
  return configuration.is_set("devices.use") ? std::max(1, named.devices.count / std::max(CountStages(rules), 1)) : 1;
}

}  // namespace gradloom
