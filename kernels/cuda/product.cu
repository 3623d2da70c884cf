// Matrix products for every type, one thread per element of the result. Floating-point products normally run in cuBLASLt.
#include <algorithm>

#include "kernels/cuda/offset_calculator.cuh"
#include "kernels/reference/batched_product.h"
#include "runtime/base/einsum.h"

namespace gradloom::cuda {
namespace {

// The type of a sum: float for 16-bit floating-point types. Integers wrap at 64 bits, then at their own width.
template <typename T>
using SumType = std::conditional_t<std::is_integral_v<T>, uint64_t, Arithmetic<T>>;

// alpha * sum over p < k of a[.. + p * a_step] * b[.. + p * b_step], plus beta * c if there is a c. `offsets` has the positions in a, b and
// c for an element of the result.
struct Product {
  int64_t n, k;
  int64_t a_step, b_step;
  OffsetCalculator<3> offsets;
  double alpha = 1, beta = 0;
};

// Factors are floats; those of integer products are whole numbers in practice.
template <typename T>
SumType<T> Factor(double value) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<uint64_t>(static_cast<int64_t>(value));
  else
    return static_cast<SumType<T>>(value);
}

template <typename T>
void Multiply(const Product& p, const T* a, const T* b, const T* c, T* out, cudaStream_t stream) {
  using S = SumType<T>;
  const S alpha = Factor<T>(p.alpha), beta = Factor<T>(p.beta);
  ForEachElement(
      p.n, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto offset = p.offsets(i);
        const T *x = a + offset.at[0], *y = b + offset.at[1];
        S sum = 0;
        for (int64_t k = 0; k < p.k; ++k) sum += static_cast<S>(x[k * p.a_step]) * static_cast<S>(y[k * p.b_step]);
        sum *= alpha;
        if (c != nullptr) sum += beta * static_cast<S>(c[offset.at[2]]);
        out[i] = static_cast<T>(static_cast<Arithmetic<T>>(sum));
      });
}

std::unique_ptr<Kernel> MakeProduct(const KernelCall& call, const Product& p) {
  const bool has_c = p.beta != 0;
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([=](const Launch& l) { Multiply(p, l.In<T>(0), l.In<T>(1), has_c ? l.In<T>(2) : nullptr, l.Out<T>(0), l.stream); });
  });
}

// Strides in elements along the batch axes, followed by those along rows and columns.
std::vector<int64_t> Strides(std::vector<int64_t> matrices, int64_t matrix, int64_t row, int64_t column) {
  for (int64_t& stride : matrices) stride *= matrix;
  matrices.push_back(row);
  matrices.push_back(column);
  return matrices;
}

std::unique_ptr<Kernel> MakeMatMul(const KernelCall& call, const KernelSite&) {
  const BatchedProduct b(call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape);
  Shape result = b.batch;
  result.push_back(b.m);
  result.push_back(b.n);
  const std::vector<int64_t> none(static_cast<size_t>(result.rank()), 0);
  const OffsetCalculator<3> offsets(result, {Strides(b.a_strides, b.m * b.k, b.k, 0), Strides(b.b_strides, b.k * b.n, 0, 1), none});
  return MakeProduct(call, {result.elements(), b.k, 1, b.n, offsets});
}

std::unique_ptr<Kernel> MakeGemm(const KernelCall& call, const KernelSite&) {
  const bool trans_a = call.attributes.Int("transA", 0) != 0, trans_b = call.attributes.Int("transB", 0) != 0;
  const Shape& result = call.outputs[0].shape;
  const int64_t m = result[0], n = result[1], k = call.inputs[0].shape[trans_a ? 0 : 1];
  const bool has_c = Has(call.inputs, 2);
  const std::vector<int64_t> c = has_c ? BroadcastStrides(call.inputs[2].shape, result) : std::vector<int64_t>{0, 0};
  const OffsetCalculator<3> offsets(result, {std::vector<int64_t>{trans_a ? 1 : k, 0}, std::vector<int64_t>{0, trans_b ? k : 1}, c});
  return MakeProduct(call, {result.elements(), k, trans_a ? m : 1, trans_b ? 1 : n, offsets, call.attributes.Float("alpha", 1.0),
                            has_c ? call.attributes.Float("beta", 1.0) : 0.0});
}

// The zero points of an operand: none, one, one per row of A or column of B, or one per row or column of each matrix.
template <typename T>
struct ZeroPoints {
  const T* data;
  int64_t points, lines;

  GRADLOOM_DEVICE int64_t operator()(int64_t matrix, int64_t line) const {
    if (points == 0) return 0;
    return data[points == 1 ? 0 : points == lines ? line : matrix * lines + line];
  }
};

template <typename A, typename B>
void MultiplyIntegers(const BatchedProduct& shape, int64_t a_points, int64_t b_points, const Launch& l) {
  const int64_t m = shape.m, n = shape.n, k = shape.k;
  const A* const a = l.In<A>(0);
  const B* const b = l.In<B>(1);
  int32_t* const out = l.Out<int32_t>(0);
  const OffsetCalculator<2> matrices(shape.batch, {shape.a_strides, shape.b_strides});
  const ZeroPoints<A> a_zero{a_points > 0 ? l.In<A>(2) : nullptr, a_points, m};
  const ZeroPoints<B> b_zero{b_points > 0 ? l.In<B>(3) : nullptr, b_points, n};
  ForEachElement(
      shape.batch.elements() * m * n, l.stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const Quotient column = Divide(i, n), row = Divide(column.quotient, m);
        const auto matrix = matrices(row.quotient);
        const int64_t za = a_zero(matrix.at[0], row.rest), zb = b_zero(matrix.at[1], column.rest);
        const A* const x = a + (matrix.at[0] * m + row.rest) * k;
        const B* const y = b + matrix.at[1] * k * n + column.rest;
        uint64_t sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += static_cast<uint64_t>((x[p] - za) * (y[p * n] - zb));
        out[i] = static_cast<int32_t>(sum);
      });
}

std::unique_ptr<Kernel> MakeMatMulInteger(const KernelCall& call, const KernelSite&) {
  const BatchedProduct shape(call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape);
  const auto points = [&](size_t i) { return Has(call.inputs, i) ? call.inputs[i].shape.elements() : 0; };
  const auto with_byte = [](DType dtype, auto f) {
    return dtype == DType::kInt8 ? f(std::type_identity<int8_t>{}) : f(std::type_identity<uint8_t>{});
  };
  return with_byte(call.inputs[0].dtype, [&]<typename A>(std::type_identity<A>) {
    return with_byte(call.inputs[1].dtype, [&]<typename B>(std::type_identity<B>) {
      return MakeKernel([=, za = points(2), zb = points(3)](const Launch& l) { MultiplyIntegers<A, B>(shape, za, zb, l); });
    });
  });
}

// A sum of products of up to kMaxOperands operands, over `outer_terms` rows of n terms each.
struct Contraction {
  static constexpr int kMaxOperands = 4;
  int operands;
  int64_t results, outer_terms, n;
  int64_t steps[kMaxOperands];  // strides along a row
  OffsetCalculator<kMaxOperands> kept, outer;
};

struct Operands {
  const void* data[Contraction::kMaxOperands];
};

template <typename T>
void Contract(const Contraction& c, const Operands& operands, T* out, cudaStream_t stream) {
  using S = SumType<T>;
  ForEachElement(
      c.results, stream, GRADLOOM_ON_DEVICE(int64_t i) {
        const auto start = c.kept(i);
        S sum = 0;
        for (int64_t term = 0; term < c.outer_terms; ++term) {
          const auto row = c.outer(term);
          for (int64_t j = 0; j < c.n; ++j) {
            S product = 1;
            for (int k = 0; k < c.operands; ++k) {
              product *= static_cast<S>(static_cast<const T*>(operands.data[k])[start.at[k] + row.at[k] + j * c.steps[k]]);
            }
            sum += product;
          }
        }
        out[i] = static_cast<T>(static_cast<Arithmetic<T>>(sum));
      });
}

using Term = EinsumEquation::Term;
using OperandStrides = std::array<std::vector<int64_t>, Contraction::kMaxOperands>;

// The strides of each operand along `indices`. The strides of a repeated index add up, so that it reads the diagonal.
OperandStrides StridesAlong(const KernelCall& call, const EinsumEquation& equation, const Term& indices) {
  OperandStrides all;
  for (std::vector<int64_t>& strides : all) strides.assign(indices.size(), 0);
  for (size_t i = 0; i < equation.inputs.size(); ++i) {
    const Shape& shape = call.inputs[i].shape;
    const std::vector<int64_t> own = shape.strides();
    for (size_t axis = 0; axis < own.size(); ++axis) {
      const auto at = std::find(indices.begin(), indices.end(), equation.inputs[i][axis]);
      if (shape[static_cast<int>(axis)] != 1 && at != indices.end()) all[i][static_cast<size_t>(at - indices.begin())] += own[axis];
    }
  }
  return all;
}

std::unique_ptr<Kernel> MakeEinsum(const KernelCall& call, const KernelSite&) {
  std::vector<Shape> shapes;
  for (const OperandType& operand : call.inputs) shapes.push_back(operand.shape);
  const EinsumEquation equation = EinsumEquation::Parse(call.attributes.String("equation", ""), shapes);
  Term summed;
  Shape extents;
  for (const auto& [index, extent] : equation.extents) {
    if (std::find(equation.output.begin(), equation.output.end(), index) != equation.output.end()) continue;
    summed.push_back(index);
    extents.push_back(extent);
  }
  Contraction c{.operands = static_cast<int>(call.inputs.size()), .results = call.outputs[0].shape.elements()};
  c.kept = OffsetCalculator<Contraction::kMaxOperands>(call.outputs[0].shape, StridesAlong(call, equation, equation.output));
  // The innermost axis that remains after merging is the row.
  OffsetCalculator<Contraction::kMaxOperands>& outer = c.outer;
  outer = OffsetCalculator<Contraction::kMaxOperands>(extents, StridesAlong(call, equation, summed));
  c.n = 1;
  if (outer.rank > 0) {
    --outer.rank;
    c.n = outer.extents[outer.rank];
    for (int k = 0; k < Contraction::kMaxOperands; ++k) c.steps[k] = outer.strides[k][outer.rank];
  }
  c.outer_terms = c.n == 0 ? 0 : extents.elements() / c.n;
  return WithNumber(call.inputs[0].dtype, [&]<typename T>(std::type_identity<T>) {
    return MakeKernel([c](const Launch& l) {
      Operands operands{};
      std::copy_n(l.inputs, c.operands, operands.data);
      Contract(c, operands, l.Out<T>(0), l.stream);
    });
  });
}

constexpr CudaKernel kProductKernels[] = {
    {"cuda.MatMul", MakeMatMul},
    {"cuda.Gemm", MakeGemm},
    {"cuda.MatMulInteger", MakeMatMulInteger},
    {"cuda.Einsum", MakeEinsum},
};

}  // namespace

std::span<const CudaKernel> ProductKernels() { return kProductKernels; }

}  // namespace gradloom::cuda
