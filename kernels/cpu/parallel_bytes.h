// Copies and clears memory with several threads.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/parallel.h"
#include "runtime/base/checked.h"

namespace gradloom {

// A single core already uses half of the memory bandwidth, so more threads pay off late.
inline int ThreadsForBytes(int64_t bytes, int threads) { return ThreadsFor(bytes, 1 << 18, threads); }

// At most `threads` of them. The ranges must not overlap, unless they are equal: then nothing is copied.
inline void CopyBytes(void* to, const void* from, int64_t bytes, int threads) {
  if (to == from) return;
  ParallelRanges(bytes, kAlignmentBytes, ThreadsForBytes(bytes, threads), [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(end - begin));
  });
}

inline void ZeroBytes(void* to, int64_t bytes, int threads) {
  ParallelRanges(bytes, kAlignmentBytes, ThreadsForBytes(bytes, threads),
                 [&](int64_t begin, int64_t end) { std::memset(static_cast<char*>(to) + begin, 0, static_cast<size_t>(end - begin)); });
}

// Sets all outputs of a call to zero, for gradients that are accumulated.
inline void ZeroAllOutputs(const KernelCall& call, void* const* outputs) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (outputs[i] != nullptr) ZeroBytes(outputs[i], call.outputs[i].bytes(), call.threads);
  }
}

}  // namespace gradloom
