// Describes a file or folder that is not a plan, for the verb inspect.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradloom {

enum class InspectedKind { kPlan, kCheckpoint, kWeights, kModel, kData };

// Decided by the name, and for a folder by its contents; kPlan if nothing else matches, which includes the folder of a run.
InspectedKind KindOfInspected(const std::string& path);

// Lines of text, and a table for longer lists, with its header first. `json` has the same content.
struct Inspection {
  std::vector<std::string> lines;
  std::vector<std::vector<std::string>> table;
  nlohmann::ordered_json json;

  std::string Text() const;
};

// Throws Error of any class that names the file, as the regular readers do.
Inspection InspectModel(const std::string& path);
// `path` is the folder of a checkpoint, a folder of checkpoints (uses the newest one that can be loaded), a safetensors file, or an index
// of several.
Inspection InspectCheckpoint(const std::string& path);
Inspection InspectData(const std::string& path);

}  // namespace gradloom
