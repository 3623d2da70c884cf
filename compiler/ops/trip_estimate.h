// The number of iterations of a loop that cost estimates assume.
#pragma once

#include <cstdint>

namespace gradloom {

// The bound, if the file gives it; 1 if the bound only serves to end the loop eventually.
inline double EstimatedTrips(int64_t trip_bound) {
  constexpr int64_t kMax = 1 << 20;
  return trip_bound > kMax ? 1 : static_cast<double>(trip_bound);
}

}  // namespace gradloom
