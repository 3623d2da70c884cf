// Faults in what one rank has, communicates or computes of what others have too. Private to mutations.cc.
#pragma once

#include <cstddef>
#include <span>

#include "tests/verify/mutations.h"

namespace gradloom {

std::span<const MutationKind> RankMutationKinds();

// Whether this one of `places` places is in the sample.
bool Sampled(size_t places);

}  // namespace gradloom
