// Conversion of elements of other types to floats and back.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/loops.h"
#include "runtime/base/dtype.h"
#include "runtime/base/error.h"

namespace gradloom {

// to[i] = element `begin` + i of an array of float32, float16, bfloat16 or bool, for i < n.
inline void LoadFloats(const Loops& loops, DType dtype, const void* from, int64_t begin, int64_t n, float* to) {
  switch (dtype) {
    case DType::kFloat32: std::memcpy(to, static_cast<const float*>(from) + begin, static_cast<size_t>(n) * sizeof(float)); return;
    case DType::kFloat16: loops.load_float16(static_cast<const unsigned short*>(from) + begin, to, n); return;
    case DType::kBfloat16: loops.load_bfloat16(static_cast<const unsigned short*>(from) + begin, to, n); return;
    default: GRADLOOM_CHECK(dtype == DType::kBool); loops.load_bool(static_cast<const unsigned char*>(from) + begin, to, n);
  }
}

// The inverse: element `begin` + i of such an array = from[i] for i < n, rounded to nearest even; for bool, whether from[i] is not zero.
inline void StoreFloats(const Loops& loops, DType dtype, const float* from, int64_t n, void* to, int64_t begin) {
  switch (dtype) {
    case DType::kFloat32: std::memcpy(static_cast<float*>(to) + begin, from, static_cast<size_t>(n) * sizeof(float)); return;
    case DType::kFloat16: loops.store_float16(from, static_cast<unsigned short*>(to) + begin, n); return;
    case DType::kBfloat16: loops.store_bfloat16(from, static_cast<unsigned short*>(to) + begin, n); return;
    default: GRADLOOM_CHECK(dtype == DType::kBool); loops.store_bool(from, static_cast<unsigned char*>(to) + begin, n);
  }
}

}  // namespace gradloom
