// Empty replacements of all families of CPU kernels, so that the reference kernels serve every call.
#include "kernels/cpu/families.h"

namespace gradloom {

std::span<const CpuKernel> CpuCopyKernels() { return {}; }
std::span<const CpuKernel> CpuReorderKernels() { return {}; }
std::span<const CpuKernel> CpuPointwiseKernels() { return {}; }
std::span<const CpuKernel> CpuReduceKernels() { return {}; }
std::span<const CpuKernel> CpuRunningKernels() { return {}; }
std::span<const CpuKernel> CpuArgExtremeKernels() { return {}; }
std::span<const CpuKernel> CpuTopKKernels() { return {}; }
std::span<const CpuKernel> CpuSoftmaxKernels() { return {}; }
std::span<const CpuKernel> CpuBatchNormKernels() { return {}; }
std::span<const CpuKernel> CpuSharedBatchNormKernels() { return {}; }
std::span<const CpuKernel> CpuNormalizationKernels() { return {}; }
std::span<const CpuKernel> CpuGroupNormKernels() { return {}; }
std::span<const CpuKernel> CpuLocalResponseKernels() { return {}; }
std::span<const CpuKernel> CpuQuantizeKernels() { return {}; }
std::span<const CpuKernel> CpuRandomKernels() { return {}; }
std::span<const CpuKernel> CpuLossKernels() { return {}; }
std::span<const CpuKernel> CpuOptimizerKernels() { return {}; }
std::span<const CpuKernel> CpuMoveKernels() { return {}; }
std::span<const CpuKernel> CpuSpaceDepthKernels() { return {}; }
std::span<const CpuKernel> CpuIndexKernels() { return {}; }
std::span<const CpuKernel> CpuElementIndexKernels() { return {}; }
std::span<const CpuKernel> CpuTupleIndexKernels() { return {}; }
std::span<const CpuKernel> CpuLstmKernels() { return {}; }
std::span<const CpuKernel> CpuGruKernels() { return {}; }
std::span<const CpuKernel> CpuFastAttentionKernels() { return {}; }
std::span<const CpuKernel> CpuAttentionKernels() { return {}; }
std::span<const CpuKernel> CpuMatMulKernels() { return {}; }
std::span<const CpuKernel> CpuLongConvolutionKernels() { return {}; }
std::span<const CpuKernel> CpuWindowConvolutionKernels() { return {}; }
std::span<const CpuKernel> CpuConvolutionRowKernels() { return {}; }
std::span<const CpuKernel> CpuDepthwiseKernels() { return {}; }
std::span<const CpuKernel> CpuWinogradKernels() { return {}; }
std::span<const CpuKernel> CpuWinogradWeightKernels() { return {}; }
std::span<const CpuKernel> CpuDenseWeightKernels() { return {}; }
std::span<const CpuKernel> CpuWindowWeightKernels() { return {}; }
std::span<const CpuKernel> CpuGroupedConvolutionKernels() { return {}; }
std::span<const CpuKernel> CpuConvolutionKernels() { return {}; }
std::span<const CpuKernel> CpuFastPairWeightKernels() { return {}; }
std::span<const CpuKernel> CpuFastBfloat16Kernels() { return {}; }
std::span<const CpuKernel> CpuMaxPoolKernels() { return {}; }
std::span<const CpuKernel> CpuAveragePoolKernels() { return {}; }
std::span<const CpuKernel> CpuResizeKernels() { return {}; }
std::span<const CpuKernel> CpuColumnsKernels() { return {}; }
std::span<const CpuKernel> CpuDeformConvKernels() { return {}; }
std::span<const CpuKernel> CpuGridSampleKernels() { return {}; }
std::span<const CpuKernel> CpuRoiAlignKernels() { return {}; }
std::span<const CpuKernel> CpuPadKernels() { return {}; }
std::span<const CpuKernel> CpuSignalKernels() { return {}; }
std::span<const CpuKernel> CpuWidenedKernels() { return {}; }
std::span<const CpuKernel> CpuSlowAttentionKernels() { return {}; }
std::span<const CpuKernel> CpuSlowPairWeightKernels() { return {}; }
std::span<const CpuKernel> CpuSlowBfloat16Kernels() { return {}; }

std::string_view FastBfloat16Instructions() { return ""; }

}  // namespace gradloom
