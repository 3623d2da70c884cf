// The families of reference kernels, one or a few files each. The split is that of compiler/ops.
#pragma once

#include <span>

#include "kernels/reference/reference.h"

namespace gradloom {

std::span<const ReferenceKernel> ReferenceMatMul();
std::span<const ReferenceKernel> ReferenceReduce();
std::span<const ReferenceKernel> ReferenceShape();
std::span<const ReferenceKernel> ReferenceConvolution();
std::span<const ReferenceKernel> ReferencePooling();
std::span<const ReferenceKernel> ReferenceNormalization();  // also softmax and dropout
std::span<const ReferenceKernel> ReferenceNormalizationMore();
std::span<const ReferenceKernel> ReferenceRandom();
std::span<const ReferenceKernel> ReferenceLoss();
std::span<const ReferenceKernel> ReferenceOptimizer();
std::span<const ReferenceKernel> ReferenceUnary();       // pointwise_unary.cc
std::span<const ReferenceKernel> ReferenceActivation();  // activation.cc
std::span<const ReferenceKernel> ReferenceBinary();      // pointwise_binary.cc
std::span<const ReferenceKernel> ReferenceMany();        // pointwise_many.cc
std::span<const ReferenceKernel> ReferenceEinsum();      // einsum.cc
std::span<const ReferenceKernel> ReferencePad();         // pad.cc
std::span<const ReferenceKernel> ReferenceGenerate();    // generate.cc
std::span<const ReferenceKernel> ReferenceIndex();       // index.cc
std::span<const ReferenceKernel> ReferenceExtents();     // extents.cc
std::span<const ReferenceKernel> ReferenceLstm();
std::span<const ReferenceKernel> ReferenceGru();  // also RNN
std::span<const ReferenceKernel> ReferenceResize();
std::span<const ReferenceKernel> ReferenceAttention();
std::span<const ReferenceKernel> ReferenceGridSample();
std::span<const ReferenceKernel> ReferenceFused();  // fused.cc
std::span<const ReferenceKernel> ReferenceQuantized();
std::span<const ReferenceKernel> ReferenceRegionsOfInterest();
std::span<const ReferenceKernel> ReferenceSignal();
std::span<const ReferenceKernel> ReferenceTensorScatter();
std::span<const ReferenceKernel> ReferenceTraditional();
std::span<const ReferenceKernel> ReferenceTraining();

}  // namespace gradloom
