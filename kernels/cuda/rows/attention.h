// What a call of Attention or AttentionGrad attends to, as cuDNN wants to know it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/dnn_tensor.h"

namespace gradloom {

// o = softmax(scale q k' + mask) v for each head; tensors are [batch, heads, positions, elements]. Heads of q share those of k and v in
// order.
struct DnnAttention {
  DType dtype = DType::kFloat16;  // of all four; sums are float32
  double scale = 1;
  bool causal = false;  // query i sees the keys up to i
  DnnTensor q, k, v, o;
  DnnTensor mask;  // [batch, heads or 1, queries, keys], with steps of 0 where it is one for all; without dimensions: there is none

  bool has_mask() const { return !mask.dims.empty(); }
};

// Of a call, or nullopt, and why.
std::optional<DnnAttention> DnnAttentionOf(const KernelCall& call, std::string* why = nullptr);

// What of a gradient is computed at a time: as many samples, or heads of k of one sample with those of q that share them, as have gradients
// of scores that fit into 256 MiB. The first of the parts, all of which are alike; nullopt where the scores of a single head do not fit.
std::optional<DnnAttention> DnnGradientPart(const DnnAttention& attention);

// How scratch memory is divided, in bytes from its start. A mask comes there in the type of q. The gradient computes o again, with the
// logarithm of each query's sum, of a part; gradients that nobody wants go there, too. cuDNN has what follows.
struct DnnAttentionScratch {
  int64_t mask = 0;  // as cuDNN takes it, where there is one
  int64_t o = 0, sums = 0;
  std::array<int64_t, 3> gradients{-1, -1, -1};  // of q, k, v; -1: wanted, and not here
  int64_t library = 0, library_bytes = 0;
  int64_t bytes() const { return library + library_bytes; }
};
DnnAttentionScratch DnnAttentionScratchOf(const KernelCall& call, const DnnAttention& attention);

// [batch, heads, positions, elements] as it lies, of a tensor of that shape or, of rank 3, with the heads side by side: [batch, positions,
// heads * elements].
DnnTensor AttentionTensor(const Shape& shape, int64_t heads);

// Of the kernels of ours.
int64_t AttentionScratchBytes(const KernelCall& call);

}  // namespace gradloom
