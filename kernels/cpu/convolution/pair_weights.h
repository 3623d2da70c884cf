// The gradient of a convolution's weights in bfloat16 by products of pairs (kernels/cpu/isa/loops.h), for images so small that oneDNN's
// kernels cannot use the processor: with AMX, they reach a tenth of its speed for images of 4 x 4 points. With
// AVX512-BF16, ours are faster, too (docs/benchmarks.md, "Convolutions on a Zen 5").
#pragma once

#include "kernels/catalog/kernel.h"

namespace gradloom {

// Whether cpu.bfloat16.ConvGradWeight serves a ConvGradWeight with the channels innermost in x, y and dw, and is faster than oneDNN's.
bool ServesPairWeights(const KernelCall& call);

// The same if this machine has fast bfloat16 instructions, so that a plain call should get these layouts.
bool PrefersPairWeights(const KernelCall& call);

}  // namespace gradloom
