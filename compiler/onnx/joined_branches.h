// The common results of the branches of an If whose extents differ, or depend on the data of a step. Private to this directory.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/importer.h"

namespace gradloom {

// Results that differ in extents alone are padded to the most of both, and both branches say behind them how many elements count. So the
// If itself gives static shapes, and what reads its results follows the counts as those of any other tensor.
class JoinedBranches {
 public:
  JoinedBranches(RegionFrame& then_branch, RegionFrame& else_branch, std::string origin)
      : frames_{&then_branch, &else_branch}, origin_(std::move(origin)) {}

  // Changes what the branches give; results of other types or ranks stay as they are.
  void Run();

  // Says of the values that an If of these branches gives, counts included, what is known of their extents and elements.
  void Declare(Emitter& outer, const std::vector<ValueId>& made) const;

 private:
  // One number of each branch, in terms of its own body.
  using Pair = std::array<Size, 2>;
  struct Joined {
    size_t result = 0;
    int axis = 0;
    Pair sizes;
    int64_t bound = 0;
  };
  struct JoinedNumbers {
    size_t result = 0;
    std::vector<Pair> elements;
  };

  DataExtents& extents(size_t branch) const { return frames_[branch]->emitter->extents(); }
  const Graph& graph(size_t branch) const { return *frames_[branch]->graph; }
  void JoinAxes(size_t result);
  void JoinNumbers(size_t result);
  // The number as the graph around the branches has it, where it is one number of both.
  bool Outside(const Pair& sizes, Size& outside) const;

  std::array<RegionFrame*, 2> frames_;
  std::string origin_;
  std::vector<Joined> axes_;
  std::vector<JoinedNumbers> numbers_;
  std::vector<Pair> counts_;
};

}  // namespace gradloom
