#include "kernels/cpu/families.h"

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/loops.h"

namespace gradloom {
namespace {

// If two families serve the same operator, the first is tried first. One family per line.
// clang-format off
constexpr CpuFamily kFamilies[] = {
    CpuCopyKernels,
    CpuReorderKernels,
    CpuPointwiseKernels,
    CpuReduceKernels,
    CpuRunningKernels,
    CpuArgExtremeKernels,
    CpuTopKKernels,
    CpuSoftmaxKernels,
    CpuBatchNormKernels,
    CpuSharedBatchNormKernels,
    CpuNormalizationKernels,
    CpuGroupNormKernels,
    CpuLocalResponseKernels,
    CpuQuantizeKernels,
    CpuRandomKernels,
    CpuLossKernels,
    CpuOptimizerKernels,
    CpuMoveKernels,
    CpuSpaceDepthKernels,
    CpuIndexKernels,
    CpuElementIndexKernels,
    CpuTupleIndexKernels,
    CpuLstmKernels,
    CpuGruKernels,
    CpuFastAttentionKernels,
    CpuAttentionKernels,
    CpuFewRowsKernels,
    CpuMatMulKernels,
    CpuLongConvolutionKernels,
    CpuWindowConvolutionKernels,
    CpuConvolutionRowKernels,
    CpuDepthwiseKernels,
    CpuDepthwiseConvKernels,
    CpuWinogradKernels,
    CpuWinogradWeightKernels,
    CpuDenseWeightKernels,
    CpuWindowWeightKernels,
    CpuGroupedConvolutionKernels,
    CpuConvolutionKernels,
    CpuFastPairWeightKernels,
    CpuFastBfloat16Kernels,
    CpuMaxPoolKernels,
    CpuAveragePoolKernels,
    CpuResizeKernels,
    CpuColumnsKernels,
    CpuDeformConvKernels,
    CpuGridSampleKernels,
    CpuRoiAlignKernels,
    CpuPadKernels,
    CpuSignalKernels,
    CpuWidenedKernels,
    CpuSlowAttentionKernels,
    CpuSlowPairWeightKernels,
    CpuSlowBfloat16Kernels,
};
// clang-format on

}  // namespace

std::span<const CpuFamily> CpuFamilies() { return kFamilies; }

std::string_view UsedInstructionSet() { return BestLoops().name; }

}  // namespace gradloom
