// The machine's support for products of bfloat16.
#pragma once

#include "kernels/cpu/isa/loops.h"

namespace gradloom {

// Whether oneDNN uses dedicated instructions for them on this machine: AVX512-BF16 or AMX. ONEDNN_MAX_CPU_ISA=AVX512_CORE in the
// environment prevents it.
bool HasBfloat16();

// Whether AMX is among them.
bool HasAmx();

// Whether these are faster than float32 arithmetic on widened operands. AMX is, by 16 times in theory. AVX512-BF16 is if its instruction
// takes as long as a fused multiply-add, since it does twice the work: on Zen 4 and later, and on Cooper Lake. Intel's processors with
// AVX512-FP16 need four times as long for it (measured on Emerald Rapids: 1.75 of them in a nanosecond, 7.0 fused multiply-adds). They also
// have AMX, but a virtual machine may hide it. GRADLOOM_CPU_BFLOAT16=on in the environment prefers oneDNN's kernels wherever they exist;
// off never uses them.
bool HasFastBfloat16();

// The machine's fastest product of pairs among those that ONEDNN_MAX_CPU_ISA allows.
PairProduct BestPairProduct();

}  // namespace gradloom
