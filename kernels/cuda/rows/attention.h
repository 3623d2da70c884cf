// The problem that a call of attention or its gradient poses to cuDNN, and the division of its scratch memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/catalog/attention.h"
#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/dnn_tensor.h"

namespace gradloom {

// o = softmax(scale q k^T + mask) v for each head; tensors are [batch, heads, positions, elements]. Consecutive heads of q share a head of
// k and v.
struct DnnAttention {
  DType dtype = DType::kFloat16;  // of q, k, v and o; sums are float32
  double scale = 1;
  bool causal = false;        // query i sees keys 0 to i
  bool deterministic = true;  // a gradient: the same bits in every run
  DnnTensor q, k, v, o;
  DnnTensor mask;     // [batch, heads or 1, queries, keys], strides of 0 along broadcast axes; no dims: no mask
  bool kept = false;  // whether a gradient is given o and the log-sum-exps

  bool has_mask() const { return !mask.dims.empty(); }
  // The size of the gradients of all scores, which a deterministic gradient stores to have a fixed order of sums; otherwise 0.
  int64_t score_gradient_bytes() const;
};

// The problem of a call. Returns nullopt if cuDNN cannot serve it, and sets `why`.
std::optional<DnnAttention> DnnAttentionOf(const KernelCall& call, std::string* why = nullptr);

// A gradient is computed in equal parts: several samples, or for a single sample several heads of k with the heads of q that share them,
// such that the gradients of their scores take at most 256 MiB. Returns the first part, or nullopt if the scores of a single head are
// larger.
std::optional<DnnAttention> DnnGradientPart(const DnnAttention& attention);

// The division of the scratch memory, in bytes from its start. A converted mask has the type of q. A gradient that is not given o and the
// log-sum-exp of each query recomputes them, for one part at a time; unwanted gradients are written here as well. The rest is cuDNN's
// workspace.
struct DnnAttentionScratch {
  int64_t mask = 0;                              // the mask in cuDNN's form, if the problem has one
  int64_t o = 0, sums = 0;                       // if they are recomputed
  std::array<int64_t, 3> gradients{-1, -1, -1};  // of q, k, v; -1: wanted, so not in scratch memory
  int64_t library = 0, library_bytes = 0;
  int64_t bytes() const { return library + library_bytes; }
};
DnnAttentionScratch DnnAttentionScratchOf(const KernelCall& call, const DnnAttention& attention);

// Vectors as a tensor [batch, heads, positions, elements].
DnnTensor AttentionTensor(const AttentionVectors& vectors, int64_t batch);

// For Gradloom's own attention kernels.
int64_t AttentionScratchBytes(const KernelCall& call);

}  // namespace gradloom
