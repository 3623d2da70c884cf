// The flags that say where data come from and how they meet the model's inputs and targets.
#pragma once

#include <string>
#include <vector>

#include "runtime/session/training_data.h"

namespace CLI {
class App;
}

namespace gradloom {

struct DataFlags {
  std::string data;
  std::string eval_data;
  std::string eval_split;              // "20%", "0.2", "tail:20%"
  std::vector<std::string> map;        // "image=p0..p63"
  std::vector<std::string> transform;  // "image=scale 1/255"; several of one input are applied in their order

  void Declare(CLI::App& app);

  // Throws Error(kConfig) for a word that is not NAME=VALUE, and for an input that is mapped twice.
  DataOptions ToOptions() const;
};

}  // namespace gradloom
