// Determinants by Gaussian elimination, in double because of cancellation.
#include <cmath>

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/rows/determinants.h"

namespace gradloom::cuda {
namespace {

// The row-major position of an element in a matrix, and its magnitude.
struct Pivot {
  double magnitude;
  int64_t place;
};

struct Larger {
  GRADLOOM_DEVICE Pivot operator()(const Pivot& a, const Pivot& b) const {
    if (a.magnitude > b.magnitude) return a;
    if (b.magnitude > a.magnitude) return b;
    return a.place < b.place ? a : b;
  }
};

// The position of the largest element in rows from c on and in `columns` columns from c on; NaN counts as the largest.
template <typename Threads>
GRADLOOM_DEVICE int64_t PivotOf(const Threads& block, const double* m, int64_t n, int64_t c, int64_t columns) {
  Pivot best{-1, c * n + c};
  for (int64_t i = block.thread(); i < (n - c) * columns; i += block.threads()) {
    const Quotient at = Divide(i, columns);
    const int64_t place = (c + at.quotient) * n + c + at.rest;
    double magnitude = ::fabs(m[place]);
    if (magnitude != magnitude) magnitude = INFINITY;
    if (magnitude > best.magnitude) best = {magnitude, place};
  }
  const int64_t place = block.Reduce(best, Larger()).place;
  block.Sync();  // rows may be exchanged once all threads have read them
  return place;
}

GRADLOOM_DEVICE void Exchange(double& a, double& b) {
  const double moved = a;
  a = b;
  b = moved;
}

template <typename Threads>
GRADLOOM_DEVICE void ExchangeRows(const Threads& block, double* m, int64_t n, int64_t a, int64_t b, int64_t from) {
  for (int64_t j = from + block.thread(); j < n; j += block.threads()) Exchange(m[a * n + j], m[b * n + j]);
}

// The determinant of an n x n matrix, written by the threads of `block` and destroyed here, by elimination with partial pivoting. Every
// thread gets the result, after all threads have finished with the matrix.
template <typename Threads>
GRADLOOM_DEVICE double Determinant(const Threads& block, double* m, int64_t n) {
  double det = 1;
  for (int64_t c = 0; c < n; ++c) {
    block.Sync();
    const int64_t pivot = PivotOf(block, m, n, c, 1) / n;
    if (pivot != c) {
      ExchangeRows(block, m, n, c, pivot, c);
      block.Sync();
      det = -det;
    }
    const double divisor = m[c * n + c];
    det *= divisor;
    if (divisor == 0) break;
    const int64_t left = n - c - 1;
    for (int64_t i = block.thread(); i < left * left; i += block.threads()) {
      const Quotient at = Divide(i, left);
      const int64_t r = c + 1 + at.quotient, j = c + 1 + at.rest;
      m[r * n + j] -= m[r * n + c] / divisor * m[c * n + j];
    }
  }
  block.Sync();
  return det;
}

// Factors P A Q = L U with complete pivoting. L is stored below the diagonal of `u`; `rows` and `columns` map to the rows and columns of A.
// Returns det(P) det(Q), or 0 if two pivots are 0.
template <typename Threads>
GRADLOOM_DEVICE double Eliminate(const Threads& block, double* u, double* rows, double* columns, int64_t n) {
  double sign = 1;
  for (int64_t i = block.thread(); i < n; i += block.threads()) rows[i] = columns[i] = static_cast<double>(i);
  for (int64_t c = 0; c < n; ++c) {
    block.Sync();
    const Quotient pivot = Divide(PivotOf(block, u, n, c, n - c), n);
    if (pivot.quotient != c) {
      ExchangeRows(block, u, n, c, pivot.quotient, 0);
      if (block.thread() == 0) Exchange(rows[c], rows[pivot.quotient]);
      sign = -sign;
    }
    block.Sync();
    if (pivot.rest != c) {
      for (int64_t i = block.thread(); i < n; i += block.threads()) Exchange(u[i * n + c], u[i * n + pivot.rest]);
      if (block.thread() == 0) Exchange(columns[c], columns[pivot.rest]);
      sign = -sign;
    }
    block.Sync();
    const double divisor = u[c * n + c];
    if (divisor == 0) return c + 1 == n ? sign : 0;
    for (int64_t r = c + 1 + block.thread(); r < n; r += block.threads()) u[r * n + c] /= divisor;
    block.Sync();
    const int64_t left = n - c - 1;
    for (int64_t i = block.thread(); i < left * left; i += block.threads()) {
      const Quotient at = Divide(i, left);
      const int64_t r = c + 1 + at.quotient, j = c + 1 + at.rest;
      u[r * n + j] -= u[r * n + c] * u[c * n + j];
    }
  }
  block.Sync();
  return sign;
}

// Let U = [V w; 0 d], where V is U without its last row and column. Then adj(U) = det(V) [d V^-1, -V^-1 w; 0, 1] and adj(A) = det(P) det(Q)
// Q adj(U) L^-1 P, whose transpose is the matrix of cofactors (kernels/reference/matmul.cc). Computes column `j` of adj(U) L^-1 / det(V),
// which does not depend on the others.
GRADLOOM_DEVICE void SolveColumn(const double* u, double* b, int64_t n, int64_t j) {
  const int64_t last = n - 1;
  for (int64_t i = 0; i < n; ++i) {
    double sum = i == j ? 1 : 0;
    for (int64_t k = j; k < i; ++k) sum -= u[i * n + k] * b[k * n + j];
    b[i * n + j] = sum;
  }
  for (int64_t i = 0; i < last; ++i) b[i * n + j] = u[last * n + last] * b[i * n + j] - u[i * n + last] * b[last * n + j];
  for (int64_t i = last; i-- > 0;) {
    double sum = b[i * n + j];
    for (int64_t k = i + 1; k < last; ++k) sum -= u[i * n + k] * b[k * n + j];
    b[i * n + j] = sum / u[i * n + i];
  }
}

// Calls run(block, memory, i) for each matrix i; each worker processes several matrices in turn.
template <typename Run>
void ForEachMatrix(const Determinants& d, void* scratch, cudaStream_t stream, const Run& run) {
  const int64_t count = d.count, size = d.size(), workers = d.workers();
  double* const memory = static_cast<double*>(scratch);
  ForEachRowOf(
      workers, d.n * d.n, 1, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t worker) {
        for (int64_t i = worker; i < count; i += workers) run(block, memory + worker * size, i);
      });
}

template <typename T, typename Threads>
GRADLOOM_DEVICE void Load(const Threads& block, const T* x, int64_t elements, double* to) {
  for (int64_t e = block.thread(); e < elements; e += block.threads()) to[e] = static_cast<double>(static_cast<Arithmetic<T>>(x[e]));
}

template <typename T>
void Det(const Determinants& d, const Launch& l) {
  const T* const x = l.In<T>(0);
  T* const y = l.Out<T>(0);
  const int64_t n = d.n;
  ForEachMatrix(
      d, l.scratch, l.stream, GRADLOOM_ON_DEVICE(const auto& block, double* m, int64_t i) {
        Load(block, x + i * n * n, n * n, m);
        const double determinant = Determinant(block, m, n);
        if (block.thread() == 0) y[i] = static_cast<T>(static_cast<Arithmetic<T>>(determinant));
      });
}

// gradloom.DetGrad(x, g): g times each cofactor, for singular matrices as well.
template <typename T>
void DetGrad(const Determinants& d, const Launch& l) {
  using R = Arithmetic<T>;
  const T *const x = l.In<T>(0), *const g = l.In<T>(1);
  T* const dx = l.Out<T>(0);
  const int64_t n = d.n;
  ForEachMatrix(
      d, l.scratch, l.stream, GRADLOOM_ON_DEVICE(const auto& block, double* u, int64_t i) {
        double *const b = u + n * n, *const rows = b + n * n, *const columns = rows + n;
        Load(block, x + i * n * n, n * n, u);
        const double sign = Eliminate(block, u, rows, columns, n);
        const bool none = sign == 0;
        double det = sign * static_cast<double>(static_cast<R>(g[i]));
        for (int64_t c = 0; c + 1 < n; ++c) det *= u[c * n + c];
        for (int64_t j = block.thread(); !none && j < n; j += block.threads()) SolveColumn(u, b, n, j);
        block.Sync();
        for (int64_t e = block.thread(); e < n * n; e += block.threads()) {
          const Quotient at = Divide(e, n);
          const int64_t to = static_cast<int64_t>(rows[at.rest]) * n + static_cast<int64_t>(columns[at.quotient]);
          dx[i * n * n + to] = static_cast<T>(static_cast<R>(none ? 0 : det * b[e]));
        }
        block.Sync();
      });
}

std::unique_ptr<Kernel> MakeDet(const KernelCall& call, const KernelSite&) {
  const Determinants d = Determinants::Of(call);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { Det<T>(d, l); }); });
}

std::unique_ptr<Kernel> MakeDetGrad(const KernelCall& call, const KernelSite&) {
  const Determinants d = Determinants::Of(call);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return MakeKernel([=](const Launch& l) { DetGrad<T>(d, l); }); });
}

constexpr CudaKernel kLinearAlgebraKernels[] = {
    {"cuda.Det", MakeDet},
    {"cuda.gradloom.DetGrad", MakeDetGrad},
};

}  // namespace

std::span<const CudaKernel> LinearAlgebraKernels() { return kLinearAlgebraKernels; }

}  // namespace gradloom::cuda
