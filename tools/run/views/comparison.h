// The differences between two plans, two files of weights or checkpoints, or two runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradloom {

struct Comparison {
  std::string kind;                // "plans", "weights" or "runs"
  std::vector<std::string> lines;  // for people; empty if nothing differs
  bool same() const { return lines.empty(); }
};

// Compares two folders of runs, two plans, or the weights of two safetensors files, indexes or checkpoints. Tensors are compared element by
// element (NaN equals NaN), runs by configuration, final results, plan and weights. Throws Error(kConfig) if they are of different kinds,
// and what reading them throws.
Comparison Compare(const std::string& a, const std::string& b);

}  // namespace gradloom
