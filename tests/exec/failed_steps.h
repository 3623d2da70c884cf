// Steps that fail because of their feeds must not change any state that lives between steps, on any device.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/passes/small_training.h"

namespace gradloom {

struct FailedStepCase {
  std::string name;
  int devices = 1;
  int streams = 0;
  int64_t samples = 8;  // fewer than devices means that some have none
  std::function<void(CompileOptions&)> change = [](CompileOptions&) {};
  bool decides = false;  // a model with a branch and a loop
};

// Trains on good batches with bad ones in between, each with a different defect, and compares with training on the good ones alone.
// `options` are those of the sessions. `chaos` adds random delays, which keep devices from capturing steps.
void ExpectFailedStepsChangeNothing(const FailedStepCase& c, const ExecutorOptions& options, bool chaos);

}  // namespace gradloom
