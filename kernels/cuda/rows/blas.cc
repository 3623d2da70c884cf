// Matrix products by cuBLASLt.
#include "kernels/cuda/rows/blas.h"

#include <algorithm>

#include "kernels/cuda/rows/padded_rows.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/slices.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

BlasProduct::Epilogue EpilogueOf(const KernelCall& call) {
  if (call.op == "GemmRelu") return BlasProduct::Epilogue::kRelu;
  if (call.op == "GemmGelu") return BlasProduct::Epilogue::kGelu;
  if (call.op == "GemmGeluGrad") return BlasProduct::Epilogue::kGeluGrad;
  if (call.op != "GemmBiasGrad" || call.outputs.size() < 2 || !call.outputs[1].present()) return BlasProduct::Epilogue::kNone;
  return call.attributes.Int("summed", 0) == 0 ? BlasProduct::Epilogue::kSumsOfA : BlasProduct::Epilogue::kSumsOfB;
}

// The row stride of an operand in elements; 0: contiguous rows.
int64_t PaddedStride(const OperandType& rows) { return rows.layout.plain() ? 0 : RowStrideOf(rows).value_or(0); }

void TakeRowStrides(const KernelCall& call, BlasProduct& p) {
  p.a_row = PaddedStride(call.inputs[0]);
  p.b_row = PaddedStride(call.inputs[1]);
  p.d_row = PaddedStride(call.outputs[0]);
}

std::optional<BlasProduct> OfGemm(const KernelCall& call, std::string& why) {
  BlasProduct p;
  TakeRowStrides(call, p);
  p.transpose_a = call.attributes.Int("transA", 0) != 0;
  p.transpose_b = call.attributes.Int("transB", 0) != 0;
  p.m = call.outputs[0].shape[0];
  p.n = call.outputs[0].shape[1];
  p.k = call.inputs[0].shape[p.transpose_a ? 0 : 1];
  p.alpha = call.attributes.Float("alpha", 1);
  p.beta = call.attributes.Float("beta", 1);
  p.epilogue = EpilogueOf(call);
  // The third input of a gradient is not an addend.
  const bool has_addend =
      p.epilogue != BlasProduct::Epilogue::kGeluGrad && call.inputs.size() > 2 && call.inputs[2].present() && p.beta != 0;
  if (!has_addend) {
    p.beta = 0;
    return p;
  }
  const Shape& addend = call.inputs[2].shape;
  const int rank = addend.rank();
  const int64_t rows = rank == 2 ? addend[0] : 1, columns = rank == 0 ? 1 : addend[rank - 1];
  // What adds a bias also adds it to a result of one row.
  if (rows == 1 && columns == p.n && p.alpha == 1 && p.beta == 1) {
    p.addend = BlasProduct::Addend::kRow;
  } else if (rows == p.m && columns == p.n && p.d_row == 0) {
    p.addend = BlasProduct::Addend::kMatrix;
  } else {
    why = "an addend that is neither a matrix nor a row";
    return std::nullopt;
  }
  return p;
}

std::optional<BlasProduct> OfMatMul(const KernelCall& call, std::string& why) {
  BlasProduct p;
  const Shape &a = call.inputs[0].shape, &b = call.inputs[1].shape;
  p.m = a.rank() == 1 ? 1 : a[a.rank() - 2];
  p.k = a[a.rank() - 1];
  p.n = b.rank() == 1 ? 1 : b[b.rank() - 1];
  const int a_lead = std::max(a.rank() - 2, 0), b_lead = std::max(b.rank() - 2, 0), lead = std::max(a_lead, b_lead);
  int64_t a_batch = 1, b_batch = 1;
  for (int axis = 0; axis < a_lead; ++axis) a_batch *= a[axis];
  for (int axis = 0; axis < b_lead; ++axis) b_batch *= b[axis];
  if (b_batch == 1) {
    // The right operand is a single matrix, so all rows of the left one form one matrix.
    p.m *= a_batch;
    TakeRowStrides(call, p);
    return p;
  }
  for (int axis = 0; axis < lead; ++axis) {
    const int at_a = axis - (lead - a_lead), at_b = axis - (lead - b_lead);
    p.batch *= std::max(at_a < 0 ? 1 : a[at_a], at_b < 0 ? 1 : b[at_b]);
  }
  if ((a_batch != p.batch && a_batch != 1) || b_batch != p.batch) {
    why = "matrices that are repeated along some leading axes";
    return std::nullopt;
  }
  p.a_step = a_batch == 1 ? 0 : p.m * p.k;
  p.b_step = p.k * p.n;
  return p;
}

bool KeepsOperandOfGelu(const KernelCall& call) { return call.op == "GemmGelu" && call.outputs.size() > 1 && call.outputs[1].present(); }

// The operands whose rows may be padded: the factors, and the result except where a pass follows that expects contiguous rows. Those of a
// MatMul only if its right operand is one matrix.
std::vector<OperandType*> PaddableOperands(KernelCall& call) {
  OperandType &a = call.inputs[0], &b = call.inputs[1];
  if (call.op == "MatMul" && (a.shape.rank() < 2 || b.shape.rank() != 2)) return {};
  if (call.op == "GemmGeluGrad") return {&a, &b};
  std::vector<OperandType*> operands = {&a, &b, &call.outputs[0]};
  if (KeepsOperandOfGelu(call)) operands.push_back(&call.outputs[1]);
  return operands;
}

std::string RejectedLayout(const KernelCall& call) {
  KernelCall rest = call;
  for (OperandType* rows : PaddableOperands(rest)) {
    if (RowStrideOf(*rows)) rows->layout = {};
  }
  if (std::string why = cuda_rows::Layouts(rest); !why.empty()) return why;
  return KeepsOperandOfGelu(call) && call.outputs[0].layout != call.outputs[1].layout ? "results in several layouts" : "";
}

bool UsesTensorCores(const BlasProduct& product) { return DTypeBytes(product.dtype) == 2 || product.allow_tf32; }

// Tensor cores need aligned rows to be fast.
bool PrefersPaddedRows(KernelCall& call) {
  const BlasProduct product = *BlasProductOf(call);
  if (!UsesTensorCores(product) || product.addend == BlasProduct::Addend::kMatrix || product.m * product.n * product.k < kMinPaddedProducts)
    return false;
  if (std::min({product.m, product.n, product.k}) < kMinPaddedExtent) return false;
  if (call.op == "GemmGeluGrad" && !HasAlignedRows(call.outputs[0])) return false;
  bool any = false;
  for (OperandType* rows : PaddableOperands(call)) {
    if (HasAlignedRows(*rows)) continue;
    rows->layout = PaddedRows(rows->dtype, rows->shape.rank());
    any = true;
  }
  return any;
}

std::string Rejects(const KernelCall& call) {
  const DType dtype = call.inputs[0].dtype;
  if (!IsFloating(dtype)) return std::string(DTypeName(dtype));
  if (std::string why = RejectedLayout(call); !why.empty()) return why;
  std::string why;
  const auto product = BlasProductOf(call, &why);
  if (!product) return why;
  return product->m * product->n * product->k * product->batch == 0 ? "nothing to multiply" : "";
}

int64_t Scratch(const KernelCall& call) { return BlasScratchBytes(*BlasProductOf(call)); }

// A pass over the result needs its sums only after the product.
int64_t ScratchOfGeluGrad(const KernelCall& call) {
  const BlasProduct product = *BlasProductOf(call);
  const int64_t sums =
      product.sums ? cuda::ColumnRuns{product.m, product.n}.partials() * std::max<int64_t>(DTypeBytes(product.dtype), 4) : 0;
  return std::max(BlasScratchBytes(product), sums);
}

// If cuBLASLt does not compute the sums, a reduction kernel does.
int64_t ScratchWithSums(const KernelCall& call) {
  if (call.outputs.size() < 2 || !call.outputs[1].present()) return Scratch(call);
  Tensor axes;
  const KernelCall sums = SumsOf(call, axes);
  for (const KernelRow& row : CudaReduceRows()) {
    if (row.op == sums.op) return std::max(Scratch(call), PaddedSumsBytes(call, sums) + row.scratch_bytes(sums));
  }
  throw Error(ErrorCode::kInternal, "there is no row for " + sums.op);
}

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain,
                        int64_t (*scratch)(const KernelCall&) = Scratch) {
  return {.name = name,
          .op = op,
          .domain = domain,
          .device = DeviceKind::kCuda,
          .rejects = Rejects,
          .prefers = PrefersPaddedRows,
          .scratch_bytes = scratch};
}

constexpr KernelRow kRows[] = {
    Row("cublas.MatMul", "MatMul", ""),
    Row("cublas.Gemm", "Gemm", ""),
    Row("cublas.gradloom.GemmRelu", "GemmRelu", "gradloom"),
    Row("cublas.gradloom.GemmGelu", "GemmGelu", "gradloom"),
    Row("cublas.gradloom.GemmGeluGrad", "GemmGeluGrad", "gradloom", ScratchOfGeluGrad),
    Row("cublas.gradloom.GemmBiasGrad", "GemmBiasGrad", "gradloom", ScratchWithSums),
};

}  // namespace

std::optional<BlasProduct> BlasProductOf(const KernelCall& call, std::string* why) {
  std::string reason;
  auto product = call.op == "MatMul" ? OfMatMul(call, reason) : OfGemm(call, reason);
  if (why != nullptr) *why = reason;
  if (!product) return product;
  product->dtype = product->result = call.inputs[0].dtype;
  product->allow_tf32 = call.attributes.Int("allow_tf32", 0) != 0;
  product->sums = call.outputs.size() > 1 && call.outputs[1].present() && product->epilogue != BlasProduct::Epilogue::kGelu;
  return product;
}

std::vector<ProductPart> AlignedParts(const BlasProduct& product, int64_t min_products) {
  ProductPart whole{.product = product};
  BlasProduct& p = whole.product;
  p.a_row = p.a_row == 0 ? p.a_columns() : p.a_row;
  p.b_row = p.b_row == 0 ? p.b_columns() : p.b_row;
  p.d_row = p.d_row == 0 ? p.n : p.d_row;
  const int64_t unit = kRowAlignmentBytes / DTypeBytes(p.dtype);
  const bool aligned_rows = p.a_row % unit == 0 && p.b_row % unit == 0 && p.d_row % unit == 0;
  const bool sums = p.epilogue == BlasProduct::Epilogue::kSumsOfA || p.epilogue == BlasProduct::Epilogue::kSumsOfB;
  const bool divides = UsesTensorCores(p) && p.result == p.dtype && p.batch == 1 && !sums &&
                       p.epilogue != BlasProduct::Epilogue::kGeluGrad && p.addend != BlasProduct::Addend::kMatrix && aligned_rows &&
                       p.m * p.n * p.k >= min_products;
  if (!divides) return {{.product = product}};
  std::vector<ProductPart> parts = {whole};
  const auto divide = [&](auto&& extent, auto&& move) {
    std::vector<ProductPart> made;
    for (const ProductPart& part : parts) {
      ProductPart first = part, rest = part;
      const int64_t all = extent(part.product), aligned = all / unit * unit;
      if (aligned == 0 || aligned == all) {
        made.push_back(part);
        continue;
      }
      extent(first.product) = aligned;
      extent(rest.product) = all - aligned;
      rest.product.alignment = kRowAlignmentBytes;
      move(rest, aligned);
      made.push_back(first);
      made.push_back(rest);
    }
    parts = std::move(made);
  };
  divide(
      [](auto& q) -> auto& { return q.m; },
      [](ProductPart& part, int64_t m) {
        part.a += part.product.transpose_a ? m : m * part.product.a_row;
        part.d += m * part.product.d_row;
      });
  divide(
      [](auto& q) -> auto& { return q.n; },
      [](ProductPart& part, int64_t n) {
        part.b += part.product.transpose_b ? n * part.product.b_row : n;
        part.d += n;
        part.row += n;
      });
  const size_t before = parts.size();
  divide(
      [](auto& q) -> auto& { return q.k; },
      [](ProductPart& part, int64_t k) {
        part.a += part.product.transpose_a ? k * part.product.a_row : k;
        part.b += part.product.transpose_b ? k : k * part.product.b_row;
      });
  if (parts.size() == before) return parts;
  // Pairs: the rest of k comes first, and the other part adds to it, and applies the function to the sum.
  for (size_t i = 0; i < parts.size(); i += 2) {
    std::swap(parts[i], parts[i + 1]);
    parts[i].product.epilogue = BlasProduct::Epilogue::kNone;
    parts[i + 1].product.addend = BlasProduct::Addend::kMatrix;
    parts[i + 1].product.beta = 1;
  }
  return parts;
}

// NVIDIA recommends 32 MiB on Hopper. For small results, an algorithm that divides k needs a few times the result.
int64_t BlasScratchBytes(const BlasProduct& product) {
  return std::clamp<int64_t>(product.m * product.n * product.batch * 64, kMiB / 16, 32 * kMiB);
}

KernelCall SumsOf(const KernelCall& call, Tensor& axes) {
  const BlasProduct::Epilogue epilogue = EpilogueOf(call);
  const bool of_a = epilogue == BlasProduct::Epilogue::kSumsOfA;
  OperandType of = call.inputs[of_a ? 0 : 1];
  const bool transposed = call.attributes.Int(of_a ? "transA" : "transB", 0) != 0;
  const int64_t axis = of_a == transposed ? 0 : 1;
  axes = Tensor::From(std::vector<int64_t>{axis}, Shape{1});
  // Padding is summed, too.
  OperandType sums = call.outputs[1];
  of.shape = of.layout.Padded(of.shape);
  of.layout = {};
  sums.shape = {of.shape[axis == 0 ? 1 : 0]};
  return {.op = "ReduceSum",
          .domain = "",
          .attributes = {{"keepdims", int64_t{0}}},
          .inputs = {of, {DType::kInt64, {1}, {}}},
          .outputs = {sums},
          .values = {TensorView(), axes.view()}};
}

int64_t PaddedSumsBytes(const KernelCall& call, const KernelCall& sums) {
  const int64_t bytes = sums.outputs[0].bytes();
  return bytes == call.outputs[1].bytes() ? 0 : (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

std::span<const KernelRow> CudaBlasRows() { return kRows; }

}  // namespace gradloom
