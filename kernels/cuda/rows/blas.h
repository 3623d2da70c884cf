// The matrix product that a call poses to cuBLASLt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// d[i] = alpha a[i] b[i] + addend, for i < batch. Matrices are row-major; with the flag, the transpose of the stored matrix is used.
struct BlasProduct {
  DType dtype = DType::kFloat32;   // of a, b and a row addend
  DType result = DType::kFloat32;  // of d and a matrix addend
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1;
  int64_t a_step = 0, b_step = 0;           // elements from one matrix to the next; 0: one matrix for the whole batch
  int64_t d_step = 0;                       // 0: contiguous
  int64_t a_row = 0, b_row = 0, d_row = 0;  // stored row strides in elements; 0: contiguous rows
  int64_t alignment = kAlignmentBytes;      // of the addresses of a, b and d, in bytes
  double alpha = 1;
  enum class Addend : uint8_t { kNone, kRow, kMatrix };
  Addend addend = Addend::kNone;  // input 2: added to each row (then alpha is 1), or a matrix, scaled by beta
  double beta = 0;
  // An operation on d before it is stored. kSumsOfA and kSumsOfB sum the operand a or b of gradloom.GemmBiasGrad.
  enum class Epilogue : uint8_t { kNone, kRelu, kGelu, kGeluGrad, kSumsOfA, kSumsOfB };
  Epilogue epilogue = Epilogue::kNone;
  bool sums = false;        // the call has sums as output 1
  bool allow_tf32 = false;  // float32 operands may be rounded to TF32

  // The stored extents of an operand.
  int64_t a_rows() const { return transpose_a ? k : m; }
  int64_t a_columns() const { return transpose_a ? m : k; }
  int64_t b_rows() const { return transpose_b ? n : k; }
  int64_t b_columns() const { return transpose_b ? k : n; }
  bool has_padded_rows() const { return a_row != 0 || b_row != 0 || d_row != 0; }
};

// The product of a MatMul, a Gemm or a Gemm with an epilogue. Returns nullopt if cuBLASLt cannot serve it, and sets `why`.
std::optional<BlasProduct> BlasProductOf(const KernelCall& call, std::string* why = nullptr);

// A product over a part of m, n or k. The offsets are in elements, of a row addend as well; that of d is also that of GELU's operand.
struct ProductPart {
  BlasProduct product;
  int64_t a = 0, b = 0, d = 0, row = 0;
};

// Fewer multiplications take less time than further launches, or the reorders that padding may need.
inline constexpr int64_t kMinPaddedProducts = int64_t{1} << 30;
// Nor are rows padded for a product with a smaller extent. An element of the operand without this extent takes part in so few
// multiplications that memory, and not tensor cores, limits the product: on an H200, 32 operations per byte at the rate of unaligned rows.
inline constexpr int64_t kMinPaddedExtent = 64;

// The parts in which a product is computed, in this order; one part if it is not divided. Tensor cores take extents that are no multiples
// of 16 bytes far slower than others, even with aligned rows: a product of 50,257 columns has one of 50,256 and one of 1. If k is divided,
// the small part comes first and the other adds to it, which rounds less than the other way round. Products with sums of an operand or
// GELU's derivative are not divided here, because those are separate passes anyway; ReLU and GELU follow each part of the result.
std::vector<ProductPart> AlignedParts(const BlasProduct& product, int64_t min_products = kMinPaddedProducts);

// Size of the scratch memory: the workspace of cuBLASLt's algorithms and its alignment.
int64_t BlasScratchBytes(const BlasProduct& product);

// The second output of gradloom.GemmBiasGrad, written as a ReduceSum of operand `summed`. `axes` must outlive the result; it receives the
// call's constant. If the operand's rows are padded, the result may have more elements than the output, which are sums of padding.
KernelCall SumsOf(const KernelCall& call, Tensor& axes);

// The bytes of these sums if they have more elements than the output of the call: then they are computed in scratch memory. 0 otherwise.
int64_t PaddedSumsBytes(const KernelCall& call, const KernelCall& sums);

}  // namespace gradloom
