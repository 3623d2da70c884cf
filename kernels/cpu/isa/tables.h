// The functions that the files of one instruction set contribute to its table.
#pragma once

#include "kernels/cpu/isa/loops.h"

namespace gradloom::GRADLOOM_ISA {

extern const PointwiseLoop kPointwiseLoops[];
void LoadBool(const unsigned char* from, float* to, Index n);
void StoreBool(const float* from, unsigned char* to, Index n);
void LoadFloat16(const unsigned short* from, float* to, Index n);
void StoreFloat16(const float* from, unsigned short* to, Index n);
void LoadBfloat16(const unsigned short* from, float* to, Index n);
void StoreBfloat16(const float* from, unsigned short* to, Index n);
void Fill(float* to, float value, Index n);
extern const QuantizeLoop kQuantize[];
extern const DequantizeLoop kDequantize[];
void ExpScaled(const float* x, float* y, Index n, float factor);

using RowReduction = float (*)(const float*, Index);
using ColumnReduction = void (*)(const float*, Index, Index, Index, float*);
extern const RowReduction kRowReductions[];
extern const ColumnReduction kColumnReductions[];

void SoftmaxRow(const float* x, float* y, Index n);
void LogSoftmaxRow(const float* x, float* y, Index n);
void SoftmaxGradRow(const float* p, float* g, Index n, float scale);
void SoftmaxColumns(const float* x, float* y, Index n, Index stride, Index columns, float* work);
void LogSoftmaxColumns(const float* x, float* y, Index n, Index stride, Index columns, float* work);

double SumSquaredDistance(const float* x, Index n, float mean);
double SumProductCentered(const float* g, const float* x, Index n, float mean);
void ShiftScaleShift(const float* x, float* y, Index n, float mean, float scale, float shift);
void NormGradient(const float* g, const float* x, float* dx, Index n, float grad_scale, float mean_g, float mean, float proj_scale);
void ColumnMoments(const float* x, Index rows, Index columns, float* mean, float* squares);
void ColumnProducts(const float* g, const float* x, Index rows, Index columns, const float* mean, float* sum, float* product);
void ShiftScaleShiftColumns(const float* x, float* y, Index rows, Index columns, const float* mean, const float* scale, const float* shift);
void NormGradientColumns(const float* g, const float* x, float* dx, Index rows, Index columns, const float* grad_scale, const float* mean_g,
                         const float* mean, const float* proj_scale);
void GroupGradient(const float* g, const float* x, float* dx, Index n, float grad_scale, float mean, float proj_scale, float shift);
void GroupGradientColumns(const float* g, const float* x, float* dx, Index rows, Index columns, const float* grad_scale, const float* mean,
                          const float* proj_scale, const float* shift);
void RmsNormRow(const LayerNormArgs& args, const float* x, float* y);
void RmsNormGradRow(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale);
void LayerNormRow(const LayerNormArgs& args, const float* x, float* y, float* mean, float* inv_std);
void LayerNormGradRow(const LayerNormArgs& args, const float* g, const float* x, float* dx, float* dscale, float* dbias);

void LocalResponse(const ResponseArgs& args, const float* x, float* bases, float* powers);
void LocalResponseGrad(const ResponseArgs& args, const float* dy, const float* x, const float* bases, const float* powers, float* dx);

void FourierPass(const FourierPassArgs& args);
void FourierJoinHalves(const FourierHalvesArgs& args);
void FourierSplitHalves(const FourierHalvesArgs& args);
void RingForward(const RingPass* passes, Index count, float* data);
void RingBackward(const RingPass* passes, Index count, float scale, float* data);
void RingProducts(const RingProductArgs& args);
void RingSums(const RingSumArgs& args);
bool GridPoints(const GridArgs& args);
void GridSamples(const int* at, const float* weight, const float* x, Index n, bool inside, float* y);
void GridGradients(const GridGradientArgs& args);

extern const UpdateFunction kUpdates[];

void Matrix(const MatrixArgs& args, float* pack);
void PackMatrix(const MatrixArgs& args, float* pack);
void MultiplyPacked(const MatrixArgs& args, const float* pack);
void ConvolveDepthwise(const DepthwiseArgs& args);
void DepthwiseGradient(const DepthwiseGradArgs& args);
void GroupedGradient(const GroupedGradArgs& args);
void MultiplyFewRows(const MatrixArgs& args, Index begin, Index end);
void PairRows(const unsigned short* first, const unsigned short* second, unsigned* to, Index n);
void RoundPairs(const float* first, const float* second, unsigned* to, Index n);
void MultiplyPairs(const PairArgs& args);
void AddOuterProducts(const OuterArgs& args);
void WinogradPatch(const WinogradPatchArgs& args);
void WinogradPair(const WinogradPatchArgs& args);
void WinogradFilter(const WinogradFilterArgs& args);
void WinogradOutput(const float* from, Index plane, Index columns, const float* bias, float* const* points);
void WinogradFilterGradient(const WinogradFilterGradArgs& args);
void WinogradProducts(const WinogradTileArgs& args);
void Largest(const PoolArgs& args, float* value);
void ArgMax(const PoolArgs& args, int* index);
void SelectByIndex(const int* index, const int* own, int first, const float* g, Index n, float* to);
void AddSelected(const int* index, int own, const float* g, Index n, float* to);
void RepeatGroups(const float* from, Index from_step, Index width, Index groups, Index times, float* to);
void LstmForward(const LstmCell& cell);
void LstmBackward(const LstmGradCell& cell);
void RnnForward(const RnnCell& cell);
void RnnBackward(const RnnGradCell& cell);
void GruForwardGates(const GruCell& cell);
void GruForwardCandidate(const GruCell& cell);
void GruBackwardGates(const GruGradCell& cell);
void GruBackwardReset(const GruGradCell& cell);

void RandomWords(unsigned long first, unsigned key0, unsigned key1, Index blocks, unsigned* words);
void Dropout(const float* x, const unsigned* words, Index n, float ratio, float scale, float* y);
void UniformNumbers(const unsigned* words, Index n, float low, float range, float* y);
void NormalNumbers(const unsigned* words, Index pairs, float mean, float scale, float* y);

void Transpose(const float* from, Index from_stride, float* to, Index to_stride, Index rows, Index columns);

}  // namespace gradloom::GRADLOOM_ISA
