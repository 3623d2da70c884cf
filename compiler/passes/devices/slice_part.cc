#include "compiler/passes/devices/slice_part.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "compiler/graph/constants.h"

namespace gradloom {

std::optional<SlicePart> PartOf(const Graph& graph, const Node& slice, const Shape& whole, const Shape& part) {
  const auto given = [&](size_t input) { return slice.inputs.size() > input && slice.inputs[input] != kNoValue; };
  const auto starts = ConstantInts(graph, slice, 1);
  auto axes = ConstantInts(graph, slice, 3), steps = ConstantInts(graph, slice, 4);
  if (!starts || starts->empty() || whole.rank() != part.rank() || (given(3) && !axes) || (given(4) && !steps)) return std::nullopt;
  if (!axes) {
    axes.emplace(starts->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (axes->size() != starts->size() || (steps && steps->size() != starts->size())) return std::nullopt;
  std::optional<SlicePart> found;
  for (size_t i = 0; i < starts->size(); ++i) {
    const std::optional<int> axis = NormalAxis((*axes)[i], whole.rank());
    if (!axis || (steps && (*steps)[i] != 1)) return std::nullopt;
    const int64_t extent = whole[*axis], start = (*starts)[i] < 0 ? (*starts)[i] + extent : (*starts)[i];
    const int64_t begin = std::clamp<int64_t>(start, 0, extent);
    const bool all = part[*axis] == extent;
    if (found && !all && found->end - found->begin != whole[found->axis]) return std::nullopt;
    if (!found || !all) found = SlicePart{*axis, begin, begin + part[*axis]};
  }
  return found;
}

}  // namespace gradloom
