// The convolution that a call poses to cuDNN, and how Gradloom's kernel divides the gradient of its weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/dnn_tensor.h"

namespace gradloom {

// [N, C, spatial...] of a rank of 3 or more with the channels innermost, padded to whole words of 16 bytes.
Layout PaddedChannels(DType dtype, int rank);

// The channels of an operand [N, C, spatial...] in memory, with padding, if they are innermost; nullopt otherwise, and for ranks
// below 3.
std::optional<int64_t> InnermostChannels(const OperandType& operand);

// y = x * w over [N, C, ...]. `direction` says which of the three is computed from the other two. x has as many channels as w times the
// number of groups.
struct DnnConvolution {
  enum class Direction : uint8_t { kForward, kGradInput, kGradWeight };
  Direction direction = Direction::kForward;
  DType dtype = DType::kFloat32;  // of x, w and y; sums are float32
  bool allow_tf32 = false;        // float32 operands may be rounded to TF32
  bool deterministic = true;      // the same bits in every run
  DnnTensor x, w, y;
  std::vector<int64_t> pads, strides, dilations;  // for each of two or three spatial dimensions; pads are symmetric
};

// The convolution of a call. Returns nullopt if cuDNN cannot serve it, and sets `why`.
std::optional<DnnConvolution> DnnConvolutionOf(const KernelCall& call, std::string* why = nullptr);

// Size of the workspace that its algorithms may use.
int64_t DnnScratchBytes(const DnnConvolution& convolution);

// The gradient of the weights by Gradloom's kernel: a thread sums the gradients of one weight of each of `filters` filters over a part of
// the rows of windows (those of one image that differ only in the last dimension). Depends on the shapes alone.
struct WeightGradientParts {
  int64_t filters = 1;  // that read the same elements of x: 1, 2 or 4
  int64_t threads = 0;  // for each part
  int64_t rows = 0;     // of all images
  int64_t parts = 1;    // with more than one, their sums go through scratch memory

  int64_t weights() const { return filters * threads; }
};

WeightGradientParts WeightGradientPartsOf(const KernelCall& call);

// Size of the scratch memory for the sums of the parts.
int64_t WeightGradientScratchBytes(const KernelCall& call);

}  // namespace gradloom
