// What is in a file or folder that is no plan: for the verb inspect.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gradloom {

enum class InspectedKind { kPlan, kCheckpoint, kWeights, kModel, kData };

// By the name, and what of a folder lies in it; kPlan where nothing says otherwise, a run's folder included.
InspectedKind KindOfInspected(const std::string& path);

// What is worth a line each, and a table of what there are many of, its header first. `json` has the same for programs.
struct Inspection {
  std::vector<std::string> lines;
  std::vector<std::vector<std::string>> table;
  nlohmann::ordered_json json;

  std::string Text() const;
};

// Throws Error of any class that names the file, as those that read it for its purpose do.
Inspection InspectModel(const std::string& path);
// The folder of a checkpoint, or of a run's checkpoints (the newest that loads), or a safetensors file.
Inspection InspectCheckpoint(const std::string& path);
Inspection InspectData(const std::string& path);

}  // namespace gradloom
