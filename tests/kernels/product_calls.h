// Calls of matrix products and convolutions, for kernels of every type.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/windows.h"
#include "tests/kernels/compare.h"

namespace gradloom {

// The shape of y for x[N, C, ...] convolved with w[O, I, kernel ...].
inline Shape Convolved(const Shape& x, const Shape& w, const Attributes& attributes) {
  const Windows windows = WindowsOf(attributes, x, {w.begin() + 2, w.end()});
  Shape y{x[0], w[0]};
  for (int dim = 0; dim < windows.rank(); ++dim) y.push_back(windows.Count(dim, x[dim + 2]));
  return y;
}

struct ProductShapes {
  Shape a, b, y;
};

// Matrices, vectors, and batches that broadcast.
inline const std::vector<ProductShapes>& MatMulShapes() {
  static const std::vector<ProductShapes> shapes = {
      {{3, 4}, {4, 5}, {3, 5}},
      {{128, 13}, {13, 16}, {128, 16}},
      {{1, 1}, {1, 1}, {1, 1}},
      {{7}, {7}, {}},
      {{7}, {7, 33}, {33}},
      {{5, 7}, {7}, {5}},
      {{2, 3, 4, 5}, {5, 6}, {2, 3, 4, 6}},
      {{2, 3, 40, 50}, {2, 3, 50, 60}, {2, 3, 40, 60}},
      {{2, 1, 4, 5}, {3, 5, 6}, {2, 3, 4, 6}},
      {{5, 6}, {4, 6, 7}, {4, 5, 7}},
      {{3, 1, 13, 20}, {1, 4, 20, 34}, {3, 4, 13, 34}},
      {{200, 300}, {300, 150}, {200, 150}},
      {{30, 257}, {257, 129}, {30, 129}},
      {{900, 40}, {40, 800}, {900, 800}},
      {{13, 600}, {600, 1000}, {13, 1000}},
  };
  return shapes;
}

inline KernelCall MatMulCall(DType dtype, const ProductShapes& shapes) {
  return {.op = "MatMul",
          .domain = "",
          .attributes = {},
          .inputs = {Plain(dtype, shapes.a), Plain(dtype, shapes.b)},
          .outputs = {Plain(dtype, shapes.y)}};
}

// Calls f(call, k) for `rounds` random Gemm calls with all options, whose sums have k terms. A bias is absent, or has one of the shapes
// that `biases` returns for m and n.
inline void ForEachGemm(DType dtype, int rounds, const std::function<std::vector<Shape>(int64_t m, int64_t n)>& biases,
                        std::mt19937_64& random, const std::function<void(const KernelCall& call, int64_t k)>& f) {
  for (int round = 0; round < rounds; ++round) {
    const int64_t most = round % 8 == 0 ? 500 : round % 4 == 0 ? 150 : 40;
    const Shape extents = RandomShape(random, 3, 1, most);
    const int64_t m = extents[0], n = extents[1], k = extents[2];
    const bool ta = round & 1, tb = round & 2;
    const std::vector<Shape> shapes = biases(m, n);
    const size_t bias = static_cast<size_t>(round) % (shapes.size() + 1);
    f({.op = "Gemm",
       .domain = "",
       .attributes = {{"transA", int64_t{ta}}, {"transB", int64_t{tb}}, {"alpha", round % 3 == 0 ? 0.5 : 1.0}},
       .inputs = {Plain(dtype, ta ? Shape{k, m} : Shape{m, k}), Plain(dtype, tb ? Shape{n, k} : Shape{k, n}),
                  bias == shapes.size() ? OperandType{} : Plain(dtype, shapes[bias])},
       .outputs = {Plain(dtype, {m, n})}},
      k);
  }
}

}  // namespace gradloom
