#include "kernels/cuda/plain_product.h"
#include "kernels/cuda/tiled_product.cuh"
#include "runtime/base/half.h"

namespace gradloom::cuda {
namespace {

template <typename T, typename D>
void Multiply(const BlasProduct& p, const void* a, const void* b, void* to, CUstream_st* stream) {
  const int64_t a_row = p.a_row == 0 ? p.a_columns() : p.a_row, b_row = p.b_row == 0 ? p.b_columns() : p.b_row;
  const int64_t d_row = p.d_row == 0 ? p.n : p.d_row, d_step = p.d_step == 0 ? p.m * p.n : p.d_step;
  const Matrix<float, T> left{static_cast<const T*>(a), p.a_step, p.transpose_a ? 1 : a_row, p.transpose_a ? a_row : 1};
  const Matrix<float, T> right{static_cast<const T*>(b), p.b_step, p.transpose_b ? 1 : b_row, p.transpose_b ? b_row : 1};
  D* const d = static_cast<D*>(to);
  const bool adds = p.addend == BlasProduct::Addend::kMatrix;
  const float alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.beta);
  TiledProduct<float, 4, Contiguous::kDepth, Contiguous::kRow>(
      {p.batch, p.m, p.n, p.k}, stream, left, right, GRADLOOM_ON_DEVICE(int64_t batch, int64_t i, int64_t j, float value) {
        D* const at = d + batch * d_step + i * d_row + j;
        *at = static_cast<D>(adds ? alpha * value + beta * static_cast<float>(*at) : alpha * value);
      });
}

}  // namespace

void PlainProduct(const BlasProduct& product, const void* a, const void* b, void* d, CUstream_st* stream) {
  const bool wide = product.result == DType::kFloat32;
  switch (product.dtype) {
    case DType::kFloat16: return wide ? Multiply<Half, float>(product, a, b, d, stream) : Multiply<Half, Half>(product, a, b, d, stream);
    case DType::kBfloat16:
      return wide ? Multiply<Bfloat16, float>(product, a, b, d, stream) : Multiply<Bfloat16, Bfloat16>(product, a, b, d, stream);
    default: return Multiply<float, float>(product, a, b, d, stream);
  }
}

}  // namespace gradloom::cuda
