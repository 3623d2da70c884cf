#include "kernels/cuda/plain_product.h"
#include "kernels/cuda/tiled_product.cuh"
#include "runtime/base/half.h"

namespace gradloom::cuda {
namespace {

template <typename T, typename D>
void Multiply(const BlasProduct& p, const void* a, const void* b, void* to, CUstream_st* stream, const void* addend) {
  const int64_t a_row = p.a_row == 0 ? p.a_columns() : p.a_row, b_row = p.b_row == 0 ? p.b_columns() : p.b_row;
  const int64_t d_row = p.d_row == 0 ? p.n : p.d_row, d_step = p.d_step == 0 ? p.m * p.n : p.d_step;
  const Matrix<float, T> left{static_cast<const T*>(a), p.a_step, p.transpose_a ? 1 : a_row, p.transpose_a ? a_row : 1};
  const Matrix<float, T> right{static_cast<const T*>(b), p.b_step, p.transpose_b ? 1 : b_row, p.transpose_b ? b_row : 1};
  D* const d = static_cast<D*>(to);
  const T* const row = static_cast<const T*>(addend);
  const bool adds = p.addend == BlasProduct::Addend::kMatrix;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  TiledProduct<float, 4, Contiguous::kDepth, Contiguous::kRow>(
      {p.batch, p.m, p.n, p.k}, stream, left, right, GRADLOOM_ON_DEVICE(int64_t batch, int64_t i, int64_t j, float value) {
        D* const at = d + batch * d_step + i * d_row + j;
        const float added = adds ? beta * static_cast<float>(*at) : row != nullptr ? static_cast<float>(row[j]) : 0;
        *at = static_cast<D>(alpha * value + added);
      });
}

template <typename T>
void ZeroPadding(const BlasProduct& p, void* d, CUstream_st* stream) {
  T* const to = static_cast<T*>(d);
  const int64_t n = p.n, stride = p.d_row, padding = stride - n;
  ForEachElement(
      p.m * padding, stream, GRADLOOM_ON_DEVICE(int64_t i) { to[i / padding * stride + n + i % padding] = T(0); });
}

}  // namespace

void PlainProduct(const BlasProduct& product, const void* a, const void* b, void* d, CUstream_st* stream, const void* row) {
  const bool wide = product.result == DType::kFloat32;
  switch (product.dtype) {
    case DType::kFloat16:
      return wide ? Multiply<Half, float>(product, a, b, d, stream, row) : Multiply<Half, Half>(product, a, b, d, stream, row);
    case DType::kBfloat16:
      return wide ? Multiply<Bfloat16, float>(product, a, b, d, stream, row) : Multiply<Bfloat16, Bfloat16>(product, a, b, d, stream, row);
    default: return Multiply<float, float>(product, a, b, d, stream, row);
  }
}

void ZeroRowPadding(const BlasProduct& product, void* d, CUstream_st* stream) {
  if (product.d_row == 0) return;
  if (DTypeBytes(product.result) == 2) {
    ZeroPadding<uint16_t>(product, d, stream);
  } else {
    ZeroPadding<uint32_t>(product, d, stream);
  }
}

}  // namespace gradloom::cuda
