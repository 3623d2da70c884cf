// What is different between two plans, two files of weights, or two runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace gradloom {

struct Comparison {
  std::string kind;                // "plans", "weights" or "runs"
  std::vector<std::string> lines;  // for people; none where nothing differs
  bool same() const { return lines.empty(); }
};

// Takes folders of runs, plans and safetensors files, both of one kind. Tensors are compared number by number (NaN is
// as good as NaN), runs by configuration, final results, plan and weights. Throws Error(kConfig) for two kinds, and
// what reading them throws.
Comparison Compare(const std::string& a, const std::string& b);

}  // namespace gradloom
