// The flags that say where data come from and how they meet the model's inputs and targets.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/session/dataset.h"

namespace CLI {
class App;
}

namespace gradloom {

struct DataFlags {
  std::string data;
  std::string eval_data;
  std::string eval_split;              // "20%", "0.2", "tail:20%"
  std::vector<std::string> map;        // "image=p0..p63"
  std::vector<std::string> transform;  // "image=scale 1/255"

  void Declare(CLI::App& app);
};

struct LoadedData {
  Dataset train, eval;  // eval may have no rows
  std::vector<std::string> notes;
};

// Reads the files of the flags into columns of these names, splits, and applies the transforms (fitted on
// the training part). Without --map an .npz file's arrays go by their own names; of a CSV file the last
// column is the one target and all others the one input. Throws Error(kData, kIo, kConfig).
LoadedData LoadData(const DataFlags& flags, const std::vector<Feed>& feeds, int64_t seed);

// "20%" or "0.2" -> 0.2. Throws Error(kConfig).
double ParseShare(const std::string& text);

}  // namespace gradloom
