// Attention as fused by onnxruntime's optimizers, and the embeddings and rotary positions before it.
#include <cmath>

#include "compiler/onnx/translate/contrib_body.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// The common part of both forms of attention. q: (B, N, S, D), k: (B, N, L, D), v: (B, N, L, Dv).
struct Heads {
  std::string q, k, v;
  int64_t width = 0;        // D
  int64_t value_width = 0;  // Dv
  int64_t length = 0;       // S
  int64_t keys = 0;         // L, including past ones
  int64_t past = 0;         // past keys
};

// Returns (B, L, N * D) as (B, N, L, D).
std::string Parted(ContribBody& body, const std::string& value, int64_t heads, int64_t width) {
  return body.Op("Transpose", {body.Op("Reshape", {value, body.List({0, 0, heads, width})})}, "perm = [0, 2, 1, 3]");
}

int64_t WidthOf(int64_t hidden, int64_t heads) {
  if (heads <= 0 || hidden % heads != 0)
    throw Error(ErrorCode::kAttr, std::to_string(hidden) + " features cannot be divided by num_heads " + std::to_string(heads));
  return hidden / heads;
}

// Returns the past keys or values, (B, N, P, D), followed by the current ones.
std::string ConcatPast(ContribBody& body, const std::string& past, const std::string& now) {
  return body.Op("Concat", {past, now}, "axis = 2");
}

// Returns a bool that broadcasts over heads: true where a query may attend to a key. The mask is one of keys (B, L), of queries and keys
// (B, S, L), (B, 1, M, M) with M at least the length including the past, or the number of keys of each sample (B).
std::string VisibleKeys(ContribBody& body, const std::string& mask, const std::string& sample, const Heads& heads) {
  const std::string keys = body.Length(heads.k, 2);
  const int rank = body.Rank(mask);
  if (rank == 1) {
    if (body.Extent(mask, 0) != body.Extent(sample, 0)) body.Refuse("a mask of start and end positions is not supported");
    const std::string lengths = body.Op("Unsqueeze", {body.Op("Cast", {mask}, "to = 7"), body.List({1, 2, 3})});
    return body.Op("Less", {body.Counted(keys), lengths});
  }
  const std::string seen = body.Op("Cast", {mask}, "to = 9");
  if (rank == 2) return body.Op("Unsqueeze", {seen, body.List({1, 2})});
  if (rank == 3) return body.Op("Unsqueeze", {seen, body.List({1})});
  if (rank != 4) body.Refuse("a mask of rank " + std::to_string(rank) + " is not supported");
  // The rows of the queries come after those of the past.
  const std::string past = body.List({heads.past}), end = body.Op("Add", {body.Length(heads.q, 2), past});
  const std::string ends = body.Op("Concat", {end, keys}, "axis = 0");
  return body.Op("Slice", {seen, body.List({heads.past, 0}), ends, body.List({2, 3})});
}

// Emits the weighted values, (B, S, N * Dv), as `output`.
void Attend(ContribBody& body, const Heads& heads, const std::string& mask, const std::string& sample) {
  const double scale = body.Float("scale");
  const std::string turned = body.Op("Transpose", {heads.k}, "perm = [0, 1, 3, 2]");
  std::string scores = body.Op("MatMul", {heads.q, turned});
  scores = body.Scaled(scores, scale == 0 ? 1 / std::sqrt(static_cast<double>(heads.width)) : scale);
  if (body.Has("attention_bias")) scores = body.Op("Add", {scores, "attention_bias"});
  if (body.Has(mask)) {
    const std::string zero = body.Number(0, scores), hidden = body.Number(body.Float("mask_filter_value", -10000), scores);
    scores = body.Op("Add", {scores, body.Op("Where", {VisibleKeys(body, mask, sample, heads), zero, hidden})});
  }
  if (body.Int("unidirectional") != 0) {
    if (heads.past + heads.length != heads.keys) body.Refuse("unidirectional needs as many keys as past keys and queries together");
    std::string now = body.Op("Unsqueeze", {body.Counted(body.Length(heads.q, 2)), body.List({1})});
    if (heads.past > 0) now = body.Op("Add", {now, body.List({heads.past})});
    const std::string seen = body.Op("LessOrEqual", {body.Counted(body.Length(heads.k, 2)), now});
    scores = body.Op("Where", {seen, scores, body.Number(-3.4e38, scores)});
  }
  const std::string chances = body.Op("Softmax", {scores}, "axis = -1");
  const std::string found = body.Op("Transpose", {body.Op("MatMul", {chances, heads.v})}, "perm = [0, 2, 1, 3]");
  body.Op("Reshape", {found, body.List({0, 0, body.Int("num_heads") * heads.value_width})}, "", "output");
}

// Splits the queries, keys and values of one product, in their order along the last axis.
std::vector<std::string> Thirds(ContribBody& body, const std::string& joined, const std::vector<int64_t>& sizes) {
  const std::vector<std::string> parts = {joined + "_q", joined + "_k", joined + "_v"};
  body.Node(parts, "Split", {joined, body.List(sizes)}, "axis = -1");
  return parts;
}

// Returns the part `place` of P of (B, L, N, P, D) as (B, N, L, D).
std::string Packed(ContribBody& body, const std::string& input, int64_t place) {
  const std::string part = body.Op("Gather", {input, body.Op("Constant", {}, "value_int = " + std::to_string(place))}, "axis = 3");
  return body.Op("Transpose", {part}, "perm = [0, 2, 1, 3]");
}

}  // namespace

void ContribAttention(ContribBody& body) {
  if (body.Has("past_sequence_length")) body.Refuse("a buffer shared by past and present is not supported");
  if (body.Int("do_rotary") != 0) body.Refuse("do_rotary is not supported");
  if (body.Rank("input") != 3 || body.Rank("weights") != 2)
    throw Error(ErrorCode::kShape, "operator 'Attention' expects input (batch, length, features) and weights of rank 2");
  const int64_t count = body.Int("num_heads"), all = body.Extent("weights", 1);
  std::vector<int64_t> sizes = body.Ints("qkv_hidden_sizes");
  if (sizes.empty()) sizes.assign(3, all / 3);
  if (sizes.size() != 3 || sizes[0] + sizes[1] + sizes[2] != all || sizes[0] != sizes[1])
    throw Error(ErrorCode::kShape,
                "operator 'Attention': the " + std::to_string(all) + " columns of weights do not match qkv_hidden_sizes");
  std::string joined = body.Op("MatMul", {"input", "weights"});
  if (body.Has("bias")) joined = body.Op("Add", {joined, "bias"});
  const std::vector<std::string> parts = Thirds(body, joined, sizes);
  Heads heads;
  heads.width = WidthOf(sizes[0], count);
  heads.value_width = WidthOf(sizes[2], count);
  heads.length = heads.keys = body.Extent("input", 1);
  heads.q = Parted(body, parts[0], count, heads.width);
  heads.k = Parted(body, parts[1], count, heads.width);
  heads.v = Parted(body, parts[2], count, heads.value_width);
  if (body.Has("past")) {  // (2, B, N, P, D)
    if (body.Rank("past") != 5) throw Error(ErrorCode::kShape, "operator 'Attention' expects past of rank 5");
    heads.past = body.Extent("past", 3);
    heads.keys += heads.past;
    const auto part = [&](const char* place) {
      return body.Op("Gather", {"past", body.Op("Constant", {}, std::string("value_int = ") + place)}, "axis = 0");
    };
    heads.k = ConcatPast(body, part("0"), heads.k);
    heads.v = ConcatPast(body, part("1"), heads.v);
  }
  if (body.HasOutput("present")) {
    const std::string first = body.List({0});
    body.Op("Concat", {body.Op("Unsqueeze", {heads.k, first}), body.Op("Unsqueeze", {heads.v, first})}, "axis = 0", "present");
  }
  Attend(body, heads, "mask_index", "input");
}

void ContribMultiHeadAttention(ContribBody& body) {
  for (const char* shared : {"past_sequence_length", "cache_indirection"}) {
    if (body.Has(shared)) body.Refuse("a buffer shared by past and present is not supported");
  }
  if (body.Has("past_key") != body.Has("past_value"))
    throw Error(ErrorCode::kArity, "operator 'MultiHeadAttention' needs both past_key and past_value, or neither");
  if (body.HasOutput("qk")) body.Refuse("output 'qk' is not supported");
  const int64_t count = body.Int("num_heads");
  const bool all_packed = body.Rank("query") == 5, pairs = !all_packed && body.Has("key") && body.Rank("key") == 5;
  if (!all_packed && (!body.Has("key") || (!pairs && !body.Has("value")))) body.Refuse("inputs 'key' and 'value' are required");
  Heads heads;
  if (all_packed) {
    if (body.Has("bias")) body.Refuse("a bias with packed queries, keys and values is not supported");
    heads.q = Packed(body, "query", 0);
    heads.k = Packed(body, "query", 1);
    heads.v = Packed(body, "query", 2);
    heads.width = heads.value_width = body.Extent("query", 4);
    heads.length = heads.keys = body.Extent("query", 1);
  } else {
    std::string query = "query", key = "key", value = "value";
    heads.width = WidthOf(body.Extent("query", -1), count);
    if (body.Has("bias")) {
      if (pairs || body.Rank("key") != 3 || body.Rank("value") != 3) body.Refuse("a bias needs keys and values of rank 3");
      const int64_t width = body.Extent("query", -1);
      const std::vector<std::string> biases = Thirds(body, "bias", {width, width, body.Extent("value", -1)});
      query = body.Op("Add", {query, biases[0]});
      key = body.Op("Add", {key, biases[1]});
      value = body.Op("Add", {value, biases[2]});
    }
    heads.q = Parted(body, query, count, heads.width);
    heads.length = body.Extent("query", 1);
    heads.keys = body.Extent("key", body.Rank("key") == 4 ? 2 : 1);
    if (pairs) {
      heads.k = Packed(body, "key", 0);
      heads.v = Packed(body, "key", 1);
      heads.value_width = heads.width;
    } else {
      heads.k = body.Rank("key") == 4 ? key : Parted(body, key, count, heads.width);
      heads.value_width = body.Rank("value") == 4 ? body.Extent("value", -1) : WidthOf(body.Extent("value", -1), count);
      heads.v = body.Rank("value") == 4 ? value : Parted(body, value, count, heads.value_width);
    }
  }
  if (body.Has("past_key")) {
    heads.past = body.Extent("past_key", 2);
    heads.keys += heads.past;
    heads.k = ConcatPast(body, "past_key", heads.k);
    heads.v = ConcatPast(body, "past_value", heads.v);
  }
  if (body.HasOutput("present_key")) body.Op("Identity", {heads.k}, "", "present_key");
  if (body.HasOutput("present_value")) body.Op("Identity", {heads.v}, "", "present_value");
  Attend(body, heads, "key_padding_mask", "query");
}

void ContribRotaryEmbedding(ContribBody& body) {
  if (body.Int("is_packed_batching") != 0 || body.Float("scale", 1) != 1) body.Refuse("is_packed_batching and scale are not supported");
  const int rank = body.Rank("input");
  const int64_t turned = body.Int("rotary_embedding_dim");
  int64_t count = body.Int("num_heads");
  if (rank == 3 && count == 0) {
    const int64_t half = body.Extent("cos_cache", 1);
    if (half <= 0) throw Error(ErrorCode::kShape, "operator 'RotaryEmbedding': cos_cache has no columns");
    count = body.Extent("input", 2) / (2 * half);
  }
  std::string attributes = "interleaved = " + std::to_string(body.Int("interleaved"));
  if (rank == 3) attributes += ", num_heads = " + std::to_string(count);
  if (turned != 0) attributes += ", rotary_embedding_dim = " + std::to_string(turned);
  std::string places = body.Op("Cast", {"position_ids"}, "to = 7");
  if (body.Rank("position_ids") == 1) {  // the position of the first token, for every sample
    const std::string samples = body.Length("input", 0), length = body.Length("input", rank - 2);
    places = body.Op("Expand", {body.Op("Add", {body.Counted(length), places}), body.Op("Concat", {samples, length}, "axis = 0")});
  }
  body.Op("RotaryEmbedding", {"input", "cos_cache", "sin_cache", places}, attributes, "output");
}

void ContribEmbedLayerNormalization(ContribBody& body) {
  std::string sum = body.Op("Gather", {"word_embedding", "input_ids"}, "axis = 0");
  if (body.Has("position_ids")) {
    sum = body.Op("Add", {sum, body.Op("Gather", {"position_embedding", "position_ids"}, "axis = 0")});
  } else {
    const std::string zero = body.List({0});
    sum = body.Op("Add", {sum, body.Op("Slice", {"position_embedding", zero, body.Length("input_ids", 1), zero})});
  }
  if (body.Has("segment_ids") && body.Has("segment_embedding"))
    sum = body.Op("Add", {sum, body.Op("Gather", {"segment_embedding", "segment_ids"}, "axis = 0")});
  body.Op("LayerNormalization", {sum, "gamma", "beta"}, "axis = -1, epsilon = " + OnnxText(body.Float("epsilon", 1e-12)), "output");
  body.Op("Identity", {sum}, "", "embedding_sum");
  // The number of tokens of each sample.
  const std::string tokens = body.Has("mask") ? "mask" : body.Op("Sub", {"input_ids", "input_ids"});
  body.Op("ReduceSum", {body.Op("Cast", {tokens}, "to = 6"), body.List({1})}, "keepdims = 0", "mask_index");
}

}  // namespace gradloom
