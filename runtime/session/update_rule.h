// Which batches of a run make an update.
#pragma once

#include <cstdint>

#include "runtime/plan/plan.h"

namespace gradloom {

// Every `accumulate` batches make an update. The last batch of an epoch ends its update too, which then has fewer batches.
struct UpdateRule {
  int64_t accumulate = 1;
  int64_t epoch = 0;  // batches per epoch; 0: updates do not end with epochs

  // Number of updates of the first `batches` batches of a run.
  int64_t UpdatesOf(int64_t batches) const;
  // Number of batches of the first `updates` updates; the largest number of the type if it is too large for it.
  int64_t BatchesOf(int64_t updates) const;
  // Number of batches since the last update, after the first `batches` of a run.
  int64_t Pending(int64_t batches) const { return (epoch > 0 ? batches % epoch : batches) % accumulate; }
};

// The rule for a plan. Plans of earlier releases do not count the weight of an update; their updates need all batches.
UpdateRule UpdateRuleOf(const Plan& plan, int64_t epoch);

}  // namespace gradloom
