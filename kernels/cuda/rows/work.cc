// The launches of kernels that are more than one, or that keep values in memory between reading operands and writing results.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/catalog/backends.h"
#include "kernels/catalog/recurrent.h"
#include "kernels/cuda/rows/attention.h"
#include "kernels/cuda/rows/attention_products.h"
#include "kernels/cuda/rows/batch_norm.h"
#include "kernels/cuda/rows/convolution.h"
#include "kernels/cuda/rows/rows.h"
#include "kernels/cuda/rows/slices.h"

namespace gradloom {
namespace {

double Elements(const DnnTensor& tensor) { return static_cast<double>(tensor.elements()); }

// The work of a product that runs `times` times.
KernelWork WorkOfProduct(const BlasProduct& p, double times) {
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), k = static_cast<double>(p.k);
  const double all = times * static_cast<double>(p.batch), results = p.addend == BlasProduct::Addend::kMatrix ? 2 * m * n : m * n;
  return {times, all * 2 * m * n * k,
          all * ((m * k + k * n) * static_cast<double>(DTypeBytes(p.dtype)) + results * static_cast<double>(DTypeBytes(p.result)))};
}

bool Wants(const KernelCall& call, int64_t input) {
  const std::vector<int64_t> wanted = call.attributes.Ints("wanted");
  return std::find(wanted.begin(), wanted.end(), input) != wanted.end();
}

// In the order of kernels/cuda/attention_products.cu, except that equal launches of all parts are together.
std::vector<KernelWork> WorkOfProducts(const KernelCall& call, const AttentionProducts& p) {
  const double parts = static_cast<double>(p.q.dims[0] / p.samples * (p.k.dims[1] / p.kv_heads));
  const double element = static_cast<double>(DTypeBytes(p.dtype)), wide = static_cast<double>(DTypeBytes(p.kv_gradient_type()));
  const AttentionForm form = AttentionFormOf(call);
  const bool dq = p.gradient && Wants(call, 0), dk = p.gradient && Wants(call, form.source(1)),
             dv = p.gradient && Wants(call, form.source(2));
  std::vector<KernelWork> work;
  // Between a tensor and its packed copies of all parts, whose elements have `size` bytes.
  const auto copies = [&](const DnnTensor& tensor, double size) {
    work.push_back({parts, 0, Elements(tensor) * element + parts * Elements(p.part_of(tensor)) * size});
  };
  const auto zeros = [&](double times, double bytes) { work.push_back({times, 0, bytes}); };
  if (p.gradient && p.adds && p.kv_gradients_apart()) {
    for (const DnnTensor* tensor : {&p.k, &p.v}) zeros(parts, parts * Elements(p.part_of(*tensor)) * wide);
  } else if (p.gradient && p.adds) {
    // Those of a packed operand with its other parts, at once.
    const bool apart = form.packing == AttentionForm::Packing::kNone;
    const double q = form.packing == AttentionForm::Packing::kAll ? Elements(p.q) : 0;
    if (!apart && dk) zeros(1, (q + Elements(p.k) + Elements(p.v)) * element);
    if (apart && dk) zeros(1, Elements(p.k) * element);
    if (apart && dv) zeros(1, Elements(p.v) * element);
  }
  if (p.packed) {
    for (const DnnTensor* tensor : {&p.q, &p.k, &p.v}) copies(*tensor, element);
    if (p.gradient) copies(p.o, element);
  }
  for (const QueryBlock& block : p.blocks) {
    // A kernel between the products reads float32 scores and writes weights, and the same for their gradients.
    const double scores = parts * static_cast<double>(p.matrices() * block.queries * block.keys), row_bytes = scores * (4 + element);
    work.push_back(WorkOfProduct(p.Scores(block), parts));
    if (p.gradient) work.push_back(WorkOfProduct(p.WeightGradient(block), parts));
    work.push_back({parts, scores, p.gradient ? 2 * row_bytes : row_bytes});
    if (!p.gradient) work.push_back(WorkOfProduct(p.Result(block), parts));
    if (dq) work.push_back(WorkOfProduct(p.QGradient(block), parts));
    if (dk) work.push_back(WorkOfProduct(p.KGradient(block), parts));
    if (dv) work.push_back(WorkOfProduct(p.VGradient(block), parts));
  }
  if (p.packed && !p.gradient) copies(p.o, element);
  if (p.packed && dq) copies(p.q, element);
  if (p.kv_gradients_apart() && dk) copies(p.k, wide);
  if (p.kv_gradients_apart() && dv) copies(p.v, wide);
  return work;
}

// Each of cuDNN's graphs as one launch per part. The gradient stores the gradients of all scores. If it is not given what the forward pass
// computed, it repeats that pass, which has two products, the gradient five.
std::vector<KernelWork> WorkOfDnn(const KernelCall& call, const DnnAttention& a, const KernelWork& least) {
  std::vector<KernelWork> work;
  if (a.has_mask()) {
    const OperandType& mask = call.inputs[3];
    work.push_back({1, 0, static_cast<double>(mask.bytes() + mask.shape.elements() * DTypeBytes(a.dtype))});
  }
  if (!call.op.ends_with("Grad")) {
    work.push_back(least);
    return work;
  }
  const DnnAttention part = *DnnGradientPart(a);
  const double parts = static_cast<double>(a.q.dims[0] / part.q.dims[0] * (a.k.dims[1] / part.k.dims[1]));
  KernelWork gradient{parts, least.flops, least.bytes + 2 * parts * static_cast<double>(part.score_gradient_bytes())};
  if (!a.kept) {
    const double element = static_cast<double>(DTypeBytes(a.dtype)), o = Elements(a.o) * element;
    work.push_back({parts, 0.4 * least.flops, (Elements(a.q) + Elements(a.k) + Elements(a.v)) * element + o});
    gradient.bytes += o;
  }
  work.push_back(gradient);
  return work;
}

// The product, a pass over its result and GELU's operand, and the sums of the runs.
std::vector<KernelWork> WorkOfGeluGrad(const KernelCall& call) {
  const BlasProduct product = *BlasProductOf(call);
  BlasProduct plain = product;
  plain.epilogue = BlasProduct::Epilogue::kNone;
  std::vector<KernelWork> work{WorkOfProduct(product, 1)};
  work[0].launches = static_cast<double>(AlignedParts(plain).size());
  work.push_back({1, static_cast<double>(call.outputs[0].shape.elements()), 3 * static_cast<double>(call.outputs[0].bytes())});
  if (product.sums) {
    const double partials = static_cast<double>(cuda::ColumnRuns{product.m, product.n}.partials()) * 4;
    work[1].bytes += partials;
    work.push_back({1, 0, partials + static_cast<double>(call.outputs[1].bytes())});
  }
  return work;
}

// The parts of a divided product, the padding of its results, and the sums of an operand if these are a pass of their own.
std::vector<KernelWork> WorkOfBlas(const KernelCall& call, const KernelWork& least) {
  BlasProduct product = *BlasProductOf(call);
  const bool sums = product.epilogue == BlasProduct::Epilogue::kSumsOfA || product.epilogue == BlasProduct::Epilogue::kSumsOfB;
  const double padded = product.d_row == 0 ? 0 : product.epilogue == BlasProduct::Epilogue::kGelu ? 2 : 1;
  if (sums) product.epilogue = BlasProduct::Epilogue::kNone;
  const size_t parts = AlignedParts(product).size();
  std::vector<KernelWork> work{{static_cast<double>(parts) + padded, least.flops, least.bytes}};
  if (!sums || parts == 1) return work;
  const OperandType& summed = call.inputs[call.attributes.Int("summed", 0) == 0 ? 0 : 1];
  work.push_back({1, static_cast<double>(summed.shape.elements()), static_cast<double>(summed.bytes() + call.outputs[1].bytes())});
  return work;
}

// The time steps run one after another. Each is a product and the cells, and both twice if the candidate of a GRU needs its reset gate. A
// gradient that recomputes the forward pass has as many again.
KernelWork WorkOfSteps(const KernelCall& call, const KernelWork& least) {
  const RecurrentExtents n(call);
  const int64_t passes = n.recomputes ? 2 : 1, each = n.resets() ? 4 : 2;
  return {1 + static_cast<double>(passes * each * n.steps), least.flops, least.bytes};
}

// The sums of the parts, and the sums of these.
std::vector<KernelWork> WorkOfWeightGradient(const KernelCall& call, const KernelWork& least) {
  const WeightGradientParts p = WeightGradientPartsOf(call);
  if (p.parts == 1) return {least};
  const OperandType& result = call.outputs[0];
  const double sums = static_cast<double>(p.parts * p.weights() * std::max<int64_t>(DTypeBytes(result.dtype), 4));
  const double written = static_cast<double>(result.bytes());
  return {{1, least.flops, least.bytes - written + sums}, {1, 0, sums + written}};
}

}  // namespace

std::vector<KernelWork> CudaWorkOf(const KernelRow& row, const KernelCall& call, const KernelWork& least) {
  const auto is_in = [&](std::span<const KernelRow> rows) {
    return std::any_of(rows.begin(), rows.end(), [&](const KernelRow& each) { return &each == &row; });
  };
  if (is_in(CudaAttentionBlasRows())) {
    if (const auto products = AttentionProductsOf(call)) return WorkOfProducts(call, *products);
  }
  if (is_in(CudaDnnAttentionRows())) {
    if (const auto attention = DnnAttentionOf(call)) return WorkOfDnn(call, *attention, least);
  }
  if (row.op == "ConvGradWeight" && !is_in(CudaDnnConvRows())) return WorkOfWeightGradient(call, least);
  if (is_in(CudaBatchNormRows())) return WorkOfBatchNorm(call);
  if (row.op == "GemmGeluGrad") return WorkOfGeluGrad(call);
  if (is_in(CudaBlasRows())) return WorkOfBlas(call, least);
  if (is_in(CudaRecurrentBlasRows()) || is_in(CudaRecurrentRows())) return {WorkOfSteps(call, least)};
  return {least};
}

}  // namespace gradloom
