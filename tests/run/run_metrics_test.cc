#include "tools/run/run_metrics.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/session/trainer.h"

namespace gradloom {
namespace {

TEST(RunMetricsTest, SavesAreCheckpoints) {
  RunMetrics metrics("runs/exp1", "model.onnx", {});
  StepReport step;
  for (int64_t batch = 1; batch <= 3; ++batch) {
    step.result.batch = batch;
    metrics.OnStep(step);
    // One that is the best and also due is saved once, and so is the last.
    metrics.OnSave(SaveReason::kBest);
    metrics.OnSave(batch < 3 ? SaveReason::kInterval : SaveReason::kEnd);
  }
  EXPECT_NE(metrics.Page().find("\ngradloom_saves_total 3\n"), std::string::npos) << metrics.Page();
}

}  // namespace
}  // namespace gradloom
