// Sequences of known length, and optionals: they are names for tensors and do not occur in the graph.
#include <algorithm>
#include <limits>
#include <map>

#include "compiler/onnx/batch/batch_axis.h"
#include "compiler/onnx/importer.h"

namespace gradloom {
namespace {

using Sequence = std::vector<ValueId>;

Binding Of(Sequence sequence) { return {kNoValue, std::make_shared<const Sequence>(std::move(sequence))}; }

}  // namespace

const Sequence& Importer::SequenceOf(const std::string& name, const onnx::NodeProto& proto, Scope& scope) {
  const Binding& binding = Lookup(name, proto, scope);
  if (binding.rows != kNoValue) {
    const int64_t count = emitter().graph().value(binding.rows).shape[0];
    Node split{.op = "Split", .inputs = {binding.rows, Ints(name, std::vector<int64_t>(static_cast<size_t>(count), 1))}};
    split.attributes = {{"axis", int64_t{0}}};
    split.origin = scope.path + name + "/rows";
    std::vector<std::string> names;
    for (int64_t i = 0; i < count; ++i) names.push_back(split.origin + "/" + std::to_string(i));
    return *scope.names.insert_or_assign(name, Of(emitter().Emit(std::move(split), names))).first->second.sequence;
  }
  if (binding.sequence == nullptr) throw Error(ErrorCode::kType, "input '" + Escaped(name) + "' is not a sequence", WhereOf(proto, scope));
  return *binding.sequence;
}

// Returns a position in a sequence of `size` elements; negative ones count from the end.
int64_t Importer::Position(const std::string& name, int64_t size, const onnx::NodeProto& proto, const Scope& scope) {
  const Tensor* data = emitter().Constant(emitter().Computed(NeededTensorOf(name, proto, scope)));
  if (data == nullptr)
    throw Error(ErrorCode::kUnsupported, "the position in a sequence must be known at compile time", WhereOf(proto, scope));
  if (data->elements() != 1) throw Error(ErrorCode::kShape, "the position in a sequence must be a scalar", WhereOf(proto, scope));
  const int64_t at = ElementAsInt(data->view(), 0);
  if (at < -size || at >= size) {
    throw Error(ErrorCode::kValue, "position " + std::to_string(at) + " is out of range for a sequence of length " + std::to_string(size),
                WhereOf(proto, scope));
  }
  return at < 0 ? at + size : at;
}

bool Importer::RunSequence(const onnx::NodeProto& proto, Scope& scope) {
  using Rule = Binding (Importer::*)(const onnx::NodeProto&, Scope&);
  struct Row {
    Rule rule;
    int least, most;  // numbers of inputs
  };
  static const std::map<std::string, Row> kRules = {
      {"SequenceEmpty", {&Importer::SequenceEmpty, 0, 0}},
      {"SequenceConstruct", {&Importer::SequenceConstruct, 1, std::numeric_limits<int>::max()}},
      {"SequenceInsert", {&Importer::SequenceInsert, 2, 3}},
      {"SequenceErase", {&Importer::SequenceErase, 1, 2}},
      {"SequenceAt", {&Importer::SequenceAt, 2, 2}},
      {"SequenceLength", {&Importer::SequenceLength, 1, 1}},
      {"SplitToSequence", {&Importer::SplitToSequence, 1, 2}},
      {"ConcatFromSequence", {&Importer::ConcatFromSequence, 1, 1}},
      {"Optional", {&Importer::OptionalOf, 0, 1}},
      {"OptionalGetElement", {&Importer::OptionalOf, 1, 1}},
      {"OptionalHasElement", {&Importer::OptionalHasElement, 0, 1}},
  };
  const auto found = kRules.find(proto.op_type());
  if (found == kRules.end()) return false;
  const int inputs = proto.input_size();
  if (inputs < found->second.least || inputs > found->second.most || proto.output_size() != 1) {
    throw Error(ErrorCode::kArity,
                "operator '" + proto.op_type() + "' does not take " + std::to_string(inputs) + " inputs and " +
                    std::to_string(proto.output_size()) + " outputs",
                WhereOf(proto, scope));
  }
  scope.names.insert_or_assign(proto.output(0), (this->*found->second.rule)(proto, scope));
  return true;
}

// Runs the body for each element of the first sequence. Other sequences provide the element at the same position; tensors are passed whole.
void Importer::RunSequenceMap(const onnx::NodeProto& proto, Scope& scope) {
  const std::string where = WhereOf(proto, scope);
  const auto* attribute = FindAttribute(proto, "body", scope);
  if (attribute == nullptr || !attribute->has_g()) throw Error(ErrorCode::kAttr, "operator 'SequenceMap' needs the graph 'body'", where);
  const onnx::GraphProto& graph = attribute->g();
  if (proto.input_size() < 1 || graph.input_size() != proto.input_size() || graph.output_size() < proto.output_size())
    throw Error(ErrorCode::kArity, "the inputs and outputs of SequenceMap do not match its body", where);
  const size_t length = SequenceOf(proto.input(0), proto, scope).size();
  const std::string origin = Origin(proto, scope);
  std::vector<Sequence> made(static_cast<size_t>(proto.output_size()));
  for (size_t place = 0; place < length; ++place) {
    CountUnrolled(graph.node_size() + 1, where);
    Scope body = Nested(scope, origin + "/" + std::to_string(place) + "/");
    for (int i = 0; i < proto.input_size(); ++i) {
      Binding binding = Lookup(proto.input(i), proto, scope);
      if (binding.sequence != nullptr) {
        if (binding.sequence->size() != length)
          throw Error(ErrorCode::kShape, "the sequences of SequenceMap must have equal lengths", where);
        binding = {(*binding.sequence)[place], nullptr};
      }
      body.names[graph.input(i).name()] = binding;
    }
    const std::vector<Binding> results = RunGraph(graph, body);
    for (size_t i = 0; i < made.size(); ++i) {
      if (results[i].tensor == kNoValue) throw Error(ErrorCode::kType, "the body of SequenceMap must produce tensors", where);
      made[i].push_back(results[i].tensor);
    }
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const std::string& output = proto.output(static_cast<int>(i));
    if (!output.empty()) scope.names.insert_or_assign(output, Of(std::move(made[i])));
  }
}

Binding Importer::SequenceEmpty(const onnx::NodeProto&, Scope&) { return Of({}); }

Binding Importer::SequenceConstruct(const onnx::NodeProto& proto, Scope& scope) {
  Sequence sequence;
  for (const std::string& input : proto.input()) sequence.push_back(NeededTensorOf(input, proto, scope));
  return Of(std::move(sequence));
}

Binding Importer::SequenceInsert(const onnx::NodeProto& proto, Scope& scope) {
  Sequence sequence = SequenceOf(proto.input(0), proto, scope);
  const int64_t size = static_cast<int64_t>(sequence.size());
  // A position may also be the end.
  const ValueId position = proto.input_size() < 3 ? kNoValue : TensorOf(proto.input(2), proto, scope);
  int64_t at = size;
  if (position != kNoValue) {
    const Tensor* data = emitter().Constant(emitter().Computed(position));
    at = data != nullptr && data->elements() == 1 && ElementAsInt(data->view(), 0) == size ? size
                                                                                           : Position(proto.input(2), size, proto, scope);
  }
  sequence.insert(sequence.begin() + at, NeededTensorOf(proto.input(1), proto, scope));
  return Of(std::move(sequence));
}

Binding Importer::SequenceErase(const onnx::NodeProto& proto, Scope& scope) {
  Sequence sequence = SequenceOf(proto.input(0), proto, scope);
  if (sequence.empty()) throw Error(ErrorCode::kValue, "SequenceErase needs a sequence that is not empty", WhereOf(proto, scope));
  const int64_t size = static_cast<int64_t>(sequence.size());
  const bool given = proto.input_size() > 1 && TensorOf(proto.input(1), proto, scope) != kNoValue;
  const int64_t at = given ? Position(proto.input(1), size, proto, scope) : size - 1;
  sequence.erase(sequence.begin() + at);
  return Of(std::move(sequence));
}

Binding Importer::SequenceAt(const onnx::NodeProto& proto, Scope& scope) {
  const Sequence& sequence = SequenceOf(proto.input(0), proto, scope);
  const int64_t at = Position(proto.input(1), static_cast<int64_t>(sequence.size()), proto, scope);
  return {sequence[static_cast<size_t>(at)], nullptr};
}

Binding Importer::SequenceLength(const onnx::NodeProto& proto, Scope& scope) {
  const int64_t size = static_cast<int64_t>(SequenceOf(proto.input(0), proto, scope).size());
  return {emitter().AddConstant(NameOf(proto.output(0), scope), Tensor::Scalar<int64_t>(size)), nullptr};
}

Binding Importer::SplitToSequence(const onnx::NodeProto& proto, Scope& scope) {
  const std::string origin = Origin(proto, scope), where = WhereOf(proto, scope);
  const ValueId input = NeededTensorOf(proto.input(0), proto, scope);
  const Shape shape = emitter().graph().value(input).shape;
  const auto* axis_attribute = FindAttribute(proto, "axis", scope);
  const auto* keep_attribute = FindAttribute(proto, "keepdims", scope);
  const int64_t wanted = axis_attribute == nullptr ? 0 : axis_attribute->i();
  const auto axis = NormalAxis(wanted, shape.rank());
  if (!axis) throw Error(ErrorCode::kAttr, "axis " + std::to_string(wanted) + " is out of range for shape " + shape.ToString(), where);
  const int64_t extent = shape[*axis];
  const ValueId split_sizes = proto.input_size() < 2 ? kNoValue : TensorOf(proto.input(1), proto, scope);
  const bool given = split_sizes != kNoValue;
  const bool drop_axis = !given && keep_attribute != nullptr && keep_attribute->i() == 0;
  std::vector<int64_t> sizes;
  int64_t each = 1;
  if (given) {
    const Tensor* split = emitter().Constant(emitter().Computed(split_sizes));
    if (split == nullptr) throw Error(ErrorCode::kUnsupported, "the split sizes of SplitToSequence must be known at compile time", where);
    if (split->shape().rank() == 1) sizes = IntValues(split->view());
    if (split->shape().rank() == 0) each = ElementAsInt(split->view(), 0);
  }
  // A size that is the batch size of the file follows the batch; the number of parts stays.
  if (given && sizes.empty() && emitter().batch_observer() != nullptr) sizes = emitter().batch_observer()->DeclaredParts();
  if (sizes.empty()) {
    if (each <= 0) throw Error(ErrorCode::kValue, "the split size must be at least 1, got " + std::to_string(each), where);
    if (extent / each > file_.options.limits.node_inputs)
      throw Error(ErrorCode::kLimit,
                  "SplitToSequence makes too many parts; the limit is " + std::to_string(file_.options.limits.node_inputs), where);
    for (int64_t left = extent; left > 0; left -= each) sizes.push_back(std::min(left, each));
  }
  if (sizes.empty()) return Of({});
  Node node;
  node.op = "Split";
  node.inputs = {input, Ints(origin, sizes)};
  node.attributes = {{"axis", int64_t{*axis}}};
  node.origin = origin;
  std::vector<std::string> names;
  for (size_t i = 0; i < sizes.size(); ++i) names.push_back(NameOf(proto.output(0), scope) + "/" + std::to_string(i));
  Sequence parts = emitter().Emit(std::move(node), names);
  if (drop_axis) {
    for (ValueId& part : parts) part = EmitOp("Squeeze", {part, Ints(origin, {*axis})}, {}, origin, "");
  }
  return Of(std::move(parts));
}

Binding Importer::ConcatFromSequence(const onnx::NodeProto& proto, Scope& scope) {
  const auto* axis = FindAttribute(proto, "axis", scope);
  const auto* new_axis = FindAttribute(proto, "new_axis", scope);
  const ValueId rows = Lookup(proto.input(0), proto, scope).rows;
  if (rows != kNoValue && axis != nullptr && axis->i() == 0 && (new_axis == nullptr || new_axis->i() == 0)) return {rows, nullptr};
  const Sequence& sequence = SequenceOf(proto.input(0), proto, scope);
  if (axis == nullptr) throw Error(ErrorCode::kAttr, "operator 'ConcatFromSequence' needs the attribute 'axis'", WhereOf(proto, scope));
  if (sequence.empty()) throw Error(ErrorCode::kValue, "an empty sequence cannot be concatenated", WhereOf(proto, scope));
  const std::string origin = Origin(proto, scope), name = NameOf(proto.output(0), scope);
  if (new_axis == nullptr || new_axis->i() == 0)
    return {EmitOp("Concat", sequence, {{"axis", static_cast<int64_t>(axis->i())}}, origin, name), nullptr};
  const auto at = NormalAxis(axis->i(), emitter().graph().value(sequence[0]).shape.rank() + 1);
  if (!at)
    throw Error(ErrorCode::kAttr, "axis " + std::to_string(axis->i()) + " is out of range for the stacked tensors", WhereOf(proto, scope));
  return {Stack(sequence, *at, origin, name), nullptr};
}

Binding Importer::OptionalOf(const onnx::NodeProto& proto, Scope& scope) {
  if (proto.input_size() == 0 || proto.input(0).empty()) return {};
  const Binding& binding = Lookup(proto.input(0), proto, scope);
  if (proto.op_type() == "OptionalGetElement" && binding.tensor == kNoValue && binding.sequence == nullptr) {
    throw Error(ErrorCode::kValue, "an empty optional has no element", WhereOf(proto, scope));
  }
  return binding;
}

Binding Importer::OptionalHasElement(const onnx::NodeProto& proto, Scope& scope) {
  bool has = false;
  if (proto.input_size() == 1 && !proto.input(0).empty()) {
    const Binding& binding = Lookup(proto.input(0), proto, scope);
    has = binding.tensor != kNoValue || binding.sequence != nullptr;
  }
  return {emitter().AddConstant(NameOf(proto.output(0), scope), Tensor::Scalar<bool>(has)), nullptr};
}

}  // namespace gradloom
