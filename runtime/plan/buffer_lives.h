// When the buffers of a program are used.
#pragma once

#include <vector>

#include "runtime/plan/plan.h"

namespace gradloom {

// The first and the last instruction that uses a buffer or a part of it; -1 if there is none.
struct BufferLife {
  int first = -1, last = -1;
};

// By buffer.
std::vector<BufferLife> LivesOf(const Program& program);

}  // namespace gradloom
