// Softmax and LogSoftmax along one axis.
#include "compiler/ops/families.h"
#include "compiler/ops/sharding.h"

namespace gradloom {
namespace {

// dx = y * (g - sum(g * y))
void SoftmaxGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  const int64_t axis = c.attributes().Int("axis", -1);
  const ValueId sum = c.b.ReduceSum(c.b.Mul(c.grad(0), c.out(0)), {axis}, /*keepdims=*/true);
  c.set(0, c.b.Mul(c.b.Sub(c.grad(0), sum), c.out(0)));
}

// dx = g - exp(y) * sum(g)
void LogSoftmaxGradient(GradientContext& c) {
  if (!c.needs(0)) return;
  const ValueId sum = c.b.ReduceSum(c.grad(0), {c.attributes().Int("axis", -1)}, /*keepdims=*/true);
  c.set(0, c.b.Sub(c.grad(0), c.b.Mul(c.b.Op("Exp", {c.out(0)}), sum)));
}

const Op kOps[] = {
    {.name = "Softmax", .domain = "", .since_version = 13, .gradient = SoftmaxGradient, .shard = ShardAlongAxis},
    {.name = "LogSoftmax", .domain = "", .since_version = 13, .gradient = LogSoftmaxGradient, .shard = ShardAlongAxis},
};

}  // namespace

std::span<const Op> SoftmaxOps() { return kOps; }

}  // namespace gradloom
