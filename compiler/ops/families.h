// The families of operators, one file each.
#pragma once

#include <span>

#include "compiler/ops/op.h"

namespace gradloom {

std::span<const Op> MatMulOps();             // matmul.cc
std::span<const Op> ReduceOps();             // reduce.cc
std::span<const Op> ShapeOps();              // shape.cc
std::span<const Op> ConvolutionOps();        // convolution.cc
std::span<const Op> PoolingOps();            // pooling.cc
std::span<const Op> NormalizationOps();      // normalization.cc
std::span<const Op> NormalizationMoreOps();  // normalization_more.cc
std::span<const Op> SoftmaxOps();            // softmax.cc
std::span<const Op> RandomOps();             // random.cc
std::span<const Op> DropoutOps();            // dropout.cc
std::span<const Op> LossOps();               // loss.cc
std::span<const Op> OptimizerOps();          // optimizer.cc
std::span<const Op> UnaryOps();              // pointwise_unary.cc
std::span<const Op> ActivationOps();         // activation.cc
std::span<const Op> BinaryOps();             // pointwise_binary.cc
std::span<const Op> EinsumOps();             // einsum.cc
std::span<const Op> DynamicOps();            // dynamic.cc
std::span<const Op> IndexOps();              // index.cc
std::span<const Op> RecurrentOps();          // recurrent.cc
std::span<const Op> ResizeOps();             // resize.cc
std::span<const Op> GridSampleOps();         // grid_sample.cc
std::span<const Op> AttentionOps();          // attention.cc
std::span<const Op> FusedOps();              // fused.cc
std::span<const Op> ReorderOps();            // reorder.cc
std::span<const Op> CollectiveOps();         // collective.cc
std::span<const Op> QuantizedOps();          // quantized.cc
std::span<const Op> RegionOfInterestOps();   // regions_of_interest.cc
std::span<const Op> SignalOps();             // signal.cc
std::span<const Op> TensorScatterOps();      // tensor_scatter.cc
std::span<const Op> TraditionalOps();        // traditional.cc
std::span<const Op> ControlFlowOps();        // control_flow.cc
std::span<const Op> ExtentOps();             // extents.cc
std::span<const Op> DerivativeOps();         // derivative.cc

}  // namespace gradloom
