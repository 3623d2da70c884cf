// What the instructions of a program find in the caches.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// By instruction: the share of the bytes that it touches (operands, results, scratch memory) which are in the caches, if what a device has
// touched stays there until it has touched `cache_bytes` other bytes. For a step that follows another one of the same program, whose feeds
// were written just before. 1 for an instruction that touches nothing, as one that waits.
std::vector<double> CachedShares(const Program& program, double cache_bytes);

}  // namespace gradloom
