// What LSTM, GRU and RNN share: one direction of a call laid out in the order of its steps, so that the
// cells know nothing of layouts, reversal and sequences of unequal lengths.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/catalog/recurrent.h"
#include "kernels/reference/operands.h"
#include "kernels/reference/wanted.h"

namespace gradloom {

// An activation of the ONNX list with its constants.
struct Activation {
  enum class Kind { kSigmoid, kTanh, kRelu, kAffine, kLeakyRelu, kThresholdedRelu, kScaledTanh, kHardSigmoid, kElu, kSoftsign, kSoftplus };
  Kind kind = Kind::kTanh;
  double alpha = 0, beta = 0;

  // y = f(x); x and y may be the same.
  template <typename T>
  void Apply(int64_t n, const T* x, T* y) const;

  // g *= f'(x), given x and y = f(x).
  template <typename T>
  void MultiplySlope(int64_t n, const T* x, const T* y, T* g) const;
};

// The activations of direction `direction`, as many as `defaults` has. Throws Error(kAttr).
std::vector<Activation> ActivationsOf(const KernelCall& call, int64_t direction, const std::vector<std::string>& defaults);

// c[m,n] += a[m,k] * b[k,n]; element (i, p) of a lies at a[i * a_row + p * a_column] (one of the two is
// 1), b and c are row-major with b_row and c_row elements from row to row.
template <typename T>
void AddProduct(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_column, const T* b, int64_t b_row, T* c,
                int64_t c_row);

// One direction of a call.
template <typename T>
struct Lane {
  // Operands 0 to 4 are X, W, R, B and sequence_lens in the forward and in the gradient operators.
  // Throws Error(kData) for a length outside [0, steps].
  Lane(const KernelCall& call, const void* const* inputs, int64_t direction);

  RecurrentExtents size;
  int64_t direction;
  double clip;                  // 0: none
  std::vector<int64_t> times;   // [steps, batch]: where step s of a sequence lies; -1 past its end
  const T* w;                   // [width, input]
  const T* r;                   // [width, hidden]
  const T* w_bias;              // [width] or null
  const T* r_bias;              // [width] or null
  std::vector<T> x;             // [steps, batch, input], zeros past the ends
  std::vector<T> r_transposed;  // [hidden, width]

  bool active(int64_t s, int64_t b) const { return times[static_cast<size_t>(s * size.batch + b)] >= 0; }

  // x * w^T + w_bias: [steps, batch, width].
  std::vector<T> Projection() const;

  // An initial state [batch, hidden] from operand `i`, zeros where it is absent.
  std::vector<T> State(const KernelCall& call, const void* const* inputs, size_t i) const;

  // Bounds pre-activations by the clip attribute.
  void Clip(int64_t n, T* z) const;
  // Zeroes the gradient of those that the bound changed.
  void ClipGradient(int64_t n, const T* z, T* dz) const;

  // Writes Y from h [steps + 1, batch, hidden] (h[0] is the initial state) and a last state.
  void WriteSequence(const T* h, void* y) const;
  void WriteState(const T* last, void* y_h) const;
  // Writes `count` blocks of `hidden` elements of each step from `rows` [steps, batch, count * hidden] to block `first` of the
  // `blocks` that a training form keeps of it, by the rows of X; zeros past the ends. Null: unwanted.
  void WriteKept(int64_t first, const T* rows, int64_t count, int64_t blocks, void* kept) const;

  // dh[batch, hidden] += the gradient of Y at step s.
  void AddSequenceGradient(int64_t s, const void* dy, T* dh) const;
  // The gradient of a last state, zeros where `d` is null.
  std::vector<T> StateGradient(const void* d) const;

  // Adds what follows from dz [steps, batch, width], the gradient of the pre-activations. Null: unwanted.
  void AddInputGradients(const std::vector<T>& dz, void* dx, void* dw, void* db) const;
};

// sum[j] += the column sums of rows [n, width].
template <typename T>
void AddColumnSums(int64_t n, int64_t width, const T* rows, int64_t row, T* sum) {
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < width; ++j) sum[j] += rows[i * row + j];
  }
}

}  // namespace gradloom
