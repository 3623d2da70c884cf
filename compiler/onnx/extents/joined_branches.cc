#include "compiler/onnx/extents/joined_branches.h"

#include <algorithm>
#include <optional>

namespace gradloom {

void JoinedBranches::Run() {
  const size_t results = graph(0).outputs.size();
  for (size_t i = 0; i < results; ++i) {
    const ValueType a = graph(0).type(graph(0).outputs[i]), b = graph(1).type(graph(1).outputs[i]);
    if (a.dtype != b.dtype || a.shape.rank() != b.shape.rank()) continue;
    // Must run before anything is padded.
    JoinNumbers(i);
    JoinAxes(i);
  }
  for (size_t branch : {0, 1}) {
    for (const Pair& sizes : counts_) {
      const ValueId count = extents(branch).ScalarOf(sizes[branch], origin_);
      frames_[branch]->graph->outputs.push_back(count);
    }
  }
}

void JoinedBranches::JoinAxes(size_t result) {
  const std::array<ValueId, 2> ids{graph(0).outputs[result], graph(1).outputs[result]};
  const std::array<Shape, 2> shapes{graph(0).value(ids[0]).shape, graph(1).value(ids[1]).shape};
  std::vector<int64_t> bounds;
  for (int axis = 0; axis < shapes[0].rank(); ++axis) {
    const Pair sizes{extents(0).ExtentOf(ids[0], axis), extents(1).ExtentOf(ids[1], axis)};
    bounds.push_back(std::max(shapes[0][axis], shapes[1][axis]));
    if (sizes[0].known() && sizes[0] == sizes[1]) continue;
    axes_.push_back({result, axis, sizes, bounds.back()});
    Size outside;
    if (!Outside(sizes, outside) && std::find(counts_.begin(), counts_.end(), sizes) == counts_.end()) counts_.push_back(sizes);
  }
  for (size_t branch : {0, 1}) {
    frames_[branch]->graph->outputs[result] = extents(branch).PaddedTo(ids[branch], Shape(bounds), origin_);
  }
}

// Small integers may be used as extents.
void JoinedBranches::JoinNumbers(size_t result) {
  const std::array<ValueId, 2> ids{graph(0).outputs[result], graph(1).outputs[result]};
  if (graph(0).value(ids[0]).shape != graph(1).value(ids[1]).shape) return;
  std::array<std::optional<std::vector<Size>>, 2> numbers;
  for (size_t branch : {0, 1}) {
    numbers[branch] = extents(branch).Numbers(ids[branch]);
    if (!numbers[branch]) return;
  }
  std::vector<Pair> elements;
  for (size_t i = 0; i < numbers[0]->size(); ++i) {
    elements.push_back({(*numbers[0])[i], (*numbers[1])[i]});
    if (elements.back()[0].factor < 0 || elements.back()[1].factor < 0) return;
  }
  numbers_.push_back({result, std::move(elements)});
}

bool JoinedBranches::Outside(const Pair& sizes, Size& outside) const {
  Size other;
  return frames_[0]->Outside(sizes[0], outside) && frames_[1]->Outside(sizes[1], other) && outside == other;
}

void JoinedBranches::Declare(Emitter& outer, const std::vector<ValueId>& made) const {
  DataExtents& extents = outer.extents();
  const size_t results = made.size() - counts_.size();
  for (const Joined& joined : axes_) {
    if (made[joined.result] == kNoValue) continue;
    Size size;
    if (!Outside(joined.sizes, size)) {
      const auto count = std::find(counts_.begin(), counts_.end(), joined.sizes) - counts_.begin();
      size = extents.Counted(made[results + static_cast<size_t>(count)], joined.bound);
    }
    extents.Declare(made[joined.result], joined.axis, size);
  }
  for (const JoinedNumbers& joined : numbers_) {
    if (made[joined.result] == kNoValue) continue;
    std::vector<Size> numbers;
    for (size_t i = 0; i < joined.elements.size(); ++i) {
      Size size;
      if (!Outside(joined.elements[i], size)) {
        const int64_t bound = std::max(this->extents(0).Bound(joined.elements[i][0]), this->extents(1).Bound(joined.elements[i][1]));
        const int64_t least = std::min(this->extents(0).Least(joined.elements[i][0]), this->extents(1).Least(joined.elements[i][1]));
        size = extents.Counted(extents.ElementOf(made[joined.result], static_cast<int64_t>(i), origin_), bound, least);
      }
      numbers.push_back(size);
    }
    extents.DeclareNumbers(made[joined.result], std::move(numbers));
  }
}

}  // namespace gradloom
