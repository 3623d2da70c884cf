// The parts common to LSTM, GRU and RNN: one direction of a call in the order of its steps, so that the cells need not handle layouts,
// reversal or sequences of unequal lengths.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/catalog/recurrent.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"
#include "kernels/scalar/activation.h"

namespace gradloom {

// y = f(x) for n elements; x and y may be the same.
template <typename T>
void ApplyActivation(const Activation& f, int64_t n, const T* x, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Activate(f, x[i]);
}

// g *= f'(x), given x and y = f(x).
template <typename T>
void MultiplyBySlope(const Activation& f, int64_t n, const T* x, const T* y, T* g) {
  for (int64_t i = 0; i < n; ++i) g[i] *= Slope(f, x[i], y[i]);
}

// The activations of direction `direction`, as many as `defaults` has. Throws Error(kAttr).
std::vector<Activation> ActivationsOf(const KernelCall& call, int64_t direction, const std::vector<std::string>& defaults);

// c[m, n] += a[m, k] b[k, n]. Element (i, p) of a is at a[i * a_row + p * a_column], where one of the strides is 1; b and c are row-major
// with row strides b_row and c_row.
template <typename T>
void AddProduct(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, T* c,
                int64_t c_row);

// One direction of a call.
template <typename T>
struct RecurrentDirection {
  // The operands are those of recurrent::Input, in the forward and in the gradient operators. Throws Error(kData) for a length outside
  // [0, steps].
  RecurrentDirection(const KernelCall& call, const void* const* inputs, int64_t direction);

  RecurrentExtents size;
  int64_t direction;
  double clip;                  // 0: no clip
  std::vector<int64_t> times;   // [steps, batch]: the time of step s of a sequence; -1 past its end
  const T* w;                   // [width, input]
  const T* r;                   // [width, hidden]
  const T* w_bias;              // [width] or null
  const T* r_bias;              // [width] or null
  std::vector<T> x;             // [steps, batch, input], zeros past the ends
  std::vector<T> r_transposed;  // [hidden, width]

  bool active(int64_t s, int64_t b) const { return times[static_cast<size_t>(s * size.batch + b)] >= 0; }

  // x w^T + w_bias: [steps, batch, width].
  std::vector<T> Projection() const;

  // The initial state [batch, hidden] from input `i`, or zeros if it is absent.
  std::vector<T> State(const KernelCall& call, const void* const* inputs, size_t i) const;

  // Clips pre-activations to the clip attribute.
  void Clip(int64_t n, T* z) const;
  // Zeroes the gradients of clipped pre-activations.
  void ClipGradient(int64_t n, const T* z, T* dz) const;

  // Write Y from h [steps + 1, batch, hidden], where h[0] is the initial state, and the last state.
  void WriteSequence(const T* h, void* y) const;
  void WriteState(const T* last, void* y_h) const;
  // Writes `rows` [steps, batch, count * hidden] to blocks [first, first + count) of those that a training form keeps per step, in the row
  // order of X; zeros past the ends of sequences. Does nothing if `kept` is null.
  void WriteKept(int64_t first, const T* rows, int64_t count, void* kept) const;

  // dh[batch, hidden] += the gradient of Y at step s.
  void AddSequenceGradient(int64_t s, const void* dy, T* dh) const;
  // The gradient of the last state, or zeros if `d` is null.
  std::vector<T> StateGradient(const void* d) const;

  // Adds the contributions of dz [steps, batch, width], the gradient of the pre-activations. Null outputs are not wanted.
  void AddInputGradients(const std::vector<T>& dz, void* dx, void* dw, void* db) const;
};

// sum[j] += the sum of column j of rows [n, width], which are `row` elements apart.
template <typename T>
void AddColumnSums(int64_t n, int64_t width, const T* rows, int64_t row, T* sum) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < width; ++j) sum[j] += rows[i * row + j];
  }
}

}  // namespace gradloom
