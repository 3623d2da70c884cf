// Sums over the rows of a matrix: first within chunks of rows, where neighboring threads read neighboring columns, then over the chunks.
#pragma once

#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/cuda/rows/slices.h"
#include "kernels/cuda/sums.cuh"

namespace gradloom::cuda {

// Calls store(column, first, second) for each column with the sums over the rows of term(row, column), a Pair<R>. `partials` has
// shape.partials() elements.
template <typename R, typename Term, typename Store>
void SumColumns(const Columns& shape, Pair<R>* partials, cudaStream_t stream, const Term& term, const Store& store) {
  const int64_t chunks = shape.chunks();
  ForEachElement(
      shape.partials(), stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient at = Divide(i, shape.columns);
        const int64_t end = shape.rows * (at.quotient + 1) / chunks;
        Pair<R> sums{};
        for (int64_t row = shape.rows * at.quotient / chunks; row < end; ++row) sums = sums + term(row, at.rest);
        partials[i] = sums;
      });
  ForEachRowOf(
      shape.columns, chunks, shape.columns, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t column) {
        const auto sums =
            SumOf<Pair<double>>(block, chunks, [=](int64_t chunk) { return InDouble(partials[chunk * shape.columns + column]); });
        if (block.thread() == 0) store(column, sums.first, sums.second);
      });
}

}  // namespace gradloom::cuda
