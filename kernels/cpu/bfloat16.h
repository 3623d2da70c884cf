// What this machine has for products of bfloat16.
#pragma once

namespace gradloom {

// Whether oneDNN has instructions of its own for them here: AVX512-BF16 or AMX. ONEDNN_MAX_CPU_ISA=AVX512_CORE in the environment
// keeps it from them.
bool HasBfloat16();

// Whether those are ahead of float32 arithmetic on widened operands. AMX is, 16 times in theory. AVX512-BF16 is where its instruction
// takes as long as a fused multiply-add, and so does twice the work: on Zen 4 and later, and Cooper Lake. Intel's processors with
// AVX512-FP16 take four times as long for it (measured on Emerald Rapids: 1.75 of them in a nanosecond, 7.0 fused multiply-adds); they
// have AMX besides, but a virtual machine may hide it. GRADLOOM_CPU_BFLOAT16=on in the environment prefers oneDNN's kernels wherever
// they are, off nowhere.
bool HasFastBfloat16();

}  // namespace gradloom
