// Counts the calls of operator new in a test.
#pragma once

#include <cstdint>

namespace gradloom {

// The number since the start of the process, in all threads.
int64_t Allocations();

}  // namespace gradloom
