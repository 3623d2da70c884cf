#include "compiler/passes/loss/loss_scale.h"

#include <algorithm>
#include <string>
#include <utility>

namespace gradloom {
namespace {

constexpr double kGrowth = 2, kBackoff = 0.5;
// Outside these bounds a scale is useless, and would end as infinity or zero.
constexpr double kLargest = 0x1p24, kSmallest = 0x1p-14;

ValueId State(GraphBuilder& b, std::string_view name, Tensor initial) {
  const ValueId known = b.graph().Find(name);
  return known != kNoValue ? known : b.graph().AddData(std::string(name), std::move(initial), Role::kState);
}

ValueId Count(GraphBuilder& b, std::string_view name) { return State(b, name, Tensor::Scalar<int64_t>(0)); }

}  // namespace

ValueId LossScaleValue(GraphBuilder& b, const LossScale& options) {
  return State(b, kLossScaleState, Tensor::Scalar<float>(static_cast<float>(options.initial)));
}

ValueId SkippedUpdates(GraphBuilder& b) { return Count(b, kSkippedUpdatesState); }

void AddLossScaleUpdate(GraphBuilder& b, const LossScale& options, ValueId good) {
  const auto become = [&](ValueId state, ValueId next) { b.graph().value(next).next_of = state; };
  const ValueId one = b.Scalar(1, DType::kInt64), none = b.Scalar(0, DType::kInt64);
  const ValueId skipped = SkippedUpdates(b);
  become(skipped, b.Where(good, skipped, b.Add(skipped, one)));
  if (!options.dynamic) return;
  const ValueId scale = LossScaleValue(b, options), run = Count(b, kGoodUpdatesState);
  const ValueId longer = b.Add(run, one);
  const ValueId grows = b.Op("Equal", {longer, b.Scalar(static_cast<double>(options.growth_interval), DType::kInt64)});
  const ValueId larger = b.Op("Min", {b.Scale(scale, kGrowth), b.Scalar(kLargest, DType::kFloat32)});
  const ValueId smaller = b.Op("Max", {b.Scale(scale, kBackoff), b.Scalar(kSmallest, DType::kFloat32)});
  become(run, b.Where(b.Op("And", {good, b.Op("Not", {grows})}), longer, none));
  become(scale, b.Where(good, b.Where(grows, larger, scale), smaller));
}

}  // namespace gradloom
