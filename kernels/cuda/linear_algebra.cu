// Determinants by elimination, in double: their digits cancel.
#include <cmath>

#include "kernels/cuda/lines.cuh"
#include "kernels/cuda/rows/determinants.h"

namespace gradloom::cuda {
namespace {

// A row and the magnitude of its element in a column.
struct Pivot {
  double magnitude;
  int64_t row;
};

struct Larger {
  GRADLOOM_DEVICE Pivot operator()(const Pivot& a, const Pivot& b) const {
    if (a.magnitude > b.magnitude) return a;
    if (b.magnitude > a.magnitude) return b;
    return a.row < b.row ? a : b;
  }
};

template <typename Threads>
GRADLOOM_DEVICE int64_t PivotOf(const Threads& block, const double* m, int64_t n, int64_t c) {
  Pivot best{-1, c};
  for (int64_t r = c + block.thread(); r < n; r += block.threads()) {
    const double magnitude = ::fabs(m[r * n + c]);
    if (magnitude > best.magnitude) best = {magnitude, r};
  }
  return block.Reduce(best, Larger()).row;
}

// The determinant of an n x n matrix, which the threads of `block` have written and which is destroyed: elimination with partial
// pivoting. Every thread gets it, after the last one has looked at the matrix.
template <typename Threads>
GRADLOOM_DEVICE double Determinant(const Threads& block, double* m, int64_t n) {
  double det = 1;
  for (int64_t c = 0; c < n; ++c) {
    block.Sync();
    const int64_t pivot = PivotOf(block, m, n, c);
    if (pivot != c) {
      for (int64_t j = c + block.thread(); j < n; j += block.threads()) {
        const double moved = m[c * n + j];
        m[c * n + j] = m[pivot * n + j];
        m[pivot * n + j] = moved;
      }
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

// store(i, determinant i) for each: element e of matrix i is at(i, e). A worker takes one after another.
template <typename At, typename Store>
void FindDeterminants(const Determinants& d, double* scratch, cudaStream_t stream, const At& at, const Store& store) {
  const int64_t count = d.count, n = d.n, size = d.size(), workers = d.workers();
  ForEachRowOf(
      workers, size, 1, stream, GRADLOOM_ON_DEVICE(const auto& block, int64_t worker) {
        double* const m = scratch + worker * size;
        for (int64_t i = worker; i < count; i += workers) {
          for (int64_t e = block.thread(); e < size; e += block.threads()) m[e] = at(i, e);
          const double determinant = Determinant(block, m, n);
          if (block.thread() == 0) store(i, determinant);
        }
      });
}

template <typename T>
void Det(const Determinants& d, const Launch& l) {
  const T* const x = l.In<T>(0);
  T* const y = l.Out<T>(0);
  const int64_t size = d.size();
  const auto at = GRADLOOM_ON_DEVICE(int64_t i, int64_t e) { return static_cast<double>(static_cast<Arithmetic<T>>(x[i * size + e])); };
  FindDeterminants(
      d, static_cast<double*>(l.scratch), l.stream, at,
      GRADLOOM_ON_DEVICE(int64_t i, double determinant) { y[i] = static_cast<T>(static_cast<Arithmetic<T>>(determinant)); });
}

// gradloom.DetGrad(x, g): g times each cofactor, by the minors themselves: right for singular matrices too.
template <typename T>
void DetGrad(const Determinants& d, const Launch& l) {
  using R = Arithmetic<T>;
  const T *const x = l.In<T>(0), *const g = l.In<T>(1);
  T* const dx = l.Out<T>(0);
  const int64_t n = d.n + 1;
  // The minor of element i leaves out its row and its column.
  const auto at = GRADLOOM_ON_DEVICE(int64_t i, int64_t e) {
    const Quotient place = Divide(i, n), own = Divide(place.quotient, n), minor = Divide(e, n - 1);
    const int64_t row = minor.quotient + (minor.quotient >= own.rest ? 1 : 0), column = minor.rest + (minor.rest >= place.rest ? 1 : 0);
    return static_cast<double>(static_cast<R>(x[(own.quotient * n + row) * n + column]));
  };
  FindDeterminants(
      d, static_cast<double*>(l.scratch), l.stream, at, GRADLOOM_ON_DEVICE(int64_t i, double determinant) {
        const Quotient place = Divide(i, n), own = Divide(place.quotient, n);
        const double cofactor = (place.rest + own.rest) % 2 == 0 ? determinant : -determinant;
        dx[i] = static_cast<T>(static_cast<R>(cofactor * static_cast<double>(static_cast<R>(g[own.quotient]))));
      });
}

std::unique_ptr<Kernel> MakeDet(const KernelCall& call, const KernelSite&) {
  const Determinants d = Determinants::Of(call);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return Runs([=](const Launch& l) { Det<T>(d, l); }); });
}

std::unique_ptr<Kernel> MakeDetGrad(const KernelCall& call, const KernelSite&) {
  const Determinants d = Determinants::Of(call);
  return WithFloating(call.inputs[0].dtype,
                      [&]<typename T>(std::type_identity<T>) { return Runs([=](const Launch& l) { DetGrad<T>(d, l); }); });
}

constexpr CudaKernel kLinearAlgebraKernels[] = {
    {"cuda.Det", MakeDet},
    {"cuda.gradloom.DetGrad", MakeDetGrad},
};

}  // namespace

std::span<const CudaKernel> LinearAlgebraKernels() { return kLinearAlgebraKernels; }

}  // namespace gradloom::cuda
