// Joins the results of the branches of an If whose extents differ, or depend on data. Private to compiler/onnx.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/importer.h"

namespace gradloom {

// Results that only differ in extents are padded to the larger bound, and both branches return the numbers of valid elements after their
// results. So the If has static result types, and readers of its results follow these counts as for any other tensor.
class JoinedBranches {
 public:
  JoinedBranches(RegionFrame& then_branch, RegionFrame& else_branch, std::string origin)
      : frames_{&then_branch, &else_branch}, origin_(std::move(origin)) {}

  // Changes the results of the branches; results of different types or ranks stay unchanged.
  void Run();

  // Declares the extents and elements of the results of an If with these branches, including the counts.
  void Declare(Emitter& outer, const std::vector<ValueId>& made) const;

 private:
  // One size for each branch, in terms of its own body.
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
  // Translates the sizes to the enclosing graph, if both are the same size there.
  bool Outside(const Pair& sizes, Size& outside) const;

  std::array<RegionFrame*, 2> frames_;
  std::string origin_;
  std::vector<Joined> axes_;
  std::vector<JoinedNumbers> numbers_;
  std::vector<Pair> counts_;
};

}  // namespace gradloom
