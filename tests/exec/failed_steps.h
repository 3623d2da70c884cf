// Steps that fail by what they are fed: nothing that lives between steps may change by them, on any device.
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
  int64_t samples = 8;  // fewer than devices: some have none
  std::function<void(CompileOptions&)> change = [](CompileOptions&) {};
  bool decides = false;  // a net with a branch and a loop
};

// Trains by good batches, with bad ones between them, each of another kind, and compares with a training by the good ones alone. `options`
// of the sessions; `chaos`: with random delays, which keep devices from capturing steps.
void ExpectFailedStepsChangeNothing(const FailedStepCase& c, const ExecutorOptions& options, bool chaos);

}  // namespace gradloom
