// cuDNN execution plans: chosen and built when a Gradloom plan is loaded.
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
  // `addresses` are device addresses in the order that the problem defines, which also says which of them are written. `scratch` has the
  // size granted at construction. Enqueues only; legal during graph capture. Throws Error(kDevice).
  virtual void Run(std::span<const void* const> addresses, void* scratch, CUstream_st* stream) = 0;
};

// The functions below return cuDNN's first choice among the algorithms that are deterministic, keep to the precision that the problem
// allows and need at most `scratch_bytes` of scratch memory. They return null if there is none, and set `why` to the library's message.
// They throw Error(kDevice) if the library does not work at all.

// Addresses: x, w, y; the direction determines which is written.
std::unique_ptr<DnnPlan> PlanDnnConvolution(const DnnConvolution& convolution, int64_t scratch_bytes, Libraries& libraries,
                                            std::string& why);

// Addresses: q, k, v; then the outputs: o and, if `sums`, the log-sum-exp of the scores as a float32 per [batch, head, query]; last the
// mask, if the problem has one.
std::unique_ptr<DnnPlan> PlanDnnAttention(const DnnAttention& attention, bool sums, int64_t scratch_bytes, Libraries& libraries,
                                          std::string& why);

// Addresses: q, k, v, o, the gradient of o (with the layout of o), the log-sum-exps; then the outputs: the gradients of q, k and v; last
// the mask, if the problem has one.
std::unique_ptr<DnnPlan> PlanDnnAttentionGradient(const DnnAttention& attention, int64_t scratch_bytes, Libraries& libraries,
                                                  std::string& why);

}  // namespace gradloom::cuda
