#include "tools/run/records/run_metrics.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "runtime/session/trainer.h"

namespace gradloom {
namespace {

TEST(RunMetricsTest, SavesAreCheckpoints) {
  int64_t written = 0;
  RunMetrics metrics("runs/exp1", "model.onnx", {}, [&] { return written; });
  const auto has = [&](const std::string& saves) {
    return metrics.Page().find("\ngradloom_saves_total " + saves + "\n") != std::string::npos;
  };
  metrics.OnStep({});
  // An epoch that ends during a save is not saved, and a save ends later than it begins.
  metrics.OnSave(SaveReason::kInterval);
  metrics.OnSave(SaveReason::kInterval);
  EXPECT_TRUE(has("0")) << metrics.Page();
  written = 1;
  metrics.OnStep({});
  EXPECT_TRUE(has("1")) << metrics.Page();
  written = 2;
  metrics.OnSave(SaveReason::kEnd);
  EXPECT_TRUE(has("2")) << metrics.Page();
}

}  // namespace
}  // namespace gradloom
