// A session without programs whose state covers every dtype and several layouts, for tests of saving.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/checkpoint_folder.h"

namespace gradloom {

Plan SamplePlan();

// A new session with all state zero.
Session SampleSession(int64_t seed = 1234);

// Sets every element and the counters to values that depend on the number of steps alone.
void SetSampleState(Session& session, int64_t step);

// All state of the session, bit for bit.
std::map<std::string, std::string> BitsOf(const Session& session);

// The bits that SetSampleState writes.
std::map<std::string, std::string> SampleBits(int64_t step);

// Restores the newest checkpoint of the folder. It is a test failure if there is none.
struct Restored {
  int64_t step = -1;
  std::map<std::string, std::string> bits;
  FoundCheckpoint found;
};
Restored RestoreNewest(const std::string& folder);

}  // namespace gradloom
