// The families of CPU kernels, one or a few files each. They are declared here, listed in families.cc and defined there, so that a missing
// family is a link error.
#pragma once

#include <span>

#include "kernels/cpu/cpu_kernels.h"

namespace gradloom {

using CpuFamily = std::span<const CpuKernel> (*)();

// All families in the order in which they are tried; none in a build with only the reference kernels.
std::span<const CpuFamily> CpuFamilies();

std::span<const CpuKernel> CpuCopyKernels();                // copy.cc
std::span<const CpuKernel> CpuReorderKernels();             // reorder.cc
std::span<const CpuKernel> CpuPointwiseKernels();           // pointwise_rows.cc
std::span<const CpuKernel> CpuReduceKernels();              // reduce.cc
std::span<const CpuKernel> CpuRunningKernels();             // running.cc
std::span<const CpuKernel> CpuArgExtremeKernels();          // arg_extreme.cc
std::span<const CpuKernel> CpuTopKKernels();                // top_k.cc
std::span<const CpuKernel> CpuSoftmaxKernels();             // softmax.cc
std::span<const CpuKernel> CpuBatchNormKernels();           // batch_norm.cc
std::span<const CpuKernel> CpuSharedBatchNormKernels();     // batch_norm_shared.cc
std::span<const CpuKernel> CpuNormalizationKernels();       // normalization.cc
std::span<const CpuKernel> CpuGroupNormKernels();           // group_norm.cc
std::span<const CpuKernel> CpuLocalResponseKernels();       // local_response.cc
std::span<const CpuKernel> CpuQuantizeKernels();            // quantize.cc
std::span<const CpuKernel> CpuRandomKernels();              // random.cc
std::span<const CpuKernel> CpuLossKernels();                // loss.cc
std::span<const CpuKernel> CpuOptimizerKernels();           // optimizer.cc
std::span<const CpuKernel> CpuMoveKernels();                // move_rows.cc
std::span<const CpuKernel> CpuSpaceDepthKernels();          // space_depth.cc
std::span<const CpuKernel> CpuIndexKernels();               // index.cc
std::span<const CpuKernel> CpuElementIndexKernels();        // index_elements.cc
std::span<const CpuKernel> CpuTupleIndexKernels();          // index_tuples.cc
std::span<const CpuKernel> CpuLstmKernels();                // lstm.cc
std::span<const CpuKernel> CpuGruKernels();                 // gru.cc
std::span<const CpuKernel> CpuFastAttentionKernels();       // attention_bfloat16.cc: if bfloat16 is faster than widened operands
std::span<const CpuKernel> CpuAttentionKernels();           // attention.cc
std::span<const CpuKernel> CpuFewRowsKernels();             // few_rows.cc
std::span<const CpuKernel> CpuMatMulKernels();              // matmul.cc
std::span<const CpuKernel> CpuLongConvolutionKernels();     // long_convolution.cc
std::span<const CpuKernel> CpuWindowConvolutionKernels();   // window_convolution.cc
std::span<const CpuKernel> CpuConvolutionRowKernels();      // convolution_rows.cc
std::span<const CpuKernel> CpuDepthwiseKernels();           // depthwise.cc
std::span<const CpuKernel> CpuDepthwiseConvKernels();       // depthwise_convolution.cc
std::span<const CpuKernel> CpuWinogradKernels();            // winograd.cc
std::span<const CpuKernel> CpuWinogradWeightKernels();      // winograd_weights.cc
std::span<const CpuKernel> CpuDenseWeightKernels();         // dense_weights.cc
std::span<const CpuKernel> CpuWindowWeightKernels();        // window_weights.cc
std::span<const CpuKernel> CpuGroupedConvolutionKernels();  // grouped_convolution.cc
std::span<const CpuKernel> CpuConvolutionKernels();         // convolution.cc
std::span<const CpuKernel> CpuFastPairWeightKernels();      // pair_weights.cc: with AMX
std::span<const CpuKernel> CpuFastBfloat16Kernels();        // convolution.cc: if bfloat16 is faster than widened operands
std::span<const CpuKernel> CpuMaxPoolKernels();             // max_pool.cc
std::span<const CpuKernel> CpuAveragePoolKernels();         // average_pool.cc
std::span<const CpuKernel> CpuResizeKernels();              // resize.cc
std::span<const CpuKernel> CpuColumnsKernels();             // columns.cc
std::span<const CpuKernel> CpuDeformConvKernels();          // deform_conv.cc
std::span<const CpuKernel> CpuGridSampleKernels();          // grid_sample.cc
std::span<const CpuKernel> CpuRoiAlignKernels();            // roi_align.cc
std::span<const CpuKernel> CpuPadKernels();                 // pad.cc
std::span<const CpuKernel> CpuSignalKernels();              // signal.cc
std::span<const CpuKernel> CpuWidenedKernels();             // widened.cc
std::span<const CpuKernel> CpuSlowAttentionKernels();       // attention_bfloat16.cc: the others, for plans compiled on other machines
std::span<const CpuKernel> CpuSlowPairWeightKernels();      // pair_weights.cc: likewise
std::span<const CpuKernel> CpuSlowBfloat16Kernels();        // convolution.cc: likewise

// The `make` function of a kernel whose constructor takes the call.
template <typename T>
std::unique_ptr<Kernel> MakeKernel(const KernelCall& call) {
  return std::make_unique<T>(call);
}

}  // namespace gradloom
