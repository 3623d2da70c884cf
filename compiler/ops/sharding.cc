#include "compiler/ops/sharding.h"

#include <algorithm>
#include <utility>

namespace gradloom {

int ShardQuery::AxisAttribute(const char* name, int64_t absent, int rank) const {
  const auto axis = NormalAxis(attributes().Int(name, absent), rank);
  if (!axis) throw Error(ErrorCode::kAttr, std::string(name) + " is out of range", Describe(node_));
  return *axis;
}

std::vector<int64_t> ShardQuery::Ints(int i, const std::vector<int64_t>& absent) const {
  if (!has(i)) return absent;
  const Tensor* data = graph_.data(node_.inputs[static_cast<size_t>(i)]);
  if (data == nullptr || graph_.value(node_.inputs[static_cast<size_t>(i)]).role != Role::kConst) {
    Refuse("the positions that it selects depend on data");
  }
  std::vector<int64_t> values;
  for (int64_t k = 0; k < data->elements(); ++k) values.push_back(ElementAsInt(data->view(), k));
  return values;
}

bool ShardQuery::IsZero(int i) const {
  const ValueId id = node_.inputs[static_cast<size_t>(i)];
  const Tensor* data = graph_.value(id).role == Role::kConst ? graph_.data(id) : nullptr;
  if (data == nullptr) return false;
  for (int64_t k = 0; k < data->elements(); ++k) {
    if (ElementAsDouble(data->view(), k) != 0) return false;
  }
  return true;
}

Shard ShardQuery::in(int i) {
  const Shard shard = given(i);
  if (shard.local()) Refuse("it reads a statistic that each device computes over its own samples");
  if (!shard.partial()) return shard;
  reduced_.insert(i);
  return Shard::Whole();
}

void ShardQuery::ExpectWhole(int i) {
  if (!in(i).whole()) Refuse("operand " + std::to_string(i) + " differs between samples");
}

bool ShardQuery::counts() const {
  return std::any_of(inputs_.begin(), inputs_.end(), [](const Shard& shard) { return !shard.steps.empty(); });
}

std::vector<std::vector<int64_t>> ShardQuery::TakeSteps() {
  std::vector<std::vector<int64_t>> steps;
  for (Shard& shard : inputs_) steps.push_back(std::exchange(shard.steps, {}));
  return steps;
}

void ShardQuery::Refuse(const std::string& why) const {
  throw Error(ErrorCode::kUnsupported, "the batch cannot be divided over devices: " + why, Describe(node_),
              "train on one device (name one in --devices), or change the model so that only the loss combines samples");
}

Shard Joined(const ShardQuery& query, Shard one, Shard other) {
  if (!one.split()) return other;
  if (!other.split()) return one;
  if (one.axis != other.axis) query.Refuse("its operands have different batch axes");
  if (one.inner == 0) return other;
  if (other.inner != 0 && one.inner != other.inner) query.Refuse("its operands have their samples in different orders");
  return one;
}

namespace {

bool Is(const ShardQuery& query, std::initializer_list<std::string_view> ops) {
  return query.node().domain.empty() && std::find(ops.begin(), ops.end(), query.node().op) != ops.end();
}

// Whether the operator can be applied to partial sums: the sum of its results is its result for the sum.
bool PassesPartial(ShardQuery& query) {
  int partial = 0;
  for (int i = 0; i < query.num_inputs(); ++i) partial += query.given(i).partial() ? 1 : 0;
  if (partial == 0) return false;
  const auto fits = [&](int i) { return query.given(i).partial() || (query.given(i).whole() && query.IsZero(i)); };
  if (Is(query, {"Neg", "Identity"})) return true;
  if (Is(query, {"Cast", "CastLike"})) return IsFloating(query.out_dtype());
  if (Is(query, {"Add", "Sub", "Sum", "Mean"})) {
    for (int i = 0; i < query.num_inputs(); ++i) {
      if (!fits(i)) return false;
    }
    return true;
  }
  if (Is(query, {"Mul"})) return partial == 1 && (query.given(0).whole() || query.given(1).whole());
  // A quotient of integers is rounded: the sum of the devices' quotients may be less than that of the sum.
  if (Is(query, {"Div"}))
    return IsFloating(query.out_dtype()) && query.given(0).partial() && !query.given(1).split() && query.in(1).whole();
  if (Is(query, {"Where"})) return query.given(0).whole() && fits(1) && fits(2);
  return false;
}

// The output has the elements of input 0 in the same row-major order.
void ShardView(ShardQuery& query) {
  const Shard shard = query.given(0);
  if (!shard.split()) return query.SetAll(shard);
  const Shape &from = query.shape(0), &to = query.out_shape(0);
  const auto stride = [](const Shape& shape, int axis) {
    int64_t product = 1;
    for (int i = axis + 1; i < shape.rank(); ++i) product *= shape[i];
    return product;
  };
  const int axis = query.growing(0);
  if (axis < 0) query.Refuse("its result has no batch axis");
  // Contiguous elements of one sample, in the element order of both shapes.
  const int64_t together = shard.InnerOf(from[shard.axis], query.batch()) * stride(from, shard.axis), step = stride(to, axis);
  if (step == 0 || together % step != 0 || to[axis] * step % (query.batch() * together) != 0) {
    query.Refuse("its result does not keep the elements of a sample together");
  }
  query.SetAll(Shard::Split(axis, together / step));
}

}  // namespace

void ShardPointwise(ShardQuery& query) {
  if (PassesPartial(query)) return query.SetAll(Shard::Partial());
  Shard made;
  bool local = false;
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!query.has(i)) continue;
    if (query.given(i).local()) {
      local = true;
      continue;
    }
    Shard shard = query.in(i);
    if (shard.split()) shard.axis += query.out_shape(0).rank() - query.shape(i).rank();
    made = Joined(query, made, shard);
  }
  if (local && made.split()) query.Refuse("it reads a statistic that each device computes over its own samples");
  query.SetAll(local ? Shard::Local() : made);
}

void ShardGrowing(ShardQuery& query) {
  const int axis = query.growing(0);
  query.set(0, axis < 0 ? Shard::Whole() : Shard::Split(axis, query.out_shape(0)[axis] / query.batch()));
}

void ShardAlongAxis(ShardQuery& query) {
  const int rank = query.shape(0).rank();
  const int axis = query.AxisAttribute("axis", -1, rank);
  Shard made;
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (query.has(i)) made = Joined(query, made, query.in(i));
  }
  if (made.split() && made.axis == axis) query.Refuse("it operates along the batch axis");
  query.SetAll(made);
}

void ShardFromAxis(ShardQuery& query, int like) {
  const int axis = query.AxisAttribute("axis", -1, query.shape(like).rank());
  Shard made;
  for (int i = 0; i <= like; ++i) made = Joined(query, made, query.in(i));
  for (int i = like + 1; i < query.num_inputs(); ++i) query.ExpectWhole(i);
  if (made.split() && made.axis >= axis) query.Refuse("it normalizes over the batch axis");
  query.SetAll(made);
  for (int i = 1; like > 0 && made.split() && i < query.num_outputs(); ++i) query.set(i, Shard::Partial());
}

namespace {

// Checks that the sharding of operand i matches its letter (Op::samples), and joins it into `made`, of which only the order of samples is
// used.
void Take(ShardQuery& query, int i, char letter, Shard& made) {
  if (letter == 'l' && query.given(i).local()) return;
  const Shard shard = query.in(i);
  if (!shard.split()) return;
  const int axis = letter == '?' ? 0 : letter - '0';
  if (letter == '.' || letter == 'l') query.Refuse("operand " + std::to_string(i) + " differs between samples");
  if (shard.axis != axis)
    query.Refuse("operand " + std::to_string(i) + " has the batch along axis " + std::to_string(shard.axis) +
                 ", which the operator does not support");
  made = Joined(query, made, Shard::Split(0, shard.inner));
}

Shard OutputShard(char letter, Shard made) {
  if (!made.split()) return Shard::Whole();
  if (letter == '+') return Shard::Partial();
  if (letter == 'l') return Shard::Local();
  return Shard::Split(letter - '0', made.inner);
}

}  // namespace

void ShardSamples(ShardQuery& query, std::string_view samples) {
  const std::string_view inputs = samples.substr(0, samples.find('>')), outputs = samples.substr(samples.find('>') + 1);
  Shard made;
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (query.has(i)) Take(query, i, inputs[std::min(static_cast<size_t>(i), inputs.size() - 1)], made);
  }
  for (int i = 0; i < query.num_outputs(); ++i)
    query.set(i, OutputShard(outputs[std::min(static_cast<size_t>(i), outputs.size() - 1)], made));
}

void ShardWantedGradients(ShardQuery& query, std::string_view inputs, std::string_view gradients) {
  Shard made;
  const auto letter = [&](int i) {
    const auto at = static_cast<size_t>(i);
    return at < inputs.size() ? inputs[at] : gradients.at(at - inputs.size());
  };
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (query.has(i)) Take(query, i, letter(i), made);
  }
  const std::vector<int64_t> wanted = query.attributes().Ints("wanted");
  for (int k = 0; k < query.num_outputs(); ++k) {
    const auto i = static_cast<int>(wanted.at(static_cast<size_t>(k)));
    const bool same = query.given(i).split();
    query.set(k, same ? OutputShard(letter(i) == '?' ? '0' : letter(i), made) : OutputShard('+', made));
  }
}

void InferShards(ShardQuery& query) { query.counts() ? ShardCounted(query) : InferShardsByRow(query); }

void InferShardsByRow(ShardQuery& query) {
  const Op* op = FindOp(query.node().domain, query.node().op);
  if (op != nullptr && op->shard != nullptr) return op->shard(query);
  if (op != nullptr && !op->samples.empty()) return ShardSamples(query, op->samples);
  if (KeepsElements(query.node())) return ShardView(query);
  if (op != nullptr && op->has(kPointwise)) return ShardPointwise(query);
  for (int i = 0; i < query.num_inputs(); ++i) {
    if (!query.in(i).whole()) query.Refuse("it may mix samples: the operator has no sharding rule");
  }
  for (int i = 0; i < query.num_outputs(); ++i) {
    if (query.node().outputs[static_cast<size_t>(i)] != kNoValue && query.growing(i) >= 0) {
      query.Refuse("its result grows with the batch size, but its operands do not");
    }
  }
}

}  // namespace gradloom
