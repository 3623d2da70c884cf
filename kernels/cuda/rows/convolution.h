// A call of the convolution family as cuDNN wants to know it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cuda/rows/dnn_tensor.h"

namespace gradloom {

// A convolution as cuDNN sees it, over [N, C, ...]. Whatever its direction, it is of y = x * w; one of the three is computed of the other
// two. x has groups times as many channels as w.
struct DnnConvolution {
  enum class Direction : uint8_t { kForward, kGradInput, kGradWeight };
  Direction direction = Direction::kForward;
  DType dtype = DType::kFloat32;  // of all three; sums are float32
  bool allow_tf32 = false;        // float32 operands may be rounded to TF32
  DnnTensor x, w, y;
  std::vector<int64_t> pads, strides, dilations;  // for each of two or three spatial dimensions; pads: on either side
};

// Of a call, or nullopt, and why.
std::optional<DnnConvolution> DnnConvolutionOf(const KernelCall& call, std::string* why = nullptr);

// Bytes that its algorithms may use.
int64_t DnnScratchBytes(const DnnConvolution& convolution);

}  // namespace gradloom
