#include "kernels/cuda/delay.h"
#include "kernels/cuda/launch.cuh"

namespace gradloom::cuda {

void EnqueueDelay(int64_t nanoseconds, cudaStream_t stream) {
  ForEachElement(
      1, stream, GRADLOOM_ON_DEVICE(int64_t) {
#ifdef __CUDA_ARCH__
        const auto now = [] {
          uint64_t time;
          asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
          return time;
        };
        const uint64_t until = now() + static_cast<uint64_t>(nanoseconds);
        while (now() < until) {
        }
#else
    (void)nanoseconds;
#endif
      });
}

}  // namespace gradloom::cuda
