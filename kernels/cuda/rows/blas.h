// What a call multiplies, as cuBLASLt wants to know it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernels/catalog/kernel.h"
#include "runtime/base/tensor.h"

namespace gradloom {

// d[i] = alpha a[i] b[i] + the addend, for i < batch: row-major matrices, each transposed as it lies where the flag says so.
struct BlasProduct {
  DType dtype = DType::kFloat32;   // of a, b and the addend
  DType result = DType::kFloat32;  // of d; an addend that is a matrix has this type, too
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t batch = 1;
  int64_t a_step = 0, b_step = 0;           // elements from one matrix to the next; 0: one for all
  int64_t d_step = 0;                       // 0: they lie one behind the other
  int64_t a_row = 0, b_row = 0, d_row = 0;  // elements from one row to the next as they lie; 0: rows lie one behind the other
  int64_t alignment = kAlignmentBytes;      // of the addresses of a, b and d, in bytes
  double alpha = 1;
  enum class Addend : uint8_t { kNone, kRow, kMatrix };
  Addend addend = Addend::kNone;  // input 2: added to each row (alpha is 1 then), or beta times a whole matrix
  double beta = 0;
  // What is done to d on its way to memory; the sums are those of gradloom.GemmBiasGrad's operand a or b.
  enum class Epilogue : uint8_t { kNone, kRelu, kGelu, kGeluGrad, kSumsOfA, kSumsOfB };
  Epilogue epilogue = Epilogue::kNone;
  bool sums = false;        // the epilogue gives sums as output 1
  bool allow_tf32 = false;  // float32 operands may be rounded to TF32

  // Of an operand as it lies.
  int64_t a_rows() const { return transpose_a ? k : m; }
  int64_t a_columns() const { return transpose_a ? m : k; }
  int64_t b_rows() const { return transpose_b ? n : k; }
  int64_t b_columns() const { return transpose_b ? k : n; }
};

// Of MatMul, Gemm and Gemm's forms with an epilogue, or nullopt, and why.
std::optional<BlasProduct> BlasProductOf(const KernelCall& call, std::string* why = nullptr);

// Bytes that its algorithms may use.
int64_t BlasScratchBytes(const BlasProduct& product);

// The sums that a Gemm with an epilogue gives as its second output, as a ReduceSum: of operand `summed`, or of the columns of its first
// output. `axes`: memory for the call's one constant.
KernelCall SumsOf(const KernelCall& call, Tensor& axes);

}  // namespace gradloom
