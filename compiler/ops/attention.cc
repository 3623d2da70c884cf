// Attention. Its gradient is an operator of ours that takes the forward operator's inputs and the gradients of Y, present_key and
// present_value. Attribute "wanted" lists the inputs whose gradients it computes.
//
//   gradloom.AttentionGrad(Attention's seven inputs, dY, dpresent_key, dpresent_value, Y and log_sums, or neither) {Attention's, wanted}
//       -> the gradients of the wanted inputs
//   gradloom.AttentionTraining(Attention's seven inputs) {Attention's} -> Attention's four outputs, log_sums
//
// log_sums [batch, heads of Q, queries] has the log-sum-exp of each query's scores with scale, cap and mask, in the type of the
// computation: float32 for 16-bit operands. If the query sees no key, it is plus infinity: then exp(score - log_sum), by which gradients
// compute a probability, is 0 for every score. A gradient without Y and log_sums repeats the forward pass as far as it needs it;
// keep_log_sums hands them over.
//
//   gradloom.AttentionDropout(Attention's seven inputs, seed int64[], batch int64[], first int64[]?) {Attention's, ratio, origin, samples}
//       -> Y
//   gradloom.AttentionDropoutGrad(Attention's seven inputs, dY, -, -, seed, batch, first?) {as before, wanted}
//
// In these two, Dropout (dropout.cc) is applied to every probability, as an element of the tensor [batch, heads, queries, keys], and no
// probabilities are kept.
//
// All of ours also have packed forms, in which one operand has Q, K and V, or K and V (runtime/base/attention_form.h). The packed form of
// ONNX's Attention is gradloom.Attention. pack_attention makes these forms, and keep_log_sums the training form, of each device's part of a
// batch, so they have no rules to divide it.
#include <string>

#include "compiler/ops/families.h"
#include "compiler/ops/gradients.h"
#include "compiler/ops/own_types.h"
#include "compiler/ops/sharding.h"
#include "runtime/base/attention_form.h"

namespace gradloom {
namespace {

using enum attention::Input;
using enum attention::Output;

void Refuse(const Node& node, ErrorCode code, const std::string& message) { throw Error(code, message, Describe(node)); }

int64_t HeadsOf(const Node& node, const ValueType& type, const char* attribute) {
  if (type.shape.rank() == 4) return type.shape[1];
  const int64_t heads = node.attributes.Int(attribute, 0);
  if (heads <= 0 || type.shape[2] % heads != 0) {
    Refuse(node, ErrorCode::kAttr,
           std::string(attribute) + " must divide the last extent of " + type.ToString() + ", got " + std::to_string(heads));
  }
  return heads;
}

struct Sizes {
  bool flat;
  int64_t batch, q_heads, kv_heads, q_length, kv_length, size, v_size, past;
  Shape y;
};

bool IsPacked(const Node& node) { return AttentionForm::PackingOf(node.attributes) != AttentionForm::Packing::kNone; }

// Returns the packed form of a node, and checks it.
AttentionForm PackedFormOf(const Graph& graph, const Node& node) {
  const bool keys = AttentionForm::PackingOf(node.attributes) == AttentionForm::Packing::kKeysAndValues;
  if (node.domain != kGradloomDomain) Refuse(node, ErrorCode::kAttr, "attribute 'packed' is not an attribute of ONNX's Attention");
  if (HasInput(node, kK) != keys || HasInput(node, kV)) {
    Refuse(node, ErrorCode::kArity,
           keys ? "K must be present and V absent, because K has its elements" : "K and V must be absent, because Q has their elements");
  }
  const ValueType q = InputType(graph, node, kQ);
  int64_t elements = 0;
  if (keys) {
    const ValueType k = InputType(graph, node, kK);
    if (k.dtype != q.dtype) Refuse(node, ErrorCode::kUnsupported, "Q, K and V must have the same type");
    elements = k.shape.elements();
  }
  std::string why;
  const auto form = AttentionForm::Packed(node.attributes, q.shape.elements(), elements, &why);
  if (!form) Refuse(node, ErrorCode::kAttr, why);
  return *form;
}

Sizes PackedSizes(const Graph& graph, const Node& node) {
  const AttentionForm form = PackedFormOf(graph, node);
  return {.flat = false,
          .batch = form.batch,
          .q_heads = form.q.heads,
          .kv_heads = form.k.heads,
          .q_length = form.q.length,
          .kv_length = form.k.length,
          .size = form.q.size,
          .v_size = form.v.size,
          .past = 0,
          .y = form.y_shape()};
}

// Returns the sizes of a call whose Q, K and V are operands of their own.
Sizes SeparateSizes(const Graph& graph, const Node& node) {
  const ValueType q = InputType(graph, node, kQ), k = InputType(graph, node, kK), v = InputType(graph, node, kV);
  const int rank = q.shape.rank();
  if (rank != 3 && rank != 4) Refuse(node, ErrorCode::kShape, "Q must have rank 3 or 4, got " + q.ToString());
  ExpectRank(graph, node, kK, rank);
  ExpectRank(graph, node, kV, rank);
  if (k.dtype != q.dtype || v.dtype != q.dtype) Refuse(node, ErrorCode::kUnsupported, "Q, K and V must have the same type");
  Sizes s{};
  s.flat = rank == 3;
  s.batch = q.shape[0];
  s.q_heads = HeadsOf(node, q, "q_num_heads");
  s.kv_heads = HeadsOf(node, k, "kv_num_heads");
  s.q_length = q.shape[s.flat ? 1 : 2];
  s.kv_length = k.shape[s.flat ? 1 : 2];
  s.size = s.flat ? q.shape[2] / s.q_heads : q.shape[3];
  s.v_size = s.flat ? v.shape[2] / s.kv_heads : v.shape[3];
  if (s.kv_heads == 0 || s.q_heads % s.kv_heads != 0) {
    Refuse(node, ErrorCode::kShape,
           "the number of heads of Q, " + std::to_string(s.q_heads) + ", must be a multiple of that of K, " + std::to_string(s.kv_heads));
  }
  const auto shape = [&](int64_t heads, int64_t length, int64_t size) {
    return s.flat ? Shape{s.batch, length, heads * size} : Shape{s.batch, heads, length, size};
  };
  ExpectInput(graph, node, kK, {q.dtype, shape(s.kv_heads, s.kv_length, s.size)});
  ExpectInput(graph, node, kV, {q.dtype, shape(s.kv_heads, s.kv_length, s.v_size)});
  s.y = s.flat ? Shape{s.batch, s.q_length, s.q_heads * s.v_size} : Shape{s.batch, s.q_heads, s.q_length, s.v_size};
  return s;
}

// Returns the sizes of a call, and checks everything that the kernels rely on.
Sizes SizesOf(const Graph& graph, const Node& node) {
  ExpectFloating(graph, node, kQ);
  const ValueType q = InputType(graph, node, kQ);
  Sizes s = IsPacked(node) ? PackedSizes(graph, node) : SeparateSizes(graph, node);
  if (HasInput(node, kPastKey) || HasInput(node, kPastValue)) {
    ExpectRank(graph, node, kPastKey, 4);
    s.past = InputType(graph, node, kPastKey).shape[2];
    ExpectInput(graph, node, kPastKey, {q.dtype, {s.batch, s.kv_heads, s.past, s.size}});
    ExpectInput(graph, node, kPastValue, {q.dtype, {s.batch, s.kv_heads, s.past, s.v_size}});
    if (HasInput(node, kLengths)) Refuse(node, ErrorCode::kArity, "past_key and nonpad_kv_seqlen must not both be given");
  }
  if (HasInput(node, kLengths)) ExpectInput(graph, node, kLengths, {DType::kInt64, {s.batch}});
  if (HasInput(node, kMask)) {
    const ValueType mask = InputType(graph, node, kMask);
    if (mask.dtype != q.dtype && mask.dtype != DType::kBool)
      Refuse(node, ErrorCode::kType, "attn_mask must be bool or the type of Q, got " + mask.ToString());
    const int last = mask.shape.rank() - 1;
    const Shape all{s.batch, s.q_heads, s.q_length, last >= 0 ? mask.shape[last] : 1};
    if (last < 0 || last > 3 || mask.shape[last] > s.past + s.kv_length || Broadcast(mask.shape, all) != all) {
      Refuse(node, ErrorCode::kShape,
             "attn_mask is " + mask.ToString() + ", which does not broadcast to scores of shape " +
                 Shape{s.batch, s.q_heads, s.q_length, s.past + s.kv_length}.ToString());
    }
  }
  const int64_t mode = node.attributes.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) Refuse(node, ErrorCode::kAttr, "qk_matmul_output_mode must be from 0 to 3, got " + std::to_string(mode));
  return s;
}

std::vector<ValueType> AllTypes(const Graph& graph, const Node& node) {
  const Sizes s = SizesOf(graph, node);
  const DType dtype = InputType(graph, node, kQ).dtype;
  const int64_t total = s.past + s.kv_length;
  return {{dtype, s.y},
          {dtype, {s.batch, s.kv_heads, total, s.size}},
          {dtype, {s.batch, s.kv_heads, total, s.v_size}},
          {dtype, {s.batch, s.q_heads, s.q_length, total}}};
}

std::vector<ValueType> AttentionTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, kInputs, kScores + 1);
  return OutputTypes(node, AllTypes(graph, node));
}

std::vector<ValueType> PackedAttentionTypes(const Graph& graph, const Node& node) {
  if (!IsPacked(node)) Refuse(node, ErrorCode::kAttr, "attribute 'packed' is missing");
  return AttentionTypes(graph, node);
}

// The type of log_sums.
ValueType LogSumsType(const Graph& graph, const Node& node) {
  const Sizes s = SizesOf(graph, node);
  const DType dtype = InputType(graph, node, kQ).dtype;
  return {DTypeBytes(dtype) == 2 ? DType::kFloat32 : dtype, {s.batch, s.q_heads, s.q_length}};
}

std::vector<ValueType> AttentionTrainingTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, 3, kInputs, kLogSums + 1);
  std::vector<ValueType> types = AllTypes(graph, node);
  types.push_back(LogSumsType(graph, node));
  return OutputTypes(node, types);
}

std::vector<ValueType> AttentionDropoutTypes(const Graph& graph, const Node& node) {
  ExpectArity(node, kSeed + 2, kSeed + 3, 1);
  ExpectSeeds(graph, node, kSeed);
  ExpectRatio(node);
  return OutputTypes(node, AllTypes(graph, node));
}

// Returns the types of the wanted inputs of a node with `least` to `most` inputs.
std::vector<ValueType> GradientTypes(const Graph& graph, const Node& node, int least, int most) {
  const std::vector<int64_t> wanted = node.attributes.Ints("wanted");
  ExpectArity(node, least, most, static_cast<int>(wanted.size()));
  const std::vector<ValueType> outputs = AllTypes(graph, node);
  for (int i = 0; i < 3; ++i) {
    if (HasInput(node, kGradY + i)) ExpectInput(graph, node, kGradY + i, outputs[static_cast<size_t>(i)]);
  }
  std::vector<ValueType> types;
  for (int64_t i : wanted) {
    if (i < 0 || i >= kLengths || (IsPacked(node) && i <= kV && !HasInput(node, static_cast<int>(i))))
      Refuse(node, ErrorCode::kAttr, "attribute 'wanted' has the invalid input index " + std::to_string(i));
    types.push_back(InputType(graph, node, static_cast<int>(i)));
    if (!IsFloating(types.back().dtype)) Refuse(node, ErrorCode::kAttr, "attribute 'wanted' must only list floating-point inputs");
  }
  return types;
}

std::vector<ValueType> AttentionGradTypes(const Graph& graph, const Node& node) {
  std::vector<ValueType> types = GradientTypes(graph, node, kKeptY, kKeptLogSums + 1);
  if (static_cast<int>(node.inputs.size()) > kKeptY) {
    ExpectInput(graph, node, kKeptY, AllTypes(graph, node)[kY]);
    ExpectInput(graph, node, kKeptLogSums, LogSumsType(graph, node));
  }
  return types;
}

std::vector<ValueType> AttentionDropoutGradTypes(const Graph& graph, const Node& node) {
  std::vector<ValueType> types = GradientTypes(graph, node, kGradSeed + 2, kGradSeed + 3);
  ExpectSeeds(graph, node, kGradSeed);
  ExpectRatio(node);
  return types;
}

void AttentionGradient(GradientContext& context) {
  if (context.grad(kScores) != kNoValue) {
    throw Error(ErrorCode::kUnsupported, "output qk_matmul_output of Attention has no gradient");
  }
  const bool drops = context.node().domain == kGradloomDomain;
  std::vector<int64_t> wanted;
  for (int i = 0; i < kLengths; ++i) {
    if (context.needs(i)) wanted.push_back(i);
  }
  if (wanted.empty()) return;
  // The batch axis is derived from the first result, which must not be a sum over samples.
  if (drops && wanted.front() == kMask) wanted.insert(wanted.begin(), kQ);
  std::vector<ValueId> inputs;
  for (int i = 0; i < kInputs; ++i) inputs.push_back(context.in(i));
  for (int i : {kY, kPresentKey, kPresentValue}) inputs.push_back(context.grad(i));
  for (int i = kSeed; drops && i < context.num_inputs(); ++i) inputs.push_back(context.in(i));
  Attributes attributes = context.attributes();
  attributes.set("wanted", wanted);
  const auto gradients = context.b.Ops(drops ? "AttentionDropoutGrad" : "AttentionGrad", kGradloomDomain, std::move(inputs),
                                       static_cast<int>(wanted.size()), std::move(attributes));
  for (size_t i = 0; i < wanted.size(); ++i) context.set(static_cast<int>(wanted[i]), gradients[i]);
}

// Two products forward; five backward, including the recomputation of the scores.
template <int kProducts>
Cost AttentionCost(const Graph& graph, const Node& node) {
  const Sizes s = SizesOf(graph, node);
  return CostWithFlops(graph, node,
                       kProducts * static_cast<double>(s.batch * s.q_heads * s.q_length) * static_cast<double>(s.past + s.kv_length) *
                           static_cast<double>(s.size + s.v_size));
}

// Whether samples are along the axis of heads: in a file for one sample and one head, either axis may be the batch.
bool HeadsAreSamples(const ShardQuery& query) {
  const auto along_heads = [&](int i) { return query.shape(i).rank() == 4 && query.given(i).split() && query.given(i).axis == 1; };
  return along_heads(kQ) && along_heads(kK) && along_heads(kV) && query.shape(kQ)[1] == query.shape(kK)[1];
}

// Returns the letters (Op::samples) of q, k, v and the mask if heads are samples. The axes of the mask are the last ones of the scores.
std::string HeadLetters(const ShardQuery& query) {
  const int rank = query.has(kMask) ? query.shape(kMask).rank() : 0;
  return std::string("111") + (rank == 4 ? '1' : rank == 3 ? '0' : '.') + "...";
}

void ShardAttention(ShardQuery& query) { ShardSamples(query, HeadsAreSamples(query) ? HeadLetters(query) + ">1" : "000?000>0"); }

void ShardAttentionGrad(ShardQuery& query) {
  if (HeadsAreSamples(query)) return ShardWantedGradients(query, HeadLetters(query), "1..");
  ShardWantedGradients(query, "000?000", "000");
}

// Dropout is drawn by samples along the first axis. Seeds and the first sample follow the gradients.
void ShardAttentionDropoutGrad(ShardQuery& query) { ShardWantedGradients(query, "000?000", "000..."); }

Shape ScoresOf(const Graph& graph, const Node& node) {
  const Sizes s = SizesOf(graph, node);
  return {s.batch, s.q_heads, s.q_length, s.past + s.kv_length};
}

constexpr Op kOps[] = {
    {.name = "Attention",
     .since_version = 23,
     .traits = kProduct,
     .gradient = AttentionGradient,
     .infer = AttentionTypes,
     .cost = AttentionCost<2>,
     .shard = ShardAttention},
    {.name = "Attention", .domain = kGradloomDomain, .traits = kProduct, .infer = PackedAttentionTypes, .cost = AttentionCost<2>},
    {.name = "AttentionTraining", .domain = kGradloomDomain, .traits = kProduct, .infer = AttentionTrainingTypes, .cost = AttentionCost<2>},
    {.name = "AttentionGrad",
     .domain = kGradloomDomain,
     .traits = kProduct,
     .infer = AttentionGradTypes,
     .cost = AttentionCost<5>,
     .shard = ShardAttentionGrad},
    {.name = "AttentionDropout",
     .domain = kGradloomDomain,
     .traits = kProduct | kRandom,
     .gradient = AttentionGradient,
     .infer = AttentionDropoutTypes,
     .drawn = ScoresOf,
     .cost = AttentionCost<2>,
     .samples = "000?000...>0"},
    {.name = "AttentionDropoutGrad",
     .domain = kGradloomDomain,
     .traits = kProduct | kRandom,
     .infer = AttentionDropoutGradTypes,
     .drawn = ScoresOf,
     .cost = AttentionCost<5>,
     .shard = ShardAttentionDropoutGrad},
};

}  // namespace

std::span<const Op> AttentionOps() { return kOps; }

}  // namespace gradloom
