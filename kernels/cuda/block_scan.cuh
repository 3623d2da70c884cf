// Prefix sums over the threads of a block.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

// Returns the sum of the values of all lower threads; `total` is set to the sum of all. All threads of the block must call it.
GRADLOOM_DEVICE int64_t ExclusiveScan(const Block& block, int64_t value, int64_t* total) {
  GRADLOOM_SHARED(memory, 32 * sizeof(int64_t));
  int64_t* const sums = reinterpret_cast<int64_t*>(memory);  // one per warp
  const int lane = block.thread() % 32, warp = block.thread() / 32;
  int64_t sum = value;
  for (int step = 1; step < 32; step *= 2) {
    const int64_t before = ShuffleUp(sum, step);
    if (lane >= step) sum += before;
  }
  if (lane == 31) sums[warp] = sum;
  block.Sync();
  int64_t before = sum - value;
  *total = 0;
  for (int k = 0; k < block.threads() / 32; ++k) {
    if (k < warp) before += sums[k];
    *total += sums[k];
  }
  block.Sync();
  return before;
}

// Replaces the numbers by their exclusive prefix sums, with one block. Returns the sum of all.
GRADLOOM_DEVICE int64_t ExclusiveScanInPlace(const Block& block, int64_t n, int64_t* numbers) {
  int64_t sum = 0;
  for (int64_t begin = 0; begin < n; begin += block.threads()) {
    const int64_t i = begin + block.thread();
    int64_t total;
    const int64_t before = ExclusiveScan(block, i < n ? numbers[i] : 0, &total);
    if (i < n) numbers[i] = sum + before;
    sum += total;
  }
  return sum;
}

}  // namespace gradloom::cuda
