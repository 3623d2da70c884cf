// Attention, also with dropout, and its gradient as matrix products by cuBLASLt, in float32, and in 16-bit types where cuDNN does not
// serve. The remaining calls are left to attention.cc.
#include "kernels/cuda/rows/attention_products.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/catalog/operands.h"
#include "kernels/cuda/rows/rows.h"
#include "runtime/base/checked.h"

namespace gradloom {
namespace {

using namespace cuda_rows;  // NOLINT: for the functions that reject calls
using enum attention::Input;

// The memory for the scores of one part and the values derived from them. Enough that a product has 256 tiles of 128 rows, which fills a
// large GPU, but no more, so that those of short sequences stay in its L2 cache of 50 MB.
constexpr int64_t kMaxScoreBytes = int64_t{256} << 20, kScoreBytesOfAKey = int64_t{256} << 10;

// Queries that do not see all keys are processed in blocks of at least kBlockQueries, and in at most kMaxBlocks blocks: with 16 blocks, a
// causal product computes 17/32 of all scores, where 1/2 is the minimum.
constexpr int64_t kBlockQueries = 256, kMaxBlocks = 16;

bool IsGradient(const KernelCall& call) { return call.op.ends_with("Grad"); }

std::string NotServed(const KernelCall& call) {
  if (call.inputs[kQ].dtype == DType::kFloat64) return "float64";
  for (size_t i : {kPastKey, kPastValue, kLengths}) {
    if (HasInput(call, i)) return "input " + std::to_string(i);
  }
  if (IsGradient(call)) {
    if (HasLogSums(call)) return "log-sum-exps of the forward pass, which it has no use for";
    if (!HasInput(call, kGradY) || HasInput(call, kGradPresentKey) || HasInput(call, kGradPresentValue))
      return "gradients of other outputs than Y";
    for (int64_t i : call.attributes.Ints("wanted")) {
      if (i < 0 || i > 2) return "a gradient of input " + std::to_string(i);
    }
    return "";
  }
  for (size_t k = 1; k < call.outputs.size(); ++k) {
    if (call.outputs[k].present()) return "output " + std::to_string(k);
  }
  return "";
}

// The keys that a query sees by its position.
struct KeyVisibility {
  bool causal;
  int64_t left, right;  // sizes of the window; -1: unlimited
  int64_t keys;         // number of keys, limited by the extent of the mask

  bool all() const { return !causal && left < 0 && right < 0; }
  QueryBlock Of(int64_t first, int64_t queries) const {
    const int64_t last = first + queries - 1, begin = left < 0 ? 0 : std::max<int64_t>(first - left, 0);
    int64_t end = keys;
    if (causal) end = std::min(end, last + 1);
    if (right >= 0) end = std::min(end, last + right + 1);
    return {first, queries, begin, end - begin};
  }
};

KeyVisibility VisibilityOf(const KernelCall& call, int64_t keys) {
  const Attributes& a = call.attributes;
  if (HasInput(call, kMask)) {
    const Shape& mask = call.inputs[kMask].shape;
    keys = std::min(keys, mask[mask.rank() - 1]);
  }
  return {a.Int("is_causal", 0) != 0, AttentionForm::WindowOf(a, "left"), AttentionForm::WindowOf(a, "right"), keys};
}

// The memory per score, including the values derived from it.
int64_t ScoreBytes(const AttentionProducts& p) { return (p.dtype == DType::kFloat32 ? 4 : 6) * (p.gradient ? 2 : 1); }

// The number of queries in a block.
int64_t BlockQueries(const AttentionProducts& p, const KeyVisibility& visibility) {
  const int64_t length = p.q.dims[2];
  int64_t queries = length;
  if (!visibility.all()) queries = std::max(kBlockQueries, AlignUp(CeilDiv(length, kMaxBlocks), 64));
  const int64_t max_queries = kMaxScoreBytes / ScoreBytes(p) / AlignUp(p.k.dims[2], 8);
  if (queries > max_queries) queries = max_queries > 64 ? max_queries / 64 * 64 : std::max<int64_t>(max_queries, 1);
  return std::min(queries, length);
}

// Chooses as many samples per part, or heads of a single sample, as fit such that all parts are equal.
void Divide(AttentionProducts& p) {
  const int64_t batch = p.q.dims[0], kv_heads = p.k.dims[1];
  const auto fits = [&](int64_t samples, int64_t heads) {
    return samples * heads * p.group() * p.matrix * ScoreBytes(p) <= std::min(kMaxScoreBytes, kScoreBytesOfAKey * p.row);
  };
  p.samples = batch;
  p.kv_heads = kv_heads;
  while (p.samples > 1 && (batch % p.samples != 0 || !fits(p.samples, kv_heads))) --p.samples;
  while (p.samples == 1 && p.kv_heads > 1 && (kv_heads % p.kv_heads != 0 || !fits(1, p.kv_heads))) --p.kv_heads;
}

// Whether the matrices of a part have a uniform stride in all operands.
bool IsRegular(const AttentionProducts& p) {
  if (p.group() > 1) return false;
  const std::array tensors{&p.q, &p.k, &p.v, &p.o};
  return p.samples == 1 || std::all_of(tensors.begin(), tensors.end(),
                                       [](const DnnTensor* tensor) { return tensor->strides[0] == tensor->dims[1] * tensor->strides[1]; });
}

// A range of positions of a tensor, as an operand of a product.
struct Matrices {
  DnnTensor tensor;
  DType dtype;
  int64_t first = 0;  // position
};

BlasProduct ProductOf(const AttentionProducts& p, const Matrices& a, const Matrices& b, const Matrices& d) {
  BlasProduct product{.dtype = p.dtype, .result = d.dtype, .batch = p.matrices()};
  product.allow_tf32 = p.allow_tf32;
  product.a_row = a.tensor.strides[2];
  product.b_row = b.tensor.strides[2];
  product.d_row = d.tensor.strides[2];
  product.a_step = a.tensor.strides[1];
  product.b_step = b.tensor.strides[1];
  product.d_step = d.tensor.strides[1];
  int64_t bytes = kAlignmentBytes;
  for (const Matrices* each : {&a, &b, &d}) {
    const std::vector<int64_t>& strides = each->tensor.strides;
    bytes |= (each->tensor.first | strides[0] | strides[1] | each->first * strides[2]) * DTypeBytes(each->dtype);
  }
  product.alignment = bytes & -bytes;
  return product;
}

std::string Rejects(const KernelCall& call) {
  if (std::string why = FirstOf({Layouts(call), NotFloating(call), RejectsPackedOperands(call)}); !why.empty()) return why;
  std::string why;
  AttentionProductsOf(call, &why);
  return why;
}

int64_t Scratch(const KernelCall& call) { return AttentionScratchLayout(*AttentionProductsOf(call)).bytes; }

constexpr KernelRow Row(std::string_view name, std::string_view op, std::string_view domain) {
  return {.name = name, .op = op, .domain = domain, .device = DeviceKind::kCuda, .rejects = Rejects, .scratch_bytes = Scratch};
}

constexpr KernelRow kRows[] = {
    Row("cublas.Attention", "Attention", ""),
    Row("cublas.gradloom.Attention", "Attention", "gradloom"),
    Row("cublas.gradloom.AttentionGrad", "AttentionGrad", "gradloom"),
    Row("cublas.gradloom.AttentionDropout", "AttentionDropout", "gradloom"),
    Row("cublas.gradloom.AttentionDropoutGrad", "AttentionDropoutGrad", "gradloom"),
};

}  // namespace

DnnTensor AttentionProducts::scores() const { return {{samples, heads(), matrix / row, row}, {heads() * matrix, matrix, row, 1}}; }

DnnTensor AttentionProducts::part_of(const DnnTensor& tensor) const {
  const int64_t length = tensor.dims[2], size = tensor.dims[3];
  return {{samples, heads(), length, size}, {heads() * length * size, length * size, size, 1}};
}

BlasProduct AttentionProducts::Scores(const QueryBlock& block) const {
  BlasProduct product =
      ProductOf(*this, {operand(q), dtype, block.first_query}, {operand(k), dtype, block.first_key}, {scores(), DType::kFloat32});
  product.m = block.queries;
  product.n = block.keys;
  product.k = q.dims[3];
  product.transpose_b = true;
  return product;
}

BlasProduct AttentionProducts::WeightGradient(const QueryBlock& block) const {
  BlasProduct product =
      ProductOf(*this, {operand(o), dtype, block.first_query}, {operand(v), dtype, block.first_key}, {scores(), DType::kFloat32});
  product.m = block.queries;
  product.n = block.keys;
  product.k = v.dims[3];
  product.transpose_b = true;
  return product;
}

BlasProduct AttentionProducts::Result(const QueryBlock& block) const {
  BlasProduct product = ProductOf(*this, {scores(), dtype}, {operand(v), dtype, block.first_key}, {operand(o), dtype, block.first_query});
  product.m = block.queries;
  product.n = v.dims[3];
  product.k = block.keys;
  return product;
}

BlasProduct AttentionProducts::QGradient(const QueryBlock& block) const {
  BlasProduct product = ProductOf(*this, {scores(), dtype}, {operand(k), dtype, block.first_key}, {operand(q), dtype, block.first_query});
  product.m = block.queries;
  product.n = q.dims[3];
  product.k = block.keys;
  product.alpha = scale;
  return product;
}

BlasProduct AttentionProducts::KvGradient(const QueryBlock& block, const DnnTensor& of, const DnnTensor& with) const {
  BlasProduct product = ProductOf(*this, {scores(), dtype}, {operand(with), dtype, block.first_query},
                                  {kv_gradients_apart() ? part_of(of) : of, kv_gradient_type(), block.first_key});
  product.m = block.keys;
  product.n = of.dims[3];
  product.k = block.queries;
  product.transpose_a = true;
  if (adds) {
    product.addend = BlasProduct::Addend::kMatrix;
    product.beta = 1;
  }
  return product;
}

BlasProduct AttentionProducts::KGradient(const QueryBlock& block) const {
  BlasProduct product = KvGradient(block, k, q);
  product.alpha = scale;
  return product;
}

BlasProduct AttentionProducts::VGradient(const QueryBlock& block) const { return KvGradient(block, v, o); }

std::optional<AttentionProducts> AttentionProductsOf(const KernelCall& call, std::string* why) {
  const auto no = [&](std::string reason) {
    if (why != nullptr) *why = std::move(reason);
    return std::nullopt;
  };
  if (std::string reason = NotServed(call); !reason.empty()) return no(std::move(reason));
  const Attributes& a = call.attributes;
  const AttentionForm form = AttentionFormOf(call);
  AttentionProducts p{.dtype = call.inputs[kQ].dtype,
                      .allow_tf32 = a.Int("allow_tf32", 0) != 0,
                      .gradient = IsGradient(call),
                      .q = AttentionTensor(form.q, form.batch),
                      .k = AttentionTensor(form.k, form.batch),
                      .v = AttentionTensor(form.v, form.batch),
                      .o = AttentionTensor(form.y, form.batch)};
  if (p.q.elements() == 0 || p.k.elements() == 0 || p.v.elements() == 0) return no("nothing to compute");
  p.scale = a.Float("scale", 1 / std::sqrt(static_cast<double>(p.q.dims[3])));
  const int64_t length = p.q.dims[2];
  const KeyVisibility visibility = VisibilityOf(call, p.k.dims[2]);
  const int64_t queries = BlockQueries(p, visibility);
  bool all_keys = true;
  for (int64_t first = 0; first < length; first += queries) {
    const QueryBlock block = visibility.Of(first, std::min(queries, length - first));
    if (block.keys < 1) return no("queries that see no key");
    p.row = std::max(p.row, AlignUp(block.keys, 8));
    all_keys = all_keys && block.keys == p.k.dims[2];
    p.blocks.push_back(block);
  }
  p.adds = p.blocks.size() > 1 || !all_keys;
  p.matrix = queries * p.row;
  Divide(p);
  p.packed = !IsRegular(p);
  return p;
}

AttentionScratchLayout::AttentionScratchLayout(const AttentionProducts& p) {
  const auto take = [&](bool needed, const DnnTensor& tensor, DType dtype) {
    const int64_t at = bytes;
    if (needed) bytes = AlignUp(bytes + tensor.elements() * DTypeBytes(dtype), 256);
    return at;
  };
  const bool half = p.dtype != DType::kFloat32, apart = p.gradient && p.kv_gradients_apart();
  const DnnTensor q_part = p.part_of(p.q), k_part = p.part_of(p.k), v_part = p.part_of(p.v), all = p.scores();
  scores = take(true, all, DType::kFloat32);
  weights = half ? take(true, all, p.dtype) : scores;
  d_weights = take(p.gradient, all, DType::kFloat32);
  d_scores = half ? take(p.gradient, all, p.dtype) : d_weights;
  q = take(p.packed, q_part, p.dtype);
  k = take(p.packed, k_part, p.dtype);
  v = take(p.packed, v_part, p.dtype);
  o = take(p.packed, p.part_of(p.o), p.dtype);
  dq = take(p.packed && p.gradient, q_part, p.dtype);
  dk = take(apart, k_part, p.kv_gradient_type());
  dv = take(apart, v_part, p.kv_gradient_type());
  workspace = bytes;
  int64_t workspace_bytes = 0;
  const auto has = [&](const BlasProduct& product) { workspace_bytes = std::max(workspace_bytes, BlasScratchBytes(product)); };
  for (const QueryBlock& block : p.blocks) {
    has(p.Scores(block));
    if (!p.gradient) {
      has(p.Result(block));
      continue;
    }
    for (const BlasProduct& product : {p.WeightGradient(block), p.QGradient(block), p.KGradient(block), p.VGradient(block)}) has(product);
  }
  bytes += workspace_bytes;
}

std::span<const KernelRow> CudaAttentionBlasRows() { return kRows; }

}  // namespace gradloom
