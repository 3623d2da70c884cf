// The catalog rows of the CUDA device's kernels. They are data only, so a plan for a GPU can be compiled without a GPU or a CUDA toolkit.
// Each family's kernels are in the file of the same name in the parent folder.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// One list per family of operators.
std::span<const KernelRow> CudaMoveRows();           // move.cc
std::span<const KernelRow> CudaIndexRows();          // index.cc
std::span<const KernelRow> CudaPointwiseRows();      // pointwise.cc: pointwise programs, compiled at load
std::span<const KernelRow> CudaElementwiseRows();    // elementwise.cc: pointwise operators on every other element type
std::span<const KernelRow> CudaReduceRows();         // reduce.cc
std::span<const KernelRow> CudaScanRows();           // scan.cc
std::span<const KernelRow> CudaSoftmaxRows();        // softmax.cc
std::span<const KernelRow> CudaNormalizationRows();  // normalization.cc
std::span<const KernelRow> CudaBatchNormRows();      // batch_norm.cc
std::span<const KernelRow> CudaLossRows();           // loss.cc
std::span<const KernelRow> CudaOptimizerRows();      // optimizer.cc
std::span<const KernelRow> CudaRandomRows();         // random.cc
std::span<const KernelRow> CudaBlasRows();           // blas.cc: products by cuBLASLt
std::span<const KernelRow> CudaProductRows();        // product.cc
std::span<const KernelRow> CudaSmallConvRows();      // convolution.cc: small gradients of weights
std::span<const KernelRow> CudaDnnConvRows();        // dnn_convolution.cc: by cuDNN
std::span<const KernelRow> CudaConvolutionRows();    // convolution.cc
std::span<const KernelRow> CudaPoolingRows();        // pooling.cc
std::span<const KernelRow> CudaSampleRows();         // sample.cc: Resize, GridSample
std::span<const KernelRow> CudaDnnAttentionRows();   // dnn_attention.cc: by cuDNN
std::span<const KernelRow> CudaAttentionBlasRows();  // attention_products.cc: by cuBLASLt
std::span<const KernelRow> CudaAttentionRows();      // attention.cc
std::span<const KernelRow> CudaRecurrentBlasRows();  // recurrent_products.cc: by cuBLASLt
std::span<const KernelRow> CudaRecurrentRows();      // recurrent.cc
std::span<const KernelRow> CudaLinearAlgebraRows();  // linear_algebra.cc: Det
std::span<const KernelRow> CudaQuantizedRows();      // quantized.cc
std::span<const KernelRow> CudaTensorScatterRows();  // tensor_scatter.cc
std::span<const KernelRow> CudaTrainingRows();       // training.cc: the optimizers of ai.onnx.preview.training
std::span<const KernelRow> CudaUnfoldRows();         // unfold.cc: Col2Im, MaxUnpool
std::span<const KernelRow> CudaDeformConvRows();     // deform_conv.cc
std::span<const KernelRow> CudaExtentRows();         // extents.cc: results whose extents depend on data
std::span<const KernelRow> CudaNarrowRows();         // narrow.cc: casts of types with fewer than 16 bits
std::span<const KernelRow> CudaRegionRows();         // regions.cc: regions of interest
std::span<const KernelRow> CudaSignalRows();         // signal.cc: Fourier transforms
std::span<const KernelRow> CudaTraditionalRows();    // traditional.cc: ai.onnx.ml

// Each function returns a reason to reject a call, or "". FirstOf returns the first reason.
namespace cuda_rows {

// The number of axes that device code handles, after adjacent ones are merged (kernels/cuda/offset_calculator.cuh).
inline constexpr int kMaxAxes = 8;

// An operand is not row-major.
std::string Layouts(const KernelCall& call);
// The operands of rank `rank` are neither all row-major nor all channels-last, or another operand is not row-major.
std::string ChannelOrders(const KernelCall& call, int rank);
// Whether an operand of this rank is channels-last; false if that is the same order in memory as row-major.
bool HasChannelsLast(const KernelCall& call, int rank);
// One of these inputs is not a constant.
std::string Unknown(const KernelCall& call, std::initializer_list<size_t> inputs);
// This input is not of type float32, float64, float16 or bfloat16.
std::string NotFloating(const KernelCall& call, size_t input = 0);
// An operand has a rank above `rank`.
std::string RankAbove(const KernelCall& call, int rank);

std::string FirstOf(std::initializer_list<std::string> reasons);

}  // namespace cuda_rows
}  // namespace gradloom
