// Prepares oneDNN's convolutions: forward, for the gradient of the input and for that of the weights, with the layouts of the operands.
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

// Whether an operand is not in row-major order.
bool IsChannelsLast(const KernelCall& call);

// Gives x and y the layout with channels innermost, and w the layout `weights` if there is one.
void SetConvolutionLayouts(KernelCall& call, const std::optional<Layout>& weights);

struct PreparedConvolution {
  std::function<dnnl::primitive()> make;
  dnnl::memory::desc weights;
  std::vector<OneDnnPrimitive::Argument> arguments;  // inputs, outputs, and then the scratchpad
  int64_t scratch_bytes = 0;
  std::string implementation;  // oneDNN's name of the implementation
};

// Whether that is one of the library's plain loops or copies windows for a matrix product.
bool IsSlowConvolution(const PreparedConvolution& convolution);

// For call.threads threads. The gradient of the weights is for one thread, because it is divided before (convolution_weights.h) and summed
// in float32. Operands are row-major, or x and y have the channels innermost and the weights are in the library's preferred layout. Results
// are cached for equal calls: compiling, proving and loading a plan ask several times about each call, and the library needs a fraction of
// a millisecond to answer. Throws dnnl::error if the library has no implementation.
PreparedConvolution PrepareConvolution(const KernelCall& call, bool channels_last);

// Whether the library has no other implementation of a call with channels innermost, whatever its layouts: for example, if there is more
// padding than its tiles have points.
bool IsSlowChannelsLast(const KernelCall& call);

// Whether the library has another implementation with channels innermost, and its weights have a layout here.
bool IsVectorizedChannelsLast(const KernelCall& call);

// The layout of [O, I, ...] that corresponds to oneDNN's layout of weights, [O, I, ...] or in groups [G, O / G, I, ...]; nullopt if oneDNN
// pads groups with several outputs or divides a dimension that is one dimension here.
std::optional<Layout> ConvolutionWeightLayout(const dnnl::memory::desc& desc, bool grouped);

}  // namespace gradloom
