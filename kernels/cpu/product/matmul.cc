// MatMul and Gemm by oneDNN, or by our own loops where matrices are too small to amortize a library's overhead, where elements have 16
// bits, or where oneDNN's kernels are slow.
#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/isa/loops.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/operands.h"
#include "kernels/cpu/product/blocked_product.h"
#include "kernels/cpu/product/long_product.h"
#include "kernels/cpu/product/matrix_product.h"

namespace gradloom {
namespace {

// Up to this many multiply-adds, our own loops are faster.
constexpr int64_t kSmallProduct = 1 << 16;
constexpr size_t kMaxLeadingAxes = 8;  // with rows and columns, within oneDNN's DNNL_MAX_NDIMS

using Dims = dnnl::memory::dims;

MatrixProduct ProductOfGemm(const KernelCall& call) {
  MatrixProduct p;
  const bool trans_a = call.attributes.Int("transA", 0) != 0, trans_b = call.attributes.Int("transB", 0) != 0;
  p.m = call.outputs[0].shape[0];
  p.n = call.outputs[0].shape[1];
  p.k = call.inputs[0].shape[trans_a ? 0 : 1];
  p.a_row = trans_a ? 1 : p.k;
  p.a_col = trans_a ? p.m : 1;
  p.b_row = trans_b ? 1 : p.n;
  p.b_col = trans_b ? p.k : 1;
  p.alpha = static_cast<float>(call.attributes.Float("alpha", 1.0));
  p.beta = static_cast<float>(call.attributes.Float("beta", 1.0));
  p.has_bias = HasInput(call, 2) && p.beta != 0.0f;
  if (!p.has_bias) return p;
  const Shape& bias = call.inputs[2].shape;
  const int64_t rows = bias.rank() == 2 ? bias[0] : 1, columns = bias.rank() == 0 ? 1 : bias[bias.rank() - 1];
  p.bias_dims = {rows, columns};
  p.bias_row = rows == 1 ? 0 : columns;
  p.bias_col = columns == 1 ? 0 : 1;
  return p;
}

// As in numpy.matmul, a vector is a row on the left and a column on the right, and leading axes broadcast.
MatrixProduct ProductOfMatMul(const KernelCall& call) {
  MatrixProduct p;
  const Shape &a = call.inputs[0].shape, &b = call.inputs[1].shape;
  p.m = a.rank() == 1 ? 1 : a[a.rank() - 2];
  p.k = a[a.rank() - 1];
  p.n = b.rank() == 1 ? 1 : b[b.rank() - 1];
  p.a_row = p.k;
  p.a_col = 1;
  p.b_row = p.n;
  p.b_col = 1;
  const int a_lead = std::max(a.rank() - 2, 0), b_lead = std::max(b.rank() - 2, 0);
  if (b_lead == 0) {
    // The right operand is a single matrix, so all rows of the left one form one matrix.
    for (int axis = 0; axis < a_lead; ++axis) p.m *= a[axis];
    return p;
  }
  const int lead = std::max(a_lead, b_lead);
  for (int axis = 0; axis < lead; ++axis) {
    const int at_a = axis - (lead - a_lead), at_b = axis - (lead - b_lead);
    p.a_batch.push_back(at_a < 0 ? 1 : a[at_a]);
    p.b_batch.push_back(at_b < 0 ? 1 : b[at_b]);
    p.batch.push_back(p.a_batch.back() == 1 ? p.b_batch.back() : p.a_batch.back());
  }
  return p;
}

}  // namespace

int64_t MatrixProduct::matrices() const { return std::accumulate(batch.begin(), batch.end(), int64_t{1}, std::multiplies<>()); }

MatrixProduct ProductOf(const KernelCall& call) { return call.op == "Gemm" ? ProductOfGemm(call) : ProductOfMatMul(call); }

namespace {

MatrixArgs SmallArgs(const MatrixProduct& p) {
  MatrixArgs args{};
  args.m = p.m;
  args.n = p.n;
  args.k = p.k;
  args.a_row = p.a_row;
  args.a_col = p.a_col;
  args.b_row = p.b_row;
  args.b_col = p.b_col;
  args.bias_step = p.bias_col;
  args.c_row = p.n;
  args.alpha = p.alpha;
  args.beta = p.beta;
  return args;
}

class SmallProduct : public Kernel {
 public:
  explicit SmallProduct(const KernelCall& call) : loops_(BestLoops()), product_(ProductOf(call)), args_(SmallArgs(product_)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    MatrixArgs args = args_;
    args.a = static_cast<const float*>(inputs[0]);
    args.b = static_cast<const float*>(inputs[1]);
    args.bias = product_.has_bias ? static_cast<const float*>(inputs[2]) : nullptr;
    args.c = static_cast<float*>(outputs[0]);
    loops_.matrix(args, static_cast<float*>(scratch));
  }

 private:
  const Loops& loops_;
  MatrixProduct product_;
  MatrixArgs args_;
};

int64_t SmallScratch(const KernelCall& call) {
  const MatrixProduct p = ProductOf(call);
  return MatrixPackFloats(p.k, p.n) * static_cast<int64_t>(sizeof(float));
}

std::string RejectsSmall(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  const MatrixProduct p = ProductOf(call);
  if (p.work() > kSmallProduct) return "matrices that are not small";
  if (!p.batch.empty()) return "several matrices";
  return p.has_bias && p.bias_row != 0 ? "an addend with rows" : "";
}

struct Prepared {
  dnnl::matmul::primitive_desc desc;
  bool bias_is_addend = false;  // as a post-operation instead of oneDNN's bias
};

Dims WithMatrix(Dims batch, int64_t rows, int64_t columns) {
  batch.push_back(rows);
  batch.push_back(columns);
  return batch;
}

// Batch strides of contiguous matrices, followed by the strides of the matrix itself.
Dims StridesOf(const Dims& batch, int64_t matrix, int64_t row, int64_t column) {
  Dims strides(batch.size());
  int64_t stride = matrix;
  for (size_t i = batch.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= batch[i];
  }
  strides.push_back(row);
  strides.push_back(column);
  return strides;
}

// For operands of type `dtype`, float32 or bfloat16, with the strides in `p`.
Prepared Prepare(const MatrixProduct& p, DType dtype) {
  const auto a = OneDnnDesc(WithMatrix(p.a_batch, p.m, p.k), StridesOf(p.a_batch, p.m * p.k, p.a_row, p.a_col), dtype);
  const auto b = OneDnnDesc(WithMatrix(p.b_batch, p.k, p.n), StridesOf(p.b_batch, p.k * p.n, p.b_row, p.b_col), dtype);
  const auto c = OneDnnDesc(WithMatrix(p.batch, p.m, p.n), {}, dtype);
  dnnl::primitive_attr attr = OneDnnUserScratch();
  dnnl::post_ops after;
  if (p.alpha != 1.0f) after.append_eltwise(dnnl::algorithm::eltwise_linear, p.alpha, 0.0f);
  Prepared prepared;
  prepared.bias_is_addend = p.has_bias && (p.alpha != 1.0f || p.bias_dims[0] != 1 || p.bias_dims[1] != p.n);
  if (prepared.bias_is_addend) after.append_binary(dnnl::algorithm::binary_add, OneDnnDesc(p.bias_dims, {}, dtype));
  attr.set_post_ops(after);
  prepared.desc = p.has_bias && !prepared.bias_is_addend
                      ? dnnl::matmul::primitive_desc(OneDnnEngine(), a, b, OneDnnDesc(p.bias_dims, {}, dtype), c, attr)
                      : dnnl::matmul::primitive_desc(OneDnnEngine(), a, b, c, attr);
  return prepared;
}

bool IsLong(const KernelCall& call) { return call.outputs[0].dtype == DType::kFloat32 && LongProduct::Serves(ProductOf(call)); }

int64_t LargeScratch(const KernelCall& call) {
  if (IsLong(call)) return LongProduct::ScratchBytes(ProductOf(call), call.threads);
  const OneDnnTeam team(call.threads);
  return static_cast<int64_t>(Prepare(ProductOf(call), call.outputs[0].dtype).desc.scratchpad_desc().get_size());
}

class LargeProduct : public Kernel {
 public:
  explicit LargeProduct(const KernelCall& call) : product_(ProductOf(call)), primitive_(Make(call)) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    if (product_.has_bias) {
      primitive_.Run({inputs[0], inputs[1], outputs[0], scratch, inputs[2]});
    } else {
      primitive_.Run({inputs[0], inputs[1], outputs[0], scratch});
    }
  }

 private:
  OneDnnPrimitive Make(const KernelCall& call) {
    const OneDnnTeam team(call.threads);
    const DType dtype = call.outputs[0].dtype;
    const Prepared p = Prepare(product_, dtype);
    std::vector<OneDnnPrimitive::Argument> arguments = {{DNNL_ARG_SRC, p.desc.src_desc()},
                                                        {DNNL_ARG_WEIGHTS, p.desc.weights_desc()},
                                                        {DNNL_ARG_DST, p.desc.dst_desc()},
                                                        {DNNL_ARG_SCRATCHPAD, p.desc.scratchpad_desc()}};
    const int index = product_.alpha != 1.0f ? 1 : 0;
    if (p.bias_is_addend) {
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, OneDnnDesc(product_.bias_dims, {}, dtype)});
    } else if (product_.has_bias) {
      arguments.push_back({DNNL_ARG_BIAS, OneDnnDesc(product_.bias_dims, {}, dtype)});
    }
    return OneDnnPrimitive([&p] { return dnnl::matmul(p.desc); }, std::move(arguments), call.threads);
  }

  MatrixProduct product_;
  OneDnnPrimitive primitive_;
};

std::unique_ptr<Kernel> MakeLarge(const KernelCall& call) {
  if (IsLong(call)) return std::make_unique<LongProduct>(ProductOf(call), call.threads);
  return std::make_unique<LargeProduct>(call);
}

std::string RejectsLarge(const KernelCall& call, DType dtype) {
  if (std::string why = RejectsAllBut(call, dtype); !why.empty()) return why;
  const MatrixProduct p = ProductOf(call);
  if (p.work() == 0) return "nothing to multiply";
  if (p.batch.size() > kMaxLeadingAxes) return "more than " + std::to_string(kMaxLeadingAxes) + " leading axes";
  return p.has_bias && p.beta != 1.0f ? "beta that is neither 0 nor 1" : "";
}

std::string RejectsFloat32(const KernelCall& call) { return RejectsLarge(call, DType::kFloat32); }

class Blocked : public Kernel {
 public:
  explicit Blocked(const KernelCall& call) : product_(ProductOf(call), call.outputs[0].dtype, call.threads) {}

  void Run(const void* const* inputs, void* const* outputs, void* scratch, void*) override {
    product_.Run(inputs[0], inputs[1], product_.has_bias() ? inputs[2] : nullptr, outputs[0], scratch);
  }

 private:
  BlockedProduct product_;
};

int64_t BlockedScratch(const KernelCall& call) {
  if (IsLong(call)) return LongProduct::ScratchBytes(ProductOf(call), call.threads);
  return BlockedProduct(ProductOf(call), call.outputs[0].dtype, call.threads).scratch_bytes();
}

std::unique_ptr<Kernel> MakeBlocked(const KernelCall& call) {
  if (IsLong(call)) return std::make_unique<LongProduct>(ProductOf(call), call.threads);
  return std::make_unique<Blocked>(call);
}

std::string RejectsBlocked(const KernelCall& call) {
  if (std::string why = RejectsAllBut(call, DType::kFloat32); !why.empty()) return why;
  const MatrixProduct p = ProductOf(call);
  if (p.work() == 0) return "nothing to multiply";
  if (!PackingPaysOff(p)) return "few rows or columns";
  return p.has_bias && p.bias_row != 0 ? "an addend with rows" : "";
}

std::string RejectsHalf(const KernelCall& call) {
  const DType dtype = call.outputs[0].dtype;
  if (dtype != DType::kFloat16 && dtype != DType::kBfloat16) return std::string(DTypeName(dtype));
  if (std::string why = RejectsAllBut(call, dtype); !why.empty()) return why;
  const MatrixProduct p = ProductOf(call);
  if (p.work() == 0) return "nothing to multiply";
  return p.has_bias && p.bias_row != 0 ? "an addend with rows" : "";
}

// oneDNN's bfloat16 kernels; or Blocked, which serves the same calls, for a plan compiled on a machine that has bfloat16 instructions,
// unlike this one.
std::string RejectsBfloat16(const KernelCall& call) {
  if (std::string why = RejectsHalf(call); !why.empty()) return why;
  return RejectsLarge(call, DType::kBfloat16);
}

int64_t Bfloat16Scratch(const KernelCall& call) {
  const int64_t own = BlockedScratch(call);
  return HasBfloat16() ? std::max(own, LargeScratch(call)) : own;
}

std::unique_ptr<Kernel> MakeBfloat16(const KernelCall& call) {
  if (HasBfloat16()) return std::make_unique<LargeProduct>(call);
  return std::make_unique<Blocked>(call);
}

constexpr CpuKernel Small(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = RejectsSmall, .scratch_bytes = SmallScratch},
          .make = MakeKernel<SmallProduct>};
}
constexpr CpuKernel Large(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = RejectsFloat32, .scratch_bytes = LargeScratch}, .make = MakeLarge};
}

constexpr CpuKernel OfBlocks(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = RejectsBlocked, .scratch_bytes = BlockedScratch}, .make = MakeBlocked};
}
constexpr CpuKernel Half(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = RejectsHalf, .scratch_bytes = BlockedScratch},
          .make = MakeKernel<Blocked>};
}
constexpr CpuKernel Bfloat16(std::string_view name, std::string_view op) {
  return {.row = {.name = name, .op = op, .domain = "", .rejects = RejectsBfloat16, .scratch_bytes = Bfloat16Scratch},
          .make = MakeBfloat16};
}

constexpr CpuKernel kSmall[] = {
    Small("cpu.MatMul", "MatMul"),
    Small("cpu.Gemm", "Gemm"),
};
constexpr CpuKernel kBlocked[] = {
    OfBlocks("cpu.blocked.MatMul", "MatMul"),
    OfBlocks("cpu.blocked.Gemm", "Gemm"),
};
constexpr CpuKernel kFloat32[] = {
    Large("onednn.MatMul", "MatMul"),
    Large("onednn.Gemm", "Gemm"),
};
constexpr CpuKernel kHalf[] = {
    Half("cpu.half.MatMul", "MatMul"),
    Half("cpu.half.Gemm", "Gemm"),
};
constexpr CpuKernel kBfloat16[] = {
    Bfloat16("onednn.bfloat16.MatMul", "MatMul"),
    Bfloat16("onednn.bfloat16.Gemm", "Gemm"),
};

}  // namespace

std::span<const CpuKernel> CpuMatMulKernels() {
  static const std::vector<CpuKernel> kernels = [] {
    std::vector<CpuKernel> made(std::begin(kSmall), std::end(kSmall));
    const auto append = [&made](const auto& rows) { made.insert(made.end(), std::begin(rows), std::end(rows)); };
    // The second of each pair serves plans that were compiled on another machine, and what the first rejects.
    if (PrefersBlockedProducts()) append(kBlocked);
    append(kFloat32);
    if (!PrefersBlockedProducts()) append(kBlocked);
    const bool native_first = HasFastBfloat16();
    if (native_first) append(kBfloat16);
    append(kHalf);
    if (!native_first) append(kBfloat16);
    return made;
  }();
  return kernels;
}

}  // namespace gradloom
