// Matrix products. Sums are in double (in uint64 for integers, which wraps), so their order affects only the last bit.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/reference/batched_product.h"
#include "kernels/reference/families.h"
#include "kernels/reference/operands.h"
#include "kernels/scalar/libm.h"

namespace gradloom {
namespace {

// A strided matrix.
template <typename T>
struct Matrix {
  const T* data;
  int64_t row, column;
};

// Calls f(i, sums) for each row i of a[m, k] b[k, n], with the n sums of the row.
template <typename T, typename F>
void ForEachProductRow(int64_t m, int64_t n, int64_t k, Matrix<T> a, Matrix<T> b, F&& f) {
  using Sum = Accumulator<T>;
  std::vector<Sum> sums(static_cast<size_t>(n));
  for (int64_t i = 0; i < m; ++i) {
    std::fill(sums.begin(), sums.end(), Sum{0});
    for (int64_t p = 0; p < k; ++p) {
      const Sum x = static_cast<Sum>(a.data[i * a.row + p * a.column]);
      const T* y = b.data + p * b.row;
      if (b.column == 1) {
        for (int64_t j = 0; j < n; ++j) sums[static_cast<size_t>(j)] += x * static_cast<Sum>(y[j]);
      } else {
        for (int64_t j = 0; j < n; ++j) sums[static_cast<size_t>(j)] += x * static_cast<Sum>(y[j * b.column]);
      }
    }
    f(i, sums.data());
  }
}

template <typename T>
T Rounded(Accumulator<T> sum) {
  return static_cast<T>(static_cast<Arithmetic<T>>(sum));
}

void MatMul(const KernelCall& call, const void* const* in, void* const* out) {
  const BatchedProduct p(call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape);
  const Nest<2> nest(p.batch, {p.a_strides, p.b_strides});
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    T* z = Out<T>(out, 0);
    nest.ForEachRow([&](int64_t batches, const auto& offsets, const auto& steps) {
      for (int64_t s = 0; s < batches; ++s) {
        const T* x = In<T>(in, 0) + (offsets[0] + s * steps[0]) * p.m * p.k;
        const T* y = In<T>(in, 1) + (offsets[1] + s * steps[1]) * p.k * p.n;
        ForEachProductRow<T>(p.m, p.n, p.k, {x, p.k, 1}, {y, p.n, 1}, [&](int64_t i, const auto* sums) {
          for (int64_t j = 0; j < p.n; ++j) z[i * p.n + j] = Rounded<T>(sums[j]);
        });
        z += p.m * p.n;
      }
    });
  });
}

void Gemm(const KernelCall& call, const void* const* in, void* const* out) {
  const bool trans_a = call.attributes.Int("transA", 0) != 0, trans_b = call.attributes.Int("transB", 0) != 0;
  const double alpha = call.attributes.Float("alpha", 1.0), beta = call.attributes.Float("beta", 1.0);
  const Shape &a = call.inputs[0].shape, &out_shape = call.outputs[0].shape;
  const int64_t m = out_shape[0], n = out_shape[1], k = a[trans_a ? 0 : 1];
  const bool has_c = Has(call.inputs, 2);
  const std::vector<int64_t> c_strides = has_c ? BroadcastStrides(call.inputs[2].shape, out_shape) : std::vector<int64_t>{0, 0};
  WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    using Sum = Accumulator<T>;
    const Matrix<T> x{In<T>(in, 0), trans_a ? 1 : k, trans_a ? m : 1};
    const Matrix<T> y{In<T>(in, 1), trans_b ? 1 : n, trans_b ? k : 1};
    const T* c = In<T>(in, has_c ? 2 : 0);
    T* z = Out<T>(out, 0);
    ForEachProductRow<T>(m, n, k, x, y, [&](int64_t i, const Sum* sums) {
      for (int64_t j = 0; j < n; ++j) {
        const Sum addend = has_c ? static_cast<Sum>(c[i * c_strides[0] + j * c_strides[1]]) : Sum{0};
        if constexpr (std::is_integral_v<T>) {
          // Factors are floats; those of integer products are whole numbers in practice.
          const auto whole = [](double f) { return static_cast<uint64_t>(static_cast<int64_t>(f)); };
          z[i * n + j] = static_cast<T>(whole(alpha) * sums[j] + whole(beta) * addend);
        } else {
          z[i * n + j] = Rounded<T>(alpha * sums[j] + (has_c ? beta * addend : 0.0));
        }
      }
    });
  });
}

// The derivative of GELU's tanh form.
double GeluTanhSlope(double x) {
  const double t = std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

// Calls f(i, j, sum) for each element of the product in a Gemm with an epilogue.
template <typename T, typename F>
void ForEachGemmElement(const KernelCall& call, const void* const* in, F&& f) {
  const bool trans_a = call.attributes.Int("transA", 0) != 0, trans_b = call.attributes.Int("transB", 0) != 0;
  const int64_t m = call.outputs[0].shape[0], n = call.outputs[0].shape[1], k = call.inputs[0].shape[trans_a ? 0 : 1];
  ForEachProductRow<T>(m, n, k, {In<T>(in, 0), trans_a ? 1 : k, trans_a ? m : 1}, {In<T>(in, 1), trans_b ? 1 : n, trans_b ? k : 1},
                       [&](int64_t i, const Accumulator<T>* sums) {
                         for (int64_t j = 0; j < n; ++j) f(i, j, sums[j]);
                       });
}

// gradloom.GemmRelu(a, b, bias?) and gradloom.GemmGelu, whose second output is the operand of GELU.
void GemmActivation(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t n = call.outputs[0].shape[1];
  const bool has_bias = Has(call.inputs, 2), gelu = call.op == "GemmGelu", keeps = Has(call.outputs, 1);
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    ForEachGemmElement<T>(call, in, [&](int64_t i, int64_t j, double sum) {
      if (has_bias) sum += static_cast<double>(In<T>(in, 2)[j]);
      Out<T>(out, 0)[i * n + j] = Rounded<T>(gelu ? libm::GeluTanh(sum) : sum < 0 ? 0 : sum);
      if (keeps) Out<T>(out, 1)[i * n + j] = Rounded<T>(sum);
    });
  });
}

// gradloom.GemmGeluGrad(a, b, x).
void GemmGeluGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const int64_t n = call.outputs[0].shape[1];
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<double> columns(static_cast<size_t>(n));
    ForEachGemmElement<T>(call, in, [&](int64_t i, int64_t j, double sum) {
      sum *= GeluTanhSlope(static_cast<double>(In<T>(in, 2)[i * n + j]));
      Out<T>(out, 0)[i * n + j] = Rounded<T>(sum);
      columns[static_cast<size_t>(j)] += sum;
    });
    for (int64_t j = 0; j < n && Has(call.outputs, 1); ++j) Out<T>(out, 1)[j] = Rounded<T>(columns[static_cast<size_t>(j)]);
  });
}

// gradloom.GemmBiasGrad(a, b).
void GemmBiasGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const size_t summed = call.attributes.Int("summed", 0) == 0 ? 0 : 1;
  const bool transposed = call.attributes.Int(summed == 0 ? "transA" : "transB", 0) != 0;
  const Shape& shape = call.inputs[summed].shape;
  const int axis = (summed == 0) == transposed ? 0 : 1;  // the axis that the product sums over
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    const int64_t n = call.outputs[0].shape[1];
    ForEachGemmElement<T>(call, in, [&](int64_t i, int64_t j, double sum) { Out<T>(out, 0)[i * n + j] = Rounded<T>(sum); });
    for (int64_t line = 0; line < shape[1 - axis]; ++line) {
      double sum = 0;
      for (int64_t p = 0; p < shape[axis]; ++p)
        sum += static_cast<double>(In<T>(in, summed)[axis == 0 ? p * shape[1] + line : line * shape[1] + p]);
      Out<T>(out, 1)[line] = Rounded<T>(sum);
    }
  });
}

// Zero points are scalars, or one per row of A and per column of B.
void MatMulInteger(const KernelCall& call, const void* const* in, void* const* out) {
  const BatchedProduct p(call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape);
  const Nest<2> nest(p.batch, {p.a_strides, p.b_strides});
  const auto zero_point = [&](size_t operand, int64_t matrix, int64_t i, int64_t count) -> int64_t {
    if (!Has(call.inputs, operand)) return 0;
    const TensorView view = InputView(call, in, operand);
    const int64_t points = view.elements();
    return points == 0 ? 0 : ElementAsInt(view, points == 1 ? 0 : points == count ? i : matrix * count + i);
  };
  const TensorView a = InputView(call, in, 0), b = InputView(call, in, 1);
  int32_t* z = Out<int32_t>(out, 0);
  nest.ForEachRow([&](int64_t batches, const auto& offsets, const auto& steps) {
    for (int64_t s = 0; s < batches; ++s) {
      const int64_t ia = offsets[0] + s * steps[0], ib = offsets[1] + s * steps[1];
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t j = 0; j < p.n; ++j) {
          const int64_t za = zero_point(2, ia, i, p.m), zb = zero_point(3, ib, j, p.n);
          uint64_t sum = 0;
          for (int64_t l = 0; l < p.k; ++l) {
            sum +=
                static_cast<uint64_t>((ElementAsInt(a, (ia * p.m + i) * p.k + l) - za) * (ElementAsInt(b, (ib * p.k + l) * p.n + j) - zb));
          }
          *z++ = static_cast<int32_t>(sum);
        }
      }
    }
  });
}

// The determinant of an n x n matrix, which is destroyed, by elimination with partial pivoting.
double Determinant(std::vector<double>& m, size_t n) {
  double det = 1;
  for (size_t c = 0; c < n; ++c) {
    size_t pivot = c;
    for (size_t r = c + 1; r < n; ++r) {
      if (std::fabs(m[r * n + c]) > std::fabs(m[pivot * n + c])) pivot = r;
    }
    if (pivot != c) {
      std::swap_ranges(&m[c * n], &m[c * n] + n, &m[pivot * n]);
      det = -det;
    }
    const double p = m[c * n + c];
    det *= p;
    if (p == 0) break;
    for (size_t r = c + 1; r < n; ++r) {
      const double f = m[r * n + c] / p;
      for (size_t j = c; j < n; ++j) m[r * n + j] -= f * m[c * n + j];
    }
  }
  return det;
}

void Det(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t n = shape[shape.rank() - 1], count = call.outputs[0].shape.elements();
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    std::vector<double> m(static_cast<size_t>(n * n));
    for (int64_t s = 0; s < count; ++s) {
      for (size_t i = 0; i < m.size(); ++i) m[i] = static_cast<double>(In<T>(in, 0)[s * n * n + static_cast<int64_t>(i)]);
      Out<T>(out, 0)[s] = Rounded<T>(Determinant(m, static_cast<size_t>(n)));
    }
  });
}

// The cofactors of an n x n matrix, which are its transposed adjugate. Uses elimination with complete pivoting, P A Q = L U, which works
// for singular matrices as well. Let U = [V w; 0 d], where V is U without its last row and column. Then adj(U) = det(V) [d V^-1, -V^-1 w;
// 0, 1], which does not divide by d, and adj(A) = det(P) det(Q) Q adj(U) L^-1 P. If V is singular, the rank of A is at most n - 2, and
// every cofactor is 0.
class Cofactors {
 public:
  explicit Cofactors(size_t n) : n_(n), u_(n * n), of_(n * n), rows_(n), columns_(n) {}

  std::vector<double>& matrix() { return u_; }  // destroyed by Compute

  const std::vector<double>& Compute() {
    std::fill(of_.begin(), of_.end(), 0.0);
    if (n_ == 0 || !Eliminate()) return of_;
    // adj(U) L^-1: first d L^-1 - w (the last row of L^-1) in the upper rows, then V^-1 times that.
    const size_t last = n_ - 1;
    std::vector<double>& b = inverse_;  // L^-1
    b.assign(n_ * n_, 0.0);
    for (size_t i = 0; i < n_; ++i) {
      b[i * n_ + i] = 1;
      for (size_t k = 0; k < i; ++k) Subtract(u_[i * n_ + k], &b[k * n_], &b[i * n_]);
    }
    double det = sign_;
    for (size_t i = 0; i < last; ++i) {
      det *= u_[i * n_ + i];
      for (size_t j = 0; j < n_; ++j) b[i * n_ + j] = u_[last * n_ + last] * b[i * n_ + j] - u_[i * n_ + last] * b[last * n_ + j];
    }
    for (size_t i = last; i-- > 0;) {
      for (size_t k = i + 1; k < last; ++k) Subtract(u_[i * n_ + k], &b[k * n_], &b[i * n_]);
      for (size_t j = 0; j < n_; ++j) b[i * n_ + j] /= u_[i * n_ + i];
    }
    for (size_t i = 0; i < n_; ++i) {
      for (size_t j = 0; j < n_; ++j) of_[rows_[j] * n_ + columns_[i]] = det * b[i * n_ + j];
    }
    return of_;
  }

 private:
  void Subtract(double factor, const double* from, double* to) const {
    for (size_t j = 0; j < n_; ++j) to[j] -= factor * from[j];
  }

  // L below the diagonal, U on and above it. Returns false if two pivots are 0.
  bool Eliminate() {
    std::iota(rows_.begin(), rows_.end(), size_t{0});
    std::iota(columns_.begin(), columns_.end(), size_t{0});
    sign_ = 1;
    for (size_t c = 0; c < n_; ++c) {
      size_t row = c, column = c;
      for (size_t i = c; i < n_; ++i) {
        for (size_t j = c; j < n_; ++j) {
          if (!(std::fabs(u_[i * n_ + j]) <= std::fabs(u_[row * n_ + column]))) row = i, column = j;  // also for NaN
        }
      }
      if (row != c) {
        std::swap_ranges(&u_[c * n_], &u_[c * n_] + n_, &u_[row * n_]);
        std::swap(rows_[c], rows_[row]);
        sign_ = -sign_;
      }
      if (column != c) {
        for (size_t i = 0; i < n_; ++i) std::swap(u_[i * n_ + c], u_[i * n_ + column]);
        std::swap(columns_[c], columns_[column]);
        sign_ = -sign_;
      }
      const double p = u_[c * n_ + c];
      if (p == 0) return c + 1 == n_;
      for (size_t r = c + 1; r < n_; ++r) {
        const double f = u_[r * n_ + c] /= p;
        for (size_t j = c + 1; j < n_; ++j) u_[r * n_ + j] -= f * u_[c * n_ + j];
      }
    }
    return true;
  }

  size_t n_;
  double sign_ = 1;
  std::vector<double> u_, inverse_, of_;
  std::vector<size_t> rows_, columns_;
};

// gradloom.DetGrad(x, g): g times each cofactor.
void DetGrad(const KernelCall& call, const void* const* in, void* const* out) {
  const Shape& shape = call.inputs[0].shape;
  const int64_t n = shape[shape.rank() - 1], count = call.inputs[1].shape.elements();
  WithFloating(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    Cofactors cofactors(static_cast<size_t>(n));
    for (int64_t s = 0; s < count; ++s) {
      const T* x = In<T>(in, 0) + s * n * n;
      std::transform(x, x + n * n, cofactors.matrix().begin(), [](T value) { return static_cast<double>(value); });
      const std::vector<double>& made = cofactors.Compute();
      for (int64_t i = 0; i < n * n; ++i)
        Out<T>(out, 0)[s * n * n + i] = Rounded<T>(made[static_cast<size_t>(i)] * static_cast<double>(In<T>(in, 1)[s]));
    }
  });
}

constexpr ReferenceKernel kKernels[] = {
    {"Det", "", Det},
    {"DetGrad", "gradloom", DetGrad},
    {"Gemm", "", Gemm},
    {"GemmBiasGrad", "gradloom", GemmBiasGrad},
    {"GemmGelu", "gradloom", GemmActivation},
    {"GemmGeluGrad", "gradloom", GemmGeluGrad},
    {"GemmRelu", "gradloom", GemmActivation},
    {"MatMul", "", MatMul},
    {"MatMulInteger", "", MatMulInteger},
};

}  // namespace

std::span<const ReferenceKernel> ReferenceMatMul() { return kKernels; }

}  // namespace gradloom
