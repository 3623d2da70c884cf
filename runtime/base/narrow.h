// Elements of at most eight bits that casts, quantisation and moves know, and no arithmetic: float8, float6, float4, and integers
// of four and two bits. In memory each is a byte whose low bits hold it and whose others are zero; files pack them.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"

namespace gradloom {

// float8e4m3fn and the others of its kind, int4, uint4, int2, uint2.
bool IsNarrow(DType dtype);
bool IsNarrowInteger(DType dtype);

// Bits of a narrow element.
int NarrowBits(DType dtype);

// The number that an element of a narrow type stands for; every one is exact.
double NarrowValue(DType dtype, uint8_t element);

// What becomes of numbers that a narrow type does not have.
struct NarrowRounding {
  // Floating types: numbers too large become the largest, otherwise infinity or NaN where the type has one. Types without both
  // always saturate.
  bool saturate = true;
  // float8e8m0, which has powers of two alone: to the next above, below, or the nearest; others go to the nearest, ties to even.
  enum class Power : uint8_t { kUp, kDown, kNearest } power = Power::kUp;
};

// The element for a number. Integers are cut towards zero and keep their low bits, as ONNX's Cast has it.
uint8_t NarrowElement(DType dtype, double value, NarrowRounding rounding = {});

// The least and the largest number of a narrow integer type.
int NarrowLowest(DType dtype);
int NarrowHighest(DType dtype);

// Bytes that `elements` take in a file: the elements' bits one after the other, from the lowest bit of the first byte on.
int64_t PackedBytes(DType dtype, int64_t elements);
void PackNarrow(DType dtype, std::span<const uint8_t> elements, uint8_t* packed);
void UnpackNarrow(DType dtype, const uint8_t* packed, std::span<uint8_t> elements);

}  // namespace gradloom
