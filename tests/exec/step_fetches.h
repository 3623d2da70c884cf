// Runs a recorded training step by step and collects the fetches, bit by bit.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/host_executor.h"
#include "tests/conformance/training_case.h"

namespace gradloom {

// Runs the plan's first entry, a training step, on batch `step` of the recording, counted from 0, and appends the bytes of all fetches.
inline void AddFetchesOfStep(HostExecutor& executor, const TrainingCase& recorded, int step, std::string& bytes) {
  const Entry& entry = executor.plan().entries[0];
  std::vector<TensorView> feeds;
  for (const Feed& feed : entry.feeds) feeds.push_back(recorded.batches.at(feed.name + std::to_string(step)).view());
  executor.Run(0, feeds, {.lr = 0.01F, .step = step + 1, .batch = step, .seed = 7});
  for (size_t f = 0; f < entry.fetches.size(); ++f) {
    const TensorView view = executor.Fetched(0, static_cast<int>(f));
    bytes.append(static_cast<const char*>(view.data), static_cast<size_t>(view.bytes()));
  }
}

}  // namespace gradloom
