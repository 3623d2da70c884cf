// A session without programs whose state has every dtype and layouts of its own, for tests of what is saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "runtime/session/checkpoint.h"
#include "runtime/session/checkpoint_folder.h"

namespace gradloom {

Plan SamplePlan();

// A fresh one: all state zero.
Session SampleSession(int64_t seed = 1234);

// State that depends on nothing but the number of steps, in every element, and the counters of that step.
void SetSampleState(Session& session, int64_t step);

// All state of the session, bit for bit.
std::map<std::string, std::string> BitsOf(const Session& session);

// The bits that SetSampleState gives.
std::map<std::string, std::string> SampleBits(int64_t step);

// What the folder's newest checkpoint restores; a test failure where there is none.
struct Restored {
  int64_t step = -1;
  std::map<std::string, std::string> bits;
  FoundCheckpoint found;
};
Restored RestoreNewest(const std::string& folder);

}  // namespace gradloom
