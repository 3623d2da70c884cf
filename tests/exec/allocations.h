// Counts what a test asks of operator new.
#pragma once

#include <cstdint>

namespace gradloom {

// Since the start of the process, by all threads.
int64_t Allocations();

}  // namespace gradloom
