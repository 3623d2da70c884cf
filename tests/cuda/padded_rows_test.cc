// Products and losses over matrices whose rows are padded, and the compiler's choice of them; casts and reorders into padded words.
#include "kernels/cuda/rows/padded_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernels/catalog/physical.h"
#include "kernels/catalog/pointwise.h"
#include "kernels/cuda/lt_product.h"
#include "kernels/cuda/plain_product.h"
#include "kernels/cuda/rows/blas.h"
#include "kernels/cuda/rows/convolution.h"
#include "tests/cuda/random_calls.h"

namespace gradloom {
namespace {

using namespace random_calls;  // NOLINT: all of it

// Pads the rows of an operand of a 16-bit type or float32 in half of the cases.
void PadRows(Random& r, OperandType& operand) {
  if (r.Coin() && !HasAlignedRows(operand)) operand.layout = PaddedRows(operand.dtype, operand.shape.rank());
}

// The same for an operand of a product, which may have float32 rows that are padded like 16-bit ones.
void PadProductRows(Random& r, OperandType& operand) {
  PadRows(r, operand);
  if (!operand.layout.plain() && r.Coin()) operand.layout = PaddedRows(DType::kBfloat16, operand.shape.rank());
}

struct Rounding {
  DType dtype;
  double epsilon;
};

Rounding AnyType(Random& r) {
  const Rounding types[] = {{DType::kFloat32, 1.2e-7}, {DType::kFloat16, 1e-3}, {DType::kBfloat16, 8e-3}};
  return types[r.Int(0, 2)];
}

// Words of channels or of rows, from either order of dimensions.
TEST(PaddedRows, CastsAndReordersIntoWords) {
  ForEachSeed(40, [](Random& r) {
    Shape shape{r.Int(1, 3), r.Int(1, 17)};
    for (int64_t axes = r.Int(0, 2); axes > 0; --axes) shape.push_back(r.Int(1, 9));
    const int rank = shape.rank();
    const DType dtype = r.Coin() ? DType::kFloat16 : DType::kBfloat16;
    const Tensor x = r.Reals(shape, -1, 1, DType::kFloat32);
    Case cast("Cast", "", {x}, {Out(dtype, shape)}, {{"to", static_cast<int64_t>(dtype)}});
    Case reorder("Reorder", "gradloom", {Converted(x.view(), dtype)}, {Out(dtype, shape)});
    const Layout from = rank > 2 && r.Coin() ? ChannelsLast(rank) : Layout{};
    const Layout to = rank > 2 && r.Coin() ? PaddedChannels(dtype, rank) : PaddedRows(dtype, rank);
    for (Case* each : {&cast, &reorder}) {
      each->call.inputs[0].layout = from;
      each->call.outputs[0].layout = to;
      Compare(*each);
    }
    EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, cast.call)->name, "cuda.CastIntoWords");
  });
}

TEST(PaddedRows, ProductsAgreeWithTheReference) {
  ForEachSeed(40, [](Random& r) {
    const auto [dtype, epsilon] = AnyType(r);
    const int64_t m = r.Int(1, 40), n = r.Int(1, 40), k = r.Int(1, 40), ta = r.Int(0, 1), tb = r.Int(0, 1), summed = r.Int(0, 1);
    const Tensor a = r.Reals(ta ? Shape{k, m} : Shape{m, k}, -1, 1, dtype), b = r.Reals(tb ? Shape{n, k} : Shape{k, n}, -1, 1, dtype);
    const double allowed = 4 * epsilon * static_cast<double>(k);
    const std::vector<Tensor> operands = r.Coin() ? std::vector{a, b, r.Reals({n}, -1, 1, dtype)} : std::vector{a, b};
    Case product("Gemm", "", operands, {Out(dtype, {m, n})}, {{"transA", ta}, {"transB", tb}});
    Case sums("GemmBiasGrad", "gradloom", {a, b}, {Out(dtype, {m, n}), Out(dtype, {summed == 0 ? m : n})},
              {{"transA", ta}, {"transB", tb}, {"summed", summed}});
    for (Case* each : {&product, &sums}) {
      for (OperandType* matrix : {&each->call.inputs[0], &each->call.inputs[1], &each->call.outputs[0]}) PadProductRows(r, *matrix);
      Compare(*each, allowed);
    }
  });
}

// The rows of all leading axes are those of one matrix.
TEST(PaddedRows, ProductsOverLeadingAxesAgreeWithTheReference) {
  ForEachSeed(40, [](Random& r) {
    const auto [dtype, epsilon] = AnyType(r);
    const int64_t n = r.Int(1, 40), k = r.Int(1, 40);
    std::vector<int64_t> rows;
    for (int64_t axis = r.Int(1, 3); axis > 0; --axis) rows.push_back(r.Int(1, 5));
    Shape a(rows), d(rows);
    a.push_back(k);
    d.push_back(n);
    Case c("MatMul", "", {r.Reals(a, -1, 1, dtype), r.Reals({k, n}, -1, 1, dtype)}, {Out(dtype, d)});
    for (OperandType* each : {&c.call.inputs[0], &c.call.inputs[1], &c.call.outputs[0]}) PadProductRows(r, *each);
    EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, c.call)->name, "cublas.MatMul");
    Compare(c, 4 * epsilon * static_cast<double>(k));
  });
}

// Often one, for which a bias is as large as the result.
int64_t AnyRows(Random& r) { return r.Int(0, 4) == 0 ? 1 : r.Int(1, 40); }

// ReLU, GELU, which keeps its operand, and GELU's derivative, which reads it.
TEST(PaddedRows, EpiloguesAgreeWithTheReference) {
  ForEachSeed(60, [](Random& r) {
    const auto [dtype, epsilon] = AnyType(r);
    const int64_t m = AnyRows(r), n = r.Int(1, 40), k = r.Int(1, 40), ta = r.Int(0, 1), tb = r.Int(0, 1);
    const Tensor a = r.Reals(ta ? Shape{k, m} : Shape{m, k}, -1, 1, dtype), b = r.Reals(tb ? Shape{n, k} : Shape{k, n}, -1, 1, dtype);
    const OperandType d = Out(dtype, {m, n});
    const Attributes attributes{{"transA", ta}, {"transB", tb}};
    std::vector<Tensor> operands = {a, b};
    if (r.Coin()) operands.push_back(r.Reals({n}, -1, 1, dtype));
    Case relu("GemmRelu", "gradloom", operands, {d}, attributes), gelu("GemmGelu", "gradloom", operands, {d, d}, attributes);
    Case gradient("GemmGeluGrad", "gradloom", {a, b, r.Reals({m, n}, -2, 2, dtype)}, {d, r.Coin() ? Out(dtype, {n}) : OperandType{}},
                  attributes);
    for (Case* each : {&relu, &gelu, &gradient}) {
      for (OperandType& factor : each->call.inputs) {
        if (&factor - each->call.inputs.data() < 2) PadProductRows(r, factor);
      }
      if (each != &gradient) PadProductRows(r, each->call.outputs[0]);
      if (each == &gelu) each->call.outputs[1].layout = each->call.outputs[0].layout;
    }
    const double allowed = 4 * epsilon * static_cast<double>(k);
    Compare(relu, allowed);
    Compare(gelu, allowed);
    // The sums have m terms, and a product is rounded before it is multiplied.
    Compare(gradient, 2 * allowed * static_cast<double>(m));
  });
}

// Memory of a call's operands on the device, which holds the inputs.
class OperandsOnDevice {
 public:
  explicit OperandsOnDevice(const Case& c) : call_(c.call) {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const OperandType& type = call_.inputs[i];
      std::vector<std::byte> stored(static_cast<size_t>(type.bytes()));
      ToLayout(type.layout, type.shape, DTypeBytes(type.dtype), c.inputs[i].data(), stored.data());
      inputs_.push_back(std::make_unique<DeviceBytes>(type.bytes()));
      inputs_.back()->Write(stored.data(), type.bytes());
    }
    for (const OperandType& type : call_.outputs) outputs_.push_back(std::make_unique<DeviceBytes>(type.bytes()));
  }

  // The element at this offset.
  const void* in(size_t i, int64_t offset) const { return At(*inputs_[i], call_.inputs[i], offset); }
  void* out(size_t i, int64_t offset) const { return At(*outputs_[i], call_.outputs[i], offset); }

  Tensor Result(size_t i) const {
    const OperandType& type = call_.outputs[i];
    std::vector<std::byte> stored(static_cast<size_t>(type.bytes()));
    outputs_[i]->Read(stored.data(), type.bytes());
    Tensor got(type.dtype, type.shape);
    FromLayout(type.layout, type.shape, DTypeBytes(type.dtype), stored.data(), got.data());
    return got;
  }

 private:
  static char* At(const DeviceBytes& block, const OperandType& type, int64_t offset) {
    return static_cast<char*>(block.data()) + offset * DTypeBytes(type.dtype);
  }

  const KernelCall& call_;
  std::vector<std::unique_ptr<DeviceBytes>> inputs_, outputs_;
};

void ExpectNear(const Tensor& wanted, const Tensor& got, double allowed) {
  for (int64_t i = 0; i < got.elements(); ++i) ASSERT_NEAR(ElementAsDouble(got.view(), i), ElementAsDouble(wanted.view(), i), allowed) << i;
}

// The parts of a product, computed by Gradloom's own kernel, give the product. Only large ones are divided.
TEST(PaddedRows, DividedProductsAgreeWithTheReference) {
  ForEachSeed(60, [](Random& r) {
    const auto [dtype, epsilon] = AnyType(r);
    const int64_t m = r.Int(1, 40), n = r.Int(1, 40), k = r.Int(1, 40), ta = r.Int(0, 1), tb = r.Int(0, 1);
    const Tensor a = r.Reals(ta ? Shape{k, m} : Shape{m, k}, -1, 1, dtype), b = r.Reals(tb ? Shape{n, k} : Shape{k, n}, -1, 1, dtype);
    const bool has_row = r.Coin();
    const std::vector<Tensor> operands = has_row ? std::vector{a, b, r.Reals({n}, -1, 1, dtype)} : std::vector{a, b};
    Case c("Gemm", "", operands, {Out(dtype, {m, n})}, {{"transA", ta}, {"transB", tb}, {"allow_tf32", int64_t{1}}});
    for (OperandType* matrix : {&c.call.inputs[0], &c.call.inputs[1], &c.call.outputs[0]}) {
      if (!HasAlignedRows(*matrix)) matrix->layout = PaddedRows(dtype);
    }
    const std::vector<ProductPart> parts = AlignedParts(*BlasProductOf(c.call), 0);
    const int64_t unit = kRowAlignmentBytes / DTypeBytes(dtype);
    int64_t products = 0;
    for (const ProductPart& part : parts) products += part.product.m * part.product.n * part.product.k;
    EXPECT_EQ(products, m * n * k);
    EXPECT_EQ(parts.size() > 1, (m > unit && m % unit != 0) || (n > unit && n % unit != 0) || (k > unit && k % unit != 0));
    EXPECT_EQ(AlignedParts(*BlasProductOf(c.call)).size(), 1u);
    const Tensor wanted = RunReference(c.call, c.inputs)[0];
    const OperandsOnDevice memory(c);
    for (const ProductPart& part : parts) {
      const bool row = part.product.addend == BlasProduct::Addend::kRow;
      cuda::PlainProduct(part.product, memory.in(0, part.a), memory.in(1, part.b), memory.out(0, part.d), nullptr,
                         row ? memory.in(2, part.row) : nullptr);
    }
    GRADLOOM_CUDA(cudaDeviceSynchronize());
    ExpectNear(wanted, memory.Result(0), 4 * epsilon * static_cast<double>(k));
  });
}

// The function follows the last product over k of each part of the result. GELU's operand is written where its result is. The library may
// have no algorithm for a part; passes then follow the whole product, which other tests cover.
TEST(PaddedRows, DividedEpiloguesAgreeWithTheReference) {
  int compared = 0;
  ForEachSeed(60, [&](Random& r) {
    const bool gelu = r.Coin();
    const DType dtype = r.Coin() ? DType::kFloat16 : DType::kBfloat16;
    const double epsilon = dtype == DType::kFloat16 ? 1e-3 : 8e-3;
    // The library needs whole words of GELU's operand.
    const int64_t m = AnyRows(r), n = gelu ? 8 * r.Int(1, 5) : r.Int(1, 40), k = r.Int(1, 40), ta = r.Int(0, 1), tb = r.Int(0, 1);
    std::vector<Tensor> operands = {r.Reals(ta ? Shape{k, m} : Shape{m, k}, -1, 1, dtype),
                                    r.Reals(tb ? Shape{n, k} : Shape{k, n}, -1, 1, dtype)};
    const bool has_row = r.Coin();
    if (has_row) operands.push_back(r.Reals({n}, -1, 1, dtype));
    std::vector<OperandType> results(gelu ? 2 : 1, Out(dtype, {m, n}));
    Case c(gelu ? "GemmGelu" : "GemmRelu", "gradloom", operands, results, {{"transA", ta}, {"transB", tb}});
    for (OperandType* matrix : {&c.call.inputs[0], &c.call.inputs[1], &c.call.outputs[0], &c.call.outputs.back()}) {
      if (!HasAlignedRows(*matrix)) matrix->layout = PaddedRows(dtype);
    }
    const OperandsOnDevice memory(c);
    for (const ProductPart& part : AlignedParts(*BlasProductOf(c.call), 0)) {
      cuda::LtProduct product(part.product, TheLibraries());
      if (!product.has_algorithm()) return;
      const DeviceBytes scratch(BlasScratchBytes(part.product));
      const void* const addend = part.product.addend == BlasProduct::Addend::kMatrix ? memory.out(0, part.d)
                                 : has_row                                           ? memory.in(2, part.row)
                                                                                     : nullptr;
      const void* const inputs[] = {memory.in(0, part.a), memory.in(1, part.b), addend};
      void* const outputs[] = {memory.out(0, part.d), gelu ? memory.out(1, part.d) : nullptr};
      product.Run(inputs, outputs, scratch.data(), nullptr);
      GRADLOOM_CUDA(cudaDeviceSynchronize());
    }
    const std::vector<Tensor> wanted = RunReference(c.call, c.inputs);
    for (size_t i = 0; i < wanted.size(); ++i) ExpectNear(wanted[i], memory.Result(i), 4 * epsilon * static_cast<double>(k));
    ++compared;
  });
  EXPECT_GT(compared, 30);
}

// Operands of the shape of the result are padded, others are broadcast.
TEST(PaddedRows, PointwiseProgramsAgreeWithTheReference) {
  ForEachSeed(16, [](Random& r) {
    Shape shape;
    for (int64_t axis = r.Int(0, 2); axis > 0; --axis) shape.push_back(r.Int(1, 4));
    shape.push_back(r.Coin() ? r.Int(1, 7) : 2 * r.Int(4, 20) + 1);
    const auto [dtype, epsilon] = AnyType(r);
    const auto other = AnyType(r);
    const Layout layout = PaddedRows(r.Coin() ? dtype : other.dtype, shape.rank());
    std::vector<Tensor> operands = {r.Reals(shape, -2, 2, dtype)};
    for (int k = 0; k < 3; ++k) {
      Shape broadcast = shape;
      for (int axis = 0; axis < shape.rank(); ++axis) broadcast[axis] = r.Int(0, 2) == 0 ? 1 : shape[axis];
      if (r.Int(0, 3) == 0) broadcast = Shape(std::vector<int64_t>(broadcast.begin() + r.Int(0, shape.rank()), broadcast.end()));
      operands.push_back(k < 2 ? r.Reals(broadcast, -2, 2, r.Coin() ? dtype : other.dtype) : r.Wholes(broadcast, 0, 1, DType::kBool));
    }
    PointwiseProgram program{.num_inputs = 4, .constants = {0.5F}};
    // Zeros of the padding become other numbers.
    const int shifted = program.Emit(PointwiseOp::kAdd, program.Emit(PointwiseOp::kSigmoid, 0), 4);
    const int scaled = program.Emit(PointwiseOp::kMul, shifted, 1);
    const int chosen = program.Emit(PointwiseOp::kWhere, 3, scaled, 2);
    program.outputs = {shifted, chosen, program.Emit(PointwiseOp::kGreater, 4, chosen)};
    Case fused("Fused", "gradloom", operands, {Out(dtype, shape), Out(other.dtype, shape), Out(DType::kBool, shape)},
               program.ToAttributes());
    for (auto* list : {&fused.call.inputs, &fused.call.outputs}) {
      for (OperandType& operand : *list) operand.layout = operand.shape == shape ? layout : Layout{};
    }
    Compare(fused, 4 * std::max(epsilon, other.epsilon));
    Case single("Add", "", {operands[0], r.Reals({shape[shape.rank() - 1]}, -1, 1, dtype)}, {Out(dtype, shape)});
    single.call.inputs[0].layout = single.call.outputs[0].layout = layout;
    if (shape.rank() == 1) single.call.inputs[1].layout = layout;
    Compare(single, 2 * epsilon);
  });
}

TEST(PaddedRows, PointwiseProgramsExpectOnePadding) {
  const Layout padded = PaddedRows(DType::kBfloat16), wider = {.order = {}, .blocks = {{1, 16}}},
               columns = {.order = {}, .blocks = {{0, 8}}};
  const auto why = [](const Layout& a, const Layout& b, const Layout& out) {
    const OperandType type = Out(DType::kBfloat16, {5, 9});
    KernelCall call{.op = "Add", .domain = "", .attributes = {}, .inputs = {type, type}, .outputs = {type}};
    call.inputs[0].layout = a;
    call.inputs[1].layout = b;
    call.outputs[0].layout = out;
    return Rejection(*FindKernel("cuda.pointwise.Add"), call);
  };
  EXPECT_EQ(why(padded, padded, padded), "");
  EXPECT_EQ(why(wider, wider, wider), "");
  for (const auto& [a, b, out] :
       {std::array{padded, Layout{}, padded}, {padded, padded, Layout{}}, {padded, wider, padded}, {columns, columns, columns}})
    EXPECT_NE(why(a, b, out), "");
}

// The layouts that the first row for a call prefers, by operand: p for padded rows.
std::string Preferred(KernelCall call) {
  const KernelRow* const row = ChooseKernel(DeviceKind::kCuda, call);
  if (row->prefers == nullptr || !row->prefers(call)) return "";
  EXPECT_EQ(Rejection(*row, call), "");
  std::string text;
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *list)
      text += operand.layout.plain() ? '-' : operand.layout == PaddedRows(operand.dtype, operand.shape.rank()) ? 'p' : '?';
  }
  return text;
}

TEST(PaddedRows, LargeProductsPreferThem) {
  const auto call = [](std::string op, std::vector<Shape> inputs, std::vector<Shape> outputs, DType dtype = DType::kBfloat16) {
    KernelCall made{
        .op = op, .domain = op.starts_with("Gemm") && op != "Gemm" ? "gradloom" : "", .attributes = {}, .inputs = {}, .outputs = {}};
    for (const Shape& shape : inputs) made.inputs.push_back(Out(dtype, shape));
    for (const Shape& shape : outputs) made.outputs.push_back(Out(dtype, shape));
    return made;
  };
  EXPECT_EQ(Preferred(call("MatMul", {{16, 1024, 768}, {768, 50257}}, {{16, 1024, 50257}})), "-pp");
  EXPECT_EQ(Preferred(call("MatMul", {{4096, 787}, {787, 1024}}, {{4096, 1024}})), "p--");
  EXPECT_EQ(Preferred(call("MatMul", {{4096, 788}, {788, 1024}}, {{4096, 1024}}, DType::kFloat32)), "");
  EXPECT_EQ(Preferred(call("MatMul", {{64, 787}, {787, 1024}}, {{64, 1024}})), "");
  // Memory limits these.
  EXPECT_EQ(Preferred(call("MatMul", {{1 << 20, 2047}, {2047, 63}}, {{1 << 20, 63}})), "");
  EXPECT_EQ(Preferred(call("MatMul", {{1 << 20, 16}, {16, 2047}}, {{1 << 20, 2047}})), "");
  // Several matrices, and a vector.
  EXPECT_EQ(Preferred(call("MatMul", {{64, 1024, 787}, {64, 787, 64}}, {{64, 1024, 64}})), "");
  EXPECT_EQ(Preferred(call("MatMul", {{1 << 20, 2047}, {2047}}, {{1 << 20}})), "");
  EXPECT_EQ(Preferred(call("GemmRelu", {{4096, 787}, {787, 1021}, {1021}}, {{4096, 1021}})), "pp-p");
  EXPECT_EQ(Preferred(call("GemmGelu", {{4096, 787}, {787, 1024}}, {{4096, 1024}, {4096, 1024}})), "p---");
  EXPECT_EQ(Preferred(call("GemmGeluGrad", {{4096, 1001}, {1001, 1024}, {4096, 1024}}, {{4096, 1024}, {1024}})), "p----");
  // The pass over the result expects whole rows.
  EXPECT_EQ(Preferred(call("GemmGeluGrad", {{4096, 1001}, {1001, 1023}, {4096, 1023}}, {{4096, 1023}, {1023}})), "");
}

TEST(PaddedRows, LossesAgreeWithTheReference) {
  ForEachSeed(40, [](Random& r) {
    const auto [dtype, epsilon] = AnyType(r);
    const int64_t rows = r.Int(1, 5), classes = r.Int(0, 2) == 0 ? r.Int(2000, 2500) : r.Int(1, 300);
    Tensor scores = r.Reals({rows, classes}, -4, 4, dtype);
    const Tensor labels = r.Wholes({rows}, 0, classes - 1), weights = r.Coin() ? r.Reals({classes}, 0.5, 2, DType::kFloat32) : Tensor();
    const Attributes attributes{{"label_smoothing", r.Coin() ? 0.1 : 0.0}, {"ignore_index", r.Coin() ? labels.as<int64_t>()[0] : -100}};
    const OperandType sum = Out(DType::kFloat32, {}), log_sums = Out(DType::kFloat32, {rows});
    Case loss("CrossEntropyLogSum", "gradloom", {scores, labels, weights}, {sum, sum, log_sums}, attributes);
    PadRows(r, loss.call.inputs[0]);
    Compare(loss, 2e-5 * static_cast<double>(rows) * (weights.defined() ? 2 : 1));
    const Tensor log_sum = RunReference(loss.call, loss.inputs)[2], upstream = r.Reals({}, -1, 1, DType::kFloat32);
    Case gradient("CrossEntropyLogSumGrad", "gradloom", {scores, log_sum, labels, weights, upstream}, {Out(dtype, {rows, classes})},
                  attributes);
    gradient.call.inputs[0].layout = gradient.call.outputs[0].layout = loss.call.inputs[0].layout;
    Compare(gradient, 4 * epsilon);
  });
}

// Rows of a thread, a warp, a block, and a large block.
TEST(PaddedRows, LossesWithGradientsAgreeWithTheReference) {
  ForEachSeed(60, [](Random& r) {
    const auto [dtype, epsilon] = AnyType(r);
    const int64_t longest[] = {4, 300, 2500, 10000}, which = r.Int(0, 11);
    const int64_t rows = r.Int(1, 5), classes = which == 3 ? r.Int(8193, longest[3]) : r.Int(1, longest[which % 3]);
    const Tensor scores = r.Reals({rows, classes}, -4, 4, dtype), labels = r.Wholes({rows}, 0, classes - 1);
    const Tensor weights = r.Coin() ? r.Reals({classes}, 0.5, 2, DType::kFloat32) : Tensor();
    const Tensor upstream = r.Reals(r.Coin() ? Shape{} : Shape{rows}, -1, 1, DType::kFloat32);
    const Attributes attributes{{"label_smoothing", r.Coin() ? 0.1 : 0.0}, {"ignore_index", r.Coin() ? labels.as<int64_t>()[0] : -100}};
    Case both("CrossEntropyTraining", "gradloom", {scores, labels, weights, upstream},
              {Out(DType::kFloat32, {}), Out(dtype, {rows, classes})}, attributes);
    PadRows(r, both.call.inputs[0]);
    both.call.outputs[1].layout = both.call.inputs[0].layout;
    if (r.Coin()) both.call.outputs[0] = {};
    Compare(both, std::max(4 * epsilon, 2e-5 * static_cast<double>(rows) * (weights.defined() ? 2 : 1)));
  });
}

TEST(PaddedRows, SumsOfLabelWeights) {
  ForEachSeed(20, [](Random& r) {
    const int64_t rows = r.Coin() ? r.Int(0, 300) : r.Int(2049, 9000), classes = r.Int(1, 20);
    const DType dtype = AnyType(r).dtype;
    const Tensor labels = r.Wholes({rows}, -1, classes), weights = r.Coin() ? r.Reals({classes}, 0.5, 2, dtype) : Tensor();
    const Case sum("LabelWeights", "gradloom", {labels, weights}, {Out(dtype, {})},
                   {{"ignore_index", r.Int(-1, 3)}, {"to", static_cast<int64_t>(dtype)}});
    Compare(sum, dtype == DType::kFloat32 ? 1e-6 * static_cast<double>(rows) : 0);
  });
}

// Vectors of scores are added with one rescaling, except where it would be infinite.
TEST(PaddedRows, LossesOfInfiniteScores) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> lines = {std::vector<float>(19, -infinity), std::vector<float>(19, 1)};
  for (const float special : {infinity, -infinity, nan}) {
    for (const auto& line : lines) {
      for (size_t place : {0, 7, 8, 18}) {
        std::vector<float> scores = line;
        scores[place] = special;
        scores[3] = 2;
        const Tensor labels = Tensor::From(std::vector<int64_t>{3}, Shape{1});
        const OperandType sum = Out(DType::kFloat32, {});
        Case loss("CrossEntropyLogSum", "gradloom", {Tensor::From(scores, Shape{1, 19}), labels, Tensor()},
                  {sum, sum, Out(DType::kFloat32, {1})});
        loss.call.inputs[0].layout = PaddedRows(DType::kFloat32);
        Compare(loss, 1e-5);
        Case both("CrossEntropyTraining", "gradloom", {loss.inputs[0], labels, Tensor(), Tensor::Scalar(1.0F)}, {sum, loss.call.inputs[0]});
        both.call.inputs[0].layout = both.call.outputs[1].layout;
        Compare(both, 1e-5);
      }
    }
  }
}

TEST(PaddedRows, OtherLayoutsAreRejected) {
  const OperandType scores = Out(DType::kBfloat16, {4, 19}), labels = Out(DType::kInt64, {4});
  KernelCall gradient{.op = "CrossEntropyLogSumGrad",
                      .domain = "gradloom",
                      .attributes = {},
                      .inputs = {scores, Out(DType::kFloat32, {4}), labels, {}, Out(DType::kFloat32, {})},
                      .outputs = {scores}};
  gradient.inputs[0].layout = PaddedRows(DType::kBfloat16);
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, gradient), nullptr);
  gradient.outputs[0].layout = PaddedRows(DType::kBfloat16);
  EXPECT_NE(ChooseKernel(DeviceKind::kCuda, gradient), nullptr);
  gradient.inputs[0].layout = gradient.outputs[0].layout = PaddedRows(DType::kFloat32);
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, gradient), nullptr);
  // Padding of more than a part of a word.
  gradient.inputs[0] = gradient.outputs[0] = Out(DType::kFloat32, {4, 19});
  EXPECT_NE(ChooseKernel(DeviceKind::kCuda, gradient), nullptr);
  gradient.inputs[0].layout = gradient.outputs[0].layout = PaddedRows(DType::kBfloat16);
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, gradient), nullptr);
  KernelCall both{.op = "CrossEntropyTraining",
                  .domain = "gradloom",
                  .attributes = {},
                  .inputs = {scores, labels, {}, Out(DType::kFloat32, {})},
                  .outputs = {Out(DType::kFloat32, {}), scores}};
  both.inputs[0].layout = PaddedRows(DType::kBfloat16);
  EXPECT_EQ(ChooseKernel(DeviceKind::kCuda, both), nullptr);
  both.outputs[1].layout = PaddedRows(DType::kBfloat16);
  EXPECT_NE(ChooseKernel(DeviceKind::kCuda, both), nullptr);
}

}  // namespace
}  // namespace gradloom
