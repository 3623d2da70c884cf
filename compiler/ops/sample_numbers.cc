// Sample indices: `h[arange(batch), last]`; rows of all samples in sequence that are selected by the sample index times the rows per
// sample; regions of images with the index of their image. A device counts from its own first sample, so that it selects from its own
// samples.
#include <algorithm>
#include <optional>
#include <utility>

#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

using Steps = std::vector<int64_t>;

constexpr char kOthers[] = "it reads sample indices, which each device counts from its own first sample";

// Returns one step for each of `width` positions along the last axis.
Steps Spread(const Steps& steps, int64_t width) {
  if (static_cast<int64_t>(steps.size()) == width) return steps;
  return Steps(static_cast<size_t>(width), steps.empty() ? 0 : steps[0]);
}

Steps Shortest(Steps steps) {
  const bool same = std::all_of(steps.begin(), steps.end(), [&](int64_t step) { return step == steps[0]; });
  if (same && !steps.empty()) steps.resize(steps[0] == 0 ? 0 : 1);
  return steps;
}

class Counted {
 public:
  explicit Counted(ShardQuery& query) : query_(query), steps_(query.TakeSteps()) {}

  void Answer() {
    const std::string& op = query_.node().op;
    const bool own = query_.node().domain == kGradloomDomain;
    if (!own && !query_.node().domain.empty()) query_.Refuse(kOthers);
    if (own) {
      if (op == "GatherGrad") return GatherGrad();
      if (op == "GatherNDGrad") return GatherNdGrad();
      if (op == "RoiAlignGrad") return Regions(2);
      if (op == "MaxRoiPoolGrad") return Regions(1);
      query_.Refuse(kOthers);
    }
    if (op == "Gather" && steps_[0].empty()) return Gather();
    if (op == "GatherND") return GatherNd();
    if (op == "GatherElements" || op == "ScatterElements") return Elements();
    if (op == "ScatterND") return ScatterNd();
    if (op == "RoiAlign") return Regions(2);
    if (op == "MaxRoiPool") return Regions(1);
    if (op == "MaxUnpool") return Unpooled();
    AsNumbers();
  }

 private:
  const Steps& steps(int i) const { return steps_[static_cast<size_t>(i)]; }
  int64_t Width(int i) const { return query_.shape(i).rank() == 0 ? 1 : query_.shape(i)[query_.shape(i).rank() - 1]; }
  // Returns the number of positions per sample along the axis of operand i, if each sample is contiguous there; otherwise 0.
  int64_t PositionsPerSample(int i, int axis) {
    const Shard shard = query_.in(i);
    const int64_t extent = query_.shape(i)[axis], places = shard.split() && shard.axis == axis ? shard.InnerOf(extent, query_.batch()) : 0;
    return places * query_.batch() == extent ? places : 0;
  }
  [[noreturn]] void Across() const { query_.Refuse("its indices select among samples"); }
  bool Uniform(int i) const { return steps(i).size() == 1; }

  // --- values computed from sample indices -----------------------------------------------------------------------------

  void AsNumbers() {
    const auto made = Made();
    if (!made) query_.Refuse(kOthers);
    InferShardsByRow(query_);
    Shard shard = query_.outputs()[0];
    Steps steps = Shortest(*made);
    if (!shard.split() && !steps.empty()) query_.Refuse(kOthers);
    shard.steps = std::move(steps);
    query_.set(0, shard);
  }

  std::optional<Steps> Made() const {
    const std::string& op = query_.node().op;
    const Shape& out = query_.out_shape(0);
    const int64_t width = out.rank() == 0 ? 1 : out[out.rank() - 1];
    if (op == "Identity" || (op == "Cast" && query_.out_dtype() != DType::kBool)) return steps(0);
    if (op == "Reshape" || op == "Unsqueeze" || op == "Squeeze" || op == "Flatten" || op == "Expand" || op == "Tile" || op == "Transpose") {
      if (!OnlyFirst()) return std::nullopt;
      if (Uniform(0)) return steps(0);
      const std::vector<int64_t> perm = query_.attributes().Ints("perm");
      const int rank = query_.shape(0).rank();
      if (op == "Transpose" && (perm.empty() || perm.back() != rank - 1)) return std::nullopt;
      return width == Width(0) ? std::optional(steps(0)) : std::nullopt;
    }
    if (op == "Add" || op == "Sub") {
      Steps sum = Spread(steps(0), width);
      const Steps other = Spread(steps(1), width);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += op == "Add" ? other[i] : -other[i];
      return sum;
    }
    if (op == "Mul") {
      const int one = steps(0).empty() ? 1 : 0;
      if (!steps(1 - one).empty() || query_.shape(1 - one).elements() != 1) return std::nullopt;
      Steps product = steps(one);
      for (int64_t& step : product) step *= query_.Ints(1 - one)[0];
      return product;
    }
    if (op == "Concat") return Joint();
    if (op == "Slice" || op == "Gather") return OnlyFirst() ? Chosen(op == "Slice") : std::nullopt;
    return std::nullopt;
  }

  bool OnlyFirst() const {
    return std::all_of(steps_.begin() + 1, steps_.end(), [](const Steps& steps) { return steps.empty(); });
  }

  std::optional<Steps> Joint() const {
    const int rank = query_.out_shape(0).rank();
    Steps joint;
    const bool along = query_.AxisAttribute("axis", 0, rank) == rank - 1;
    for (int i = 0; i < query_.num_inputs(); ++i) {
      const Steps one = Spread(steps(i), Width(i));
      if (!along && i > 0 && one != joint) return std::nullopt;
      if (along || i == 0) joint.insert(joint.end(), one.begin(), one.end());
    }
    return joint;
  }

  // Handles a selection along any axis.
  std::optional<Steps> Chosen(bool slice) const {
    if (Uniform(0)) return steps(0);
    const int rank = query_.shape(0).rank();
    if (!slice) {
      if (query_.AxisAttribute("axis", 0, rank) != rank - 1) return steps(0);
      if (query_.shape(1).rank() > 1) return std::nullopt;
      Steps chosen;
      for (int64_t at : query_.Ints(1)) chosen.push_back(steps(0)[static_cast<size_t>(at < 0 ? at + Width(0) : at)]);
      return chosen;
    }
    const std::vector<int64_t> starts = query_.Ints(1);
    std::vector<int64_t> axes(starts.size());
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
    axes = query_.Ints(3, axes);
    const std::vector<int64_t> strides = query_.Ints(4, std::vector<int64_t>(starts.size(), 1));
    for (size_t i = 0; i < axes.size(); ++i) {
      if ((axes[i] < 0 ? axes[i] + rank : axes[i]) != rank - 1) continue;
      const int64_t count = query_.out_shape(0)[rank - 1];
      if (strides[i] < 0) return std::nullopt;
      const int64_t start = std::clamp<int64_t>(starts[i] < 0 ? starts[i] + Width(0) : starts[i], 0, Width(0));
      Steps chosen;
      for (int64_t k = 0; k < count; ++k) chosen.push_back(steps(0)[static_cast<size_t>(start + k * strides[i])]);
      return chosen;
    }
    return steps(0);
  }

  // --- operators that select elements by sample index ------------------------------------------------------------------

  // Requires that the indices in operand i select within their own sample, which has `places` positions.
  void ExpectOwn(int i, int64_t places) const {
    if (!Uniform(i) || places == 0 || steps(i)[0] != places) Across();
  }

  // Returns the axis along which the index tuples in operand i select the sample, or -1.
  int CountedColumn(int i) const {
    const Shape& indices = query_.shape(i);
    const Steps all = Spread(steps(i), indices[indices.rank() - 1]);
    int column = -1;
    for (size_t k = 0; k < all.size(); ++k) {
      if (all[k] == 0) continue;
      if (column >= 0) Across();
      column = static_cast<int>(k);
    }
    return column;
  }
  int64_t StepOf(int i, int column) const { return Spread(steps(i), Width(i))[static_cast<size_t>(column)]; }

  Shard Tuples(int i) {
    const Shard indices = query_.in(i);
    if (indices.axis == query_.shape(i).rank() - 1) query_.Refuse("the last axis of its indices is the batch axis");
    return indices;
  }

  void Gather() {
    const int axis = query_.AxisAttribute("axis", 0, query_.shape(0).rank());
    Shard indices = query_.in(1);
    ExpectOwn(1, PositionsPerSample(0, axis));
    indices.axis += axis;
    query_.set(0, indices);
  }

  void GatherGrad() {
    const std::vector<int64_t> shape = query_.attributes().Ints("shape");
    const int axis = query_.AxisAttribute("axis", 0, static_cast<int>(shape.size()));
    Shard indices = query_.in(0);
    indices.axis += axis;
    Joined(query_, indices, query_.in(1));
    const int64_t places = shape[static_cast<size_t>(axis)] / query_.batch();
    ExpectOwn(0, query_.growing(0) == axis ? places : 0);
    query_.set(0, Shard::Split(axis, places));
  }

  void GatherNd() {
    if (query_.attributes().Int("batch_dims", 0) != 0 || !steps(0).empty()) query_.Refuse(kOthers);
    const int axis = CountedColumn(1);
    if (axis < 0 || PositionsPerSample(0, axis) != StepOf(1, axis)) Across();
    query_.set(0, Tuples(1));
  }

  void GatherNdGrad() {
    if (query_.attributes().Int("batch_dims", 0) != 0 || !steps(1).empty()) query_.Refuse(kOthers);
    const int axis = CountedColumn(0);
    if (axis < 0 || query_.growing(0) != axis) Across();
    const int64_t places = query_.attributes().Ints("shape")[static_cast<size_t>(axis)] / query_.batch();
    if (places != StepOf(0, axis)) Across();
    Joined(query_, Tuples(0), query_.in(1));
    query_.set(0, Shard::Split(axis, places));
  }

  // Operands: data, indices, updates.
  void ScatterNd() {
    if (!steps(0).empty() || !steps(2).empty()) query_.Refuse(kOthers);
    const int axis = CountedColumn(1);
    if (axis < 0 || PositionsPerSample(0, axis) != StepOf(1, axis)) Across();
    Joined(query_, Tuples(1), query_.in(2));
    query_.set(0, Shard::Split(axis, StepOf(1, axis)));
  }

  // The batch axis of indices and updates must be the axis that they select along.
  void Elements() {
    const bool gather = query_.node().op == "GatherElements";
    if (!steps(0).empty() || (!gather && !steps(2).empty())) query_.Refuse(kOthers);
    const int axis = query_.AxisAttribute("axis", 0, query_.shape(0).rank());
    const Shard indices = query_.in(1);
    ExpectOwn(1, PositionsPerSample(0, axis));
    if (indices.axis != axis) Across();
    if (gather) return query_.set(0, indices);
    Joined(query_, indices, query_.in(2));
    query_.set(0, Shard::Split(axis, steps(1)[0]));
  }

  // Images, and regions that contain the index of their image: in operand i, or in the first column of the regions if they are operand i.
  // The last operand of a gradient is that of the regions' results.
  void Regions(int i) {
    const bool numbers_alone = i == 2;
    const Steps named = numbers_alone ? steps(2) : Spread(steps(1), Width(1));
    for (int k = 0; k < query_.num_inputs(); ++k) {
      if (k != i && !steps(k).empty()) query_.Refuse(kOthers);
    }
    if (PositionsPerSample(0, 0) != 1 || named[0] != 1 ||
        std::any_of(named.begin() + 1, named.end(), [](int64_t step) { return step != 0; }))
      Across();
    Shard regions = query_.in(i);
    for (int k = 1; k < query_.num_inputs(); ++k) regions = Joined(query_, regions, query_.in(k));
    if (regions.axis != 0) Across();
    const bool gradient = query_.node().domain == kGradloomDomain;
    query_.set(0, gradient ? Shard::Split(0, 1) : regions);
  }

  // Elements and the indices of their maxima, which MaxPool counts over all samples. For a larger result the indices would be different.
  void Unpooled() {
    if (!steps(0).empty() || query_.shape(0) != query_.shape(1) || query_.num_inputs() > 2) query_.Refuse(kOthers);
    ExpectOwn(1, query_.out_shape(0).elements() / query_.batch());
    query_.set(0, Joined(query_, query_.in(0), query_.in(1)));
    if (query_.outputs()[0].axis != 0) Across();
  }

  ShardQuery& query_;
  const std::vector<Steps> steps_;
};

}  // namespace

void ShardCounted(ShardQuery& query) { Counted(query).Answer(); }

}  // namespace gradloom
