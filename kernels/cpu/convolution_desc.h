// What oneDNN would run for a convolution, forward, for its input or for its weights, and where the operands go.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "kernels/cpu/onednn.h"

namespace gradloom {

bool HasConvolutionBias(const KernelCall& call);

// Whether an operand is in another order than row-major.
bool IsChannelsLast(const KernelCall& call);

struct PreparedConvolution {
  std::function<dnnl::primitive()> make;
  dnnl::memory::desc weights;
  std::vector<OneDnnPrimitive::Argument> arguments;  // outputs after inputs, the scratchpad behind them
  int64_t scratch_bytes = 0;
  std::string implementation;  // oneDNN's name of it
};

// For call.threads threads, but a weights' gradient, which is divided before (convolution_weights.h) and summed in float32, for one; with
// row-major operands or with the channels of x and y innermost and the weights as the library likes them.
// Asked once for equal calls: a compile, its proof and a load want to know of each several times, and the library takes a fraction of a
// millisecond to answer. Throws dnnl::error for what the library has no implementation of.
PreparedConvolution PrepareConvolution(const KernelCall& call, bool channels_last);

// Weights as oneDNN keeps them, [O, I, ...] or in groups [G, O / G, I, ...], as a layout of [O, I, ...]; nullopt where it
// pads groups or parts what we hold as one dimension.
std::optional<Layout> ConvolutionWeightLayout(const dnnl::memory::desc& desc, bool grouped);

}  // namespace gradloom
