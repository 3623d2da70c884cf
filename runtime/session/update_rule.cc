#include "runtime/session/update_rule.h"

#include <algorithm>
#include <limits>

#include "runtime/base/checked.h"

namespace gradloom {
namespace {

int64_t UpdatesPerEpoch(const UpdateRule& rule) { return (rule.epoch + rule.accumulate - 1) / rule.accumulate; }

}  // namespace

int64_t UpdateRule::UpdatesOf(int64_t batches) const {
  if (epoch == 0) return batches / accumulate;
  return batches / epoch * UpdatesPerEpoch(*this) + batches % epoch / accumulate;
}

int64_t UpdateRule::BatchesOf(int64_t updates) const {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (epoch == 0) return CheckedMul(updates, accumulate).value_or(kMost);
  // The updates of the last epoch are fewer than that epoch has, so all of them have `accumulate` batches.
  const int64_t per_epoch = UpdatesPerEpoch(*this), rest = updates % per_epoch * accumulate;
  const int64_t whole = CheckedMul(updates / per_epoch, epoch).value_or(kMost);
  return whole > kMost - rest ? kMost : whole + rest;
}

UpdateRule UpdateRuleOf(const Plan& plan, int64_t epoch) {
  // The accumulator that counts the weight of batches belongs to no parameter.
  const auto counts = [](const StateTensor& state) { return state.kind == StateKind::kAccumulator && state.parameter < 0; };
  return {.accumulate = plan.accumulate, .epoch = std::any_of(plan.state.begin(), plan.state.end(), counts) ? epoch : 0};
}

}  // namespace gradloom
