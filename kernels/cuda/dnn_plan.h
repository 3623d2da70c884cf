// What cuDNN runs for a problem: chosen and built when a plan is loaded.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kernels/cuda/rows/attention.h"
#include "kernels/cuda/rows/convolution.h"

struct CUstream_st;

namespace gradloom::cuda {

class Libraries;

class DnnPlan {
 public:
  virtual ~DnnPlan() = default;
  // `addresses` on the device, in the problem's order; the problem says which of them are written. `scratch` has as many bytes as were
  // granted. Enqueues; legal while a graph is captured. Throws Error(kDevice).
  virtual void Run(std::span<const void* const> addresses, void* scratch, CUstream_st* stream) = 0;
};

// cuDNN's first choice among the algorithms that give the same bits at each run, keep to the precision that the problem allows and need no
// more scratch memory than this; null where there is none, and then `why` gets the library's words. Throw Error(kDevice) where the library
// does not work at all.

// Addresses: x, w, y; the direction says which is written.
std::unique_ptr<DnnPlan> PlanDnnConvolution(const DnnConvolution& convolution, int64_t scratch_bytes, Libraries& libraries,
                                            std::string& why);

// Addresses: q, k, v, then o, which is written, and with `sums` the logarithms of the sums of exponentials of scores, a float32 for each
// [batch, head, query], which are written too; last the mask, where the problem has one.
std::unique_ptr<DnnPlan> PlanDnnAttention(const DnnAttention& attention, bool sums, int64_t scratch_bytes, Libraries& libraries,
                                          std::string& why);

// Addresses: q, k, v, o, the gradient of o, which lies as o does, and the sums; then the gradients of q, k and v, which are written; last
// the mask, where the problem has one.
std::unique_ptr<DnnPlan> PlanDnnAttentionGradient(const DnnAttention& attention, int64_t scratch_bytes, Libraries& libraries,
                                                  std::string& why);

}  // namespace gradloom::cuda
