// Kernels without a GPU, for tests: what launch.cuh, lines.cuh and shared.cuh need of the emulated device, which tests/cuda defines.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>

namespace gradloom::cuda {

// Enqueues the work on a stream of the emulated runtime.
void EmulatedLaunch(cudaStream_t stream, std::function<void()> work);

// Enqueues a grid on a stream: body(block) runs for all blocks in [0, blocks), in no order, each time once in every one of the `threads`
// threads of that block, a multiple of 32. Threads take turns in an order that is drawn for each block and stop only where they meet, so
// that a meeting that is missing, or one that not all threads come to, shows.
void EmulatedGrid(cudaStream_t stream, int64_t blocks, int threads, std::function<void(int64_t)> body);

// What a thread of such a block asks for: its number, __syncthreads, __syncwarp; `where` is the same for all that meet.
int EmulatedThread();
void EmulatedSync(const std::source_location& where);
void EmulatedSyncWarp(const std::source_location& where);

// The word that lane `from` of the warp gives, a number in [0, 32); all 32 lanes call it.
unsigned EmulatedShuffle(unsigned word, int from);

// The shared memory of this block whose name is `key`: the same for all threads, aligned to 16 bytes, poisoned when the first asks.
void* EmulatedShared(const void* key, size_t bytes);

}  // namespace gradloom::cuda
