// How often costs take the body of a loop to run.
#pragma once

#include <cstdint>

namespace gradloom {

// As often as it may, where the file says that; once where the bound is only there to end the loop some day.
inline double CountedRounds(int64_t trip_bound) {
  constexpr int64_t kMost = 1 << 20;
  return trip_bound > kMost ? 1 : static_cast<double>(trip_bound);
}

}  // namespace gradloom
