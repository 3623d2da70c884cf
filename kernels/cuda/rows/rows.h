// The rows of the CUDA device's kernels: data alone, so that plans for a GPU are made where there is neither one nor a toolkit.
// Each family has its rows here and its kernels in the file of the same name beside this folder.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Operators to which the families of rows belong, one family a line.
std::span<const KernelRow> CudaMoveRows();           // move.cc
std::span<const KernelRow> CudaIndexRows();          // index.cc
std::span<const KernelRow> CudaPointwiseRows();      // pointwise.cc: programs over single elements, compiled at load
std::span<const KernelRow> CudaElementwiseRows();    // elementwise.cc: every other type of element
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
std::span<const KernelRow> CudaDnnConvRows();        // dnn_convolution.cc: by cuDNN
std::span<const KernelRow> CudaConvolutionRows();    // convolution.cc
std::span<const KernelRow> CudaPoolingRows();        // pooling.cc
std::span<const KernelRow> CudaSampleRows();         // sample.cc: Resize, GridSample
std::span<const KernelRow> CudaDnnAttentionRows();   // dnn_attention.cc: by cuDNN
std::span<const KernelRow> CudaAttentionBlasRows();  // attention_products.cc: over cuBLASLt
std::span<const KernelRow> CudaAttentionRows();      // attention.cc
std::span<const KernelRow> CudaRecurrentBlasRows();  // recurrent_products.cc: over cuBLASLt
std::span<const KernelRow> CudaRecurrentRows();      // recurrent.cc
std::span<const KernelRow> CudaLinearAlgebraRows();  // linear_algebra.cc: Det
std::span<const KernelRow> CudaQuantizedRows();      // quantized.cc
std::span<const KernelRow> CudaTensorScatterRows();  // tensor_scatter.cc
std::span<const KernelRow> CudaTrainingRows();       // training.cc: ONNX's own optimizers
std::span<const KernelRow> CudaUnfoldRows();         // unfold.cc: Col2Im, MaxUnpool
std::span<const KernelRow> CudaDeformConvRows();     // deform_conv.cc
std::span<const KernelRow> CudaExtentRows();         // extents.cc: extents that data decides
std::span<const KernelRow> CudaNarrowRows();         // narrow.cc: casts of elements of fewer than 16 bits
std::span<const KernelRow> CudaRegionRows();         // regions.cc: regions of interest
std::span<const KernelRow> CudaSignalRows();         // signal.cc: Fourier transforms
std::span<const KernelRow> CudaTraditionalRows();    // traditional.cc: ai.onnx.ml

// Reasons to reject a call, "" where there is none. They are joined by FirstOf.
namespace cuda_rows {

// An operand that does not lie in row-major order.
std::string Layouts(const KernelCall& call);
// Operands of `rank` lie neither all in row-major order nor all with their channels innermost, or some other one not in row-major order.
std::string ChannelOrders(const KernelCall& call, int rank);
// Whether those with channels are innermost there; false where both orders are one.
bool HasChannelsLast(const KernelCall& call, int rank);
// One of these inputs is data where its values must be known before the step.
std::string Unknown(const KernelCall& call, std::initializer_list<size_t> inputs);
// A floating-point operand (or the first input where `all` is false) of a type other than float32, float64, float16, bfloat16.
std::string NotFloating(const KernelCall& call, size_t input = 0);
// An operand, of those that are there, of rank above `rank`.
std::string RankAbove(const KernelCall& call, int rank);

std::string FirstOf(std::initializer_list<std::string> reasons);

}  // namespace cuda_rows
}  // namespace gradloom
