// Kernels on the host, for tests without a GPU. launch.cuh, lines.cuh and shared.cuh call these functions; tests/cuda defines them.
#pragma once

#include <driver_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <type_traits>

namespace gradloom::cuda {

// Enqueues the work on a stream of the emulated runtime.
void EmulatedLaunch(cudaStream_t stream, std::function<void()> work);

// Enqueues a grid on a stream: body(block) runs once in each of the `threads` threads (a multiple of 32) of every block in [0, blocks), in
// any order of blocks. The threads of a block take turns in a random order and switch only at barriers and shuffles. So a missing barrier
// gives wrong results in some orders; a barrier that not all threads reach aborts the program.
void EmulatedBlocks(cudaStream_t stream, int64_t blocks, int threads, std::function<void(int64_t)> body);

// The same for a body that can also be passed to a device.
template <typename Body>
void EmulatedGrid(cudaStream_t stream, int64_t blocks, int threads, const Body& body) {
  // nvcc does not refuse a vector, whose members are constexpr.
  static_assert(std::is_trivially_copyable_v<Body>, "a kernel is copied to the device as bytes: it may not own memory of the host");
  EmulatedBlocks(stream, blocks, threads, body);
}

// For the threads of such a grid: the index of the thread in its block, __syncthreads and __syncwarp. `where` is the position of the
// barrier in the source.
int EmulatedThread();
void EmulatedSync(const std::source_location& where);
void EmulatedSyncWarp(const std::source_location& where);

// Returns the `word` of lane `from` of the warp, in [0, 32). All 32 lanes must call it.
unsigned EmulatedShuffle(unsigned word, int from);

// Shared memory of the block, identified by `key`: the same for all threads, aligned to 16 bytes, and poisoned at its first use in the
// block.
void* EmulatedShared(const void* key, size_t bytes);

}  // namespace gradloom::cuda
