// Fourier transforms.
#pragma once

#include <cstdint>

#include "kernels/catalog/kernel.h"

namespace gradloom::cuda_rows {

// The number of points of a DFT, or of a frame of an STFT, whose axis and length are constants.
int64_t TransformLength(const KernelCall& call);

// A transform of rows * columns points as transforms of `rows` and of `columns` points, as similar as possible. One row: it is computed by
// its definition, because the number of points is small or a prime.
struct TransformSplit {
  int64_t rows = 1, columns = 1;
};
TransformSplit SplitTransform(int64_t length);

// How many of `lines` transforms are computed at a time, which bounds the memory between their halves.
int64_t TransformsAtATime(int64_t lines, int64_t length);

}  // namespace gradloom::cuda_rows
