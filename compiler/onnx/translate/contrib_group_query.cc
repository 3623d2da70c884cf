// onnxruntime's grouped-query attention, with rotary positions, a window, a softcap, an attention sink, and past keys and values.
#include <cmath>

#include "compiler/onnx/translate/contrib_body.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

// Tensors have axes (B, N, S, D) for queries and (B, K, L, D) for keys and values, L = P + S, with the past ones first.
class GroupQuery {
 public:
  explicit GroupQuery(ContribBody& body) : b_(body) {}

  void Write() {
    ReadForm();
    Divide();
    if (b_.Has("past_key") && b_.Extent("past_key", 2) > 0) {
      past_ = b_.Extent("past_key", 2);
      // The length of each sample without the current tokens: past entries beyond it are padding.
      const std::string ends =
          b_.Op("Add", {b_.Op("Reshape", {b_.Op("Cast", {"seqlens_k"}, "to = 7"), b_.List({-1, 1})}), b_.List({1 - length_})});
      begins_ = ends;
    }
    if (b_.Int("do_rotary") != 0) Rotate();
    if (past_ > 0) {
      k_ = b_.Op("Concat", {"past_key", k_}, "axis = 2");
      v_ = b_.Op("Concat", {"past_value", v_}, "axis = 2");
    }
    Present("present_key", k_);
    Present("present_value", v_);
    Attend();
  }

 private:
  void ReadForm() {
    if (b_.Has("past_key") != b_.Has("past_value"))
      throw Error(ErrorCode::kArity, "operator 'GroupQueryAttention' needs both past_key and past_value, or neither");
    if (b_.HasOutput("output_qk")) b_.Refuse("output 'output_qk' is not supported");
    if (b_.Has("key") != b_.Has("value"))
      throw Error(ErrorCode::kArity, "operator 'GroupQueryAttention' needs both key and value, or neither");
    if (b_.Rank("query") != 3) throw Error(ErrorCode::kShape, "operator 'GroupQueryAttention' expects query (batch, length, features)");
    heads_ = b_.Int("num_heads");
    groups_ = b_.Int("kv_num_heads");
    const int64_t features = b_.Extent("query", 2), parts = b_.Has("key") ? heads_ : heads_ + 2 * groups_;
    if (groups_ <= 0 || heads_ <= 0 || heads_ % groups_ != 0 || features % parts != 0) {
      throw Error(ErrorCode::kAttr, std::to_string(features) + " features cannot be divided by num_heads " + std::to_string(heads_) +
                                        " and kv_num_heads " + std::to_string(groups_));
    }
    width_ = features / parts;
    length_ = b_.Extent("query", 1);
  }

  std::string Parted(const std::string& value, int64_t heads) {
    return b_.Op("Transpose", {b_.Op("Reshape", {value, b_.List({0, 0, heads, width_})})}, "perm = [0, 2, 1, 3]");
  }

  void Divide() {
    std::string q = "query", k = "key", v = "value";
    if (!b_.Has("key")) {
      q = "packed_q", k = "packed_k", v = "packed_v";
      b_.Node({q, k, v}, "Split", {"query", b_.List({heads_ * width_, groups_ * width_, groups_ * width_})}, "axis = 2");
    }
    q_ = Parted(q, heads_);
    k_ = Parted(k, groups_);
    v_ = Parted(v, groups_);
  }

  // Returns int64 (B or 1, S): the positions of the current tokens in their sample.
  std::string Positions() {
    const std::string now = b_.Op("Unsqueeze", {b_.Counted(b_.Length("query", 1)), b_.List({0})});
    return begins_.empty() ? now : b_.Op("Add", {now, begins_});
  }

  void Rotate() {
    if (!b_.Has("cos_cache") || !b_.Has("sin_cache"))
      throw Error(ErrorCode::kArity, "operator 'GroupQueryAttention' needs cos_cache and sin_cache if do_rotary is set");
    const int64_t half = b_.Extent("cos_cache", 1);
    std::string attributes = "interleaved = " + std::to_string(b_.Int("rotary_interleaved"));
    if (2 * half != width_) attributes += ", rotary_embedding_dim = " + std::to_string(2 * half) + ", num_heads = ";
    std::string positions = b_.Has("position_ids") ? b_.Op("Cast", {"position_ids"}, "to = 7") : Positions();
    positions = b_.Op("Expand", {positions, b_.Op("Concat", {b_.Length("query", 0), b_.Length("query", 1)}, "axis = 0")});
    const auto rotated = [&](const std::string& value, int64_t heads) {
      const std::string counted = 2 * half != width_ ? attributes + std::to_string(heads) : attributes;
      return b_.Op("RotaryEmbedding", {value, "cos_cache", "sin_cache", positions}, counted);
    };
    q_ = rotated(q_, heads_);
    k_ = rotated(k_, groups_);
  }

  // Emits keys or values for the next call: the current ones directly after the valid past ones, then zeros.
  void Present(const std::string& output, const std::string& value) {
    if (!b_.HasOutput(output)) return;
    if (past_ == 0) {
      b_.Op("Identity", {value}, "", output);
      return;
    }
    const std::string at = b_.Op("Unsqueeze", {b_.Counted(b_.Length(value, 2)), b_.List({0})});
    const std::string moved = b_.Op("Sub", {b_.Op("Add", {at, b_.List({past_})}), begins_});
    const std::string last = b_.List({past_ + length_ - 1}), axes = b_.List({1, 3});
    const std::string from = b_.Op("Where", {b_.Op("Less", {at, begins_}), at, b_.Op("Min", {moved, last})});
    const std::string positions = b_.Op("Expand", {b_.Op("Unsqueeze", {from, axes}), b_.Op("Shape", {value})});
    const std::string counts = b_.Op("Unsqueeze", {b_.Op("LessOrEqual", {moved, last}), axes});
    b_.Op("Where", {counts, b_.Op("GatherElements", {value, positions}, "axis = 2"), b_.Number(0, value)}, "", output);
  }

  // Returns a bool that broadcasts over heads: whether a query attends to a key.
  std::string Visible() {
    const std::string now = b_.Op("Unsqueeze", {b_.Counted(b_.Length("query", 1)), b_.List({1})});  // (S, 1)
    const int64_t window = b_.Int("local_window_size", -1);
    const auto near = [&](const std::string& seen, const std::string& key, const std::string& query) {
      if (window <= 0) return seen;
      return b_.Op("And", {seen, b_.Op("Greater", {key, b_.Op("Sub", {query, b_.List({window})})})});
    };
    const std::string fresh = b_.Op("Unsqueeze", {b_.Counted(b_.Length("query", 1)), b_.List({0})});  // (1, S)
    const std::string later = near(b_.Op("LessOrEqual", {fresh, now}), fresh, now);
    if (past_ == 0) return later;
    // For past keys, by the position of the sample: (B, S, P).
    const std::string begins = b_.Op("Unsqueeze", {begins_, b_.List({2})});
    const std::string place = b_.Counted(b_.Length("past_key", 2));
    const std::string query = b_.Op("Add", {now, begins});
    const std::string room = b_.Op("Concat", {b_.Length("query", 0), b_.Length("query", 1), b_.List({1})}, "axis = 0");
    const std::string before = b_.Op("Expand", {near(b_.Op("Less", {place, begins}), place, query), room});
    const std::string same = b_.Op("Expand", {later, room});
    return b_.Op("Unsqueeze", {b_.Op("Concat", {before, same}, "axis = 2"), b_.List({1})});
  }

  // Repeats the keys or values of a group for each of its query heads.
  std::string ForAll(const std::string& value) {
    if (groups_ == heads_) return value;
    const std::string repeated = b_.Op("Expand", {b_.Op("Unsqueeze", {value, b_.List({2})}), b_.List({1, 1, heads_ / groups_, 1, 1})});
    return b_.Op("Reshape", {repeated, b_.List({0, heads_, past_ + length_, width_})});
  }

  void Attend() {
    const double scale = b_.Float("scale"), cap = b_.Float("softcap");
    std::string scores = b_.Op("MatMul", {q_, b_.Op("Transpose", {ForAll(k_)}, "perm = [0, 1, 3, 2]")});
    scores = b_.Scaled(scores, scale == 0 ? 1 / std::sqrt(static_cast<double>(width_)) : scale);
    if (cap > 0) scores = b_.Scaled(b_.Op("Tanh", {b_.Scaled(scores, 1 / cap)}), cap);
    if (b_.Has("attention_bias")) scores = b_.Op("Add", {scores, "attention_bias"});
    scores = b_.Op("Where", {Visible(), scores, b_.Number(-3.4e38, scores)});
    const bool sink = b_.Has("head_sink");
    std::string chances;
    if (sink || b_.Int("smooth_softmax") > 0) {
      // One extra score, which contributes no value.
      const std::string more = sink ? b_.Op("Reshape", {"head_sink", b_.List({1, heads_, 1, 1})})
                                    : b_.Op("Reshape", {b_.Number(0, scores), b_.List({1, 1, 1, 1})});
      const std::string room = b_.Op("Concat", {b_.Op("Shape", {scores}, "start = 0, end = 3"), b_.List({1})}, "axis = 0");
      const std::string all = b_.Op("Softmax", {b_.Op("Concat", {scores, b_.Op("Expand", {more, room})}, "axis = 3")}, "axis = -1");
      chances = b_.Op("Slice", {all, b_.List({0}), b_.List({past_ + length_}), b_.List({3})});
    } else {
      chances = b_.Op("Softmax", {scores}, "axis = -1");
    }
    const std::string found = b_.Op("Transpose", {b_.Op("MatMul", {chances, ForAll(v_)})}, "perm = [0, 2, 1, 3]");
    b_.Op("Reshape", {found, b_.List({0, 0, heads_ * width_})}, "", "output");
  }

  ContribBody& b_;
  int64_t heads_ = 0, groups_ = 0, width_ = 0, length_ = 0, past_ = 0;  // N, K, D, S, P
  std::string q_, k_, v_;
  std::string begins_;  // int64 (B, 1), if there is a past: the number of valid past tokens of each sample
};

}  // namespace

void ContribGroupQueryAttention(ContribBody& body) { GroupQuery(body).Write(); }

}  // namespace gradloom
