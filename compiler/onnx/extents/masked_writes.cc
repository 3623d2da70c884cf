#include "compiler/onnx/extents/masked_writes.h"

#include <algorithm>
#include <initializer_list>
#include <unordered_map>

#include "compiler/onnx/importer.h"
#include "compiler/onnx/standard_domain.h"

namespace gradloom {
namespace {

bool IsOp(const onnx::NodeProto* node, std::initializer_list<const char*> ops) {
  return node != nullptr && IsStandardDomain(node->domain()) && node->input_size() > 0 &&
         std::any_of(ops.begin(), ops.end(), [&](const char* op) { return node->op_type() == op; });
}

// The nodes of a graph by the names of their results, and how often the graph and the bodies in it read a name.
class Names {
 public:
  explicit Names(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
    for (const onnx::NodeProto& node : nodes) {
      for (const std::string& output : node.output()) makers_[output] = &node;
      Count(node);
    }
  }

  const onnx::NodeProto* Maker(const std::string& name) const {
    const auto found = makers_.find(name);
    return found == makers_.end() ? nullptr : found->second;
  }
  int Reads(const std::string& name) const {
    const auto found = reads_.find(name);
    return found == reads_.end() ? 0 : found->second;
  }
  // The name of what the value is a view or a copy of. Exporters write few such nodes after each other; a hostile file may have a cycle.
  std::string Base(std::string name, std::initializer_list<const char*> ops) const {
    constexpr int kMaxSteps = 8;
    const onnx::NodeProto* node = Maker(name);
    for (int step = 0; step < kMaxSteps && IsOp(node, ops); ++step, node = Maker(name)) name = node->input(0);
    return name;
  }

 private:
  void Count(const onnx::NodeProto& node) {
    for (const std::string& input : node.input()) ++reads_[input];
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) CountBody(attribute.g());
      for (const onnx::GraphProto& graph : attribute.graphs()) CountBody(graph);
    }
  }
  void CountBody(const onnx::GraphProto& graph) {
    for (const onnx::NodeProto& node : graph.node()) Count(node);
    for (const onnx::ValueInfoProto& output : graph.output()) ++reads_[output.name()];
  }

  std::unordered_map<std::string, const onnx::NodeProto*> makers_;
  std::unordered_map<std::string, int> reads_;
};

bool Overwrites(const onnx::NodeProto& node) {
  return IsOp(&node, {"ScatterND"}) && node.input_size() == 3 &&
         std::none_of(node.attribute().begin(), node.attribute().end(),
                      [](const auto& attribute) { return attribute.name() == "reduction" && attribute.s() != "none"; });
}

// The write that ends with this ScatterND; `copies` of the result is null if it is none.
MaskedWrite WriteOf(const onnx::NodeProto& node, const Names& names) {
  MaskedWrite write;
  const onnx::NodeProto *turned = names.Maker(node.input(1)), *flat = names.Maker(node.input(2));
  if (!IsOp(turned, {"Transpose"}) || !IsOp(flat, {"Reshape"})) return write;
  const onnx::NodeProto *places = names.Maker(turned->input(0)), *copies = names.Maker(flat->input(0));
  if (!IsOp(places, {"NonZero"}) || !IsOp(copies, {"Expand"}) || copies->input_size() != 2) return write;
  // As many copies as the mask has true elements.
  const onnx::NodeProto* shape = names.Maker(copies->input(1));
  // A mask of all axes leaves nothing to append to the number, and optimizers remove such a Concat.
  const onnx::NodeProto* count = IsOp(shape, {"Concat"}) ? names.Maker(shape->input(0)) : shape;
  const onnx::NodeProto* number = IsOp(count, {"ReduceSum"}) ? names.Maker(count->input(0)) : nullptr;
  if (!IsOp(number, {"Cast"})) return write;
  write.chosen = names.Base(number->input(0), {"Reshape", "Flatten", "Identity"});
  const onnx::NodeProto* whole = names.Maker(places->input(0));
  write.mask = IsOp(whole, {"Expand"}) ? whole->input(0) : places->input(0);
  if (names.Base(write.mask, {"Unsqueeze", "Identity"}) != names.Base(write.chosen, {"Identity"})) return write;
  write.value = copies->input(0);
  write.copies = copies;
  // From the end to the start: a node is needed by nothing else if its only reader is not.
  const auto add = [&](std::initializer_list<const onnx::NodeProto*> makers) {
    for (const onnx::NodeProto* maker : makers) {
      if (names.Reads(maker->output(0)) != 1) return;
      write.only.insert(write.only.begin(), maker);
    }
  };
  add({flat, copies});
  IsOp(whole, {"Expand"}) ? add({turned, places, whole}) : add({turned, places});
  return write;
}

}  // namespace

MaskedWrites::MaskedWrites(const google::protobuf::RepeatedPtrField<onnx::NodeProto>& nodes) {
  if (std::none_of(nodes.begin(), nodes.end(), Overwrites)) return;
  const Names names(nodes);
  for (const onnx::NodeProto& node : nodes) {
    MaskedWrite write = Overwrites(node) ? WriteOf(node, names) : MaskedWrite{};
    // The copies have an unknown extent, so nothing is gained if they are read elsewhere, too.
    if (write.copies == nullptr || std::find(write.only.begin(), write.only.end(), write.copies) == write.only.end()) continue;
    only_.insert(write.only.begin(), write.only.end());
    writes_.emplace(&node, std::move(write));
  }
}

const MaskedWrite* MaskedWrites::Find(const onnx::NodeProto& node) const {
  const auto found = writes_.find(&node);
  return found == writes_.end() ? nullptr : &found->second;
}

// A value that is the same for all true elements of the mask becomes a Where, and rows that the mask selected are scattered to their
// positions. Anything else is imported as it is written.
void Importer::RunMaskedWrite(const MaskedWrite& write, const onnx::NodeProto& proto, Scope& scope) {
  const Graph& graph = emitter().graph();
  ValueId data = NeededTensorOf(proto.input(0), proto, scope), value = NeededTensorOf(write.value, *write.copies, scope);
  const ValueId mask = NeededTensorOf(write.mask, proto, scope), chosen = NeededTensorOf(write.chosen, proto, scope);
  const Shape whole = graph.value(data).shape, given = graph.value(value).shape;
  // The mask may have the batch size of the file, so its extents decide nothing.
  const int rows = graph.value(chosen).shape.rank(), behind = whole.rank() - rows;
  bool fits = graph.value(mask).dtype == DType::kBool && graph.value(mask).shape.rank() == whole.rank() && behind >= 0 &&
              graph.value(value).dtype == graph.value(data).dtype &&
              (given.rank() <= behind || (given.rank() == behind + 1 && given[0] == 1));
  for (int axis = 0; fits && axis < std::min(behind, given.rank()); ++axis) {
    const int64_t extent = given[given.rank() - 1 - axis];
    fits = extent == 1 || extent == whole[whole.rank() - 1 - axis];
  }
  for (const ValueId id : {data, value, mask}) fits = fits && emitter().extents().Of(id).empty();
  // The positions of a mask that the file knows are constants, so the write can be imported as it is.
  fits = fits && graph.value(mask).role != Role::kConst;
  // As many rows as the mask selects, such as those that it selected before.
  const Axes counted = emitter().extents().Of(value);
  const bool rows_of_mask = !fits && counted.size() == 1 && counted.contains(0) && given.rank() == behind + 1 &&
                            std::equal(given.begin() + 1, given.end(), whole.begin() + rows, whole.end()) &&
                            emitter().extents().Of(data).empty() && emitter().extents().Of(chosen).empty();
  if (!fits && !rows_of_mask) {
    for (const onnx::NodeProto* node : write.only) RunNode(*node, scope);
    return RunNode(proto, scope);
  }
  const std::string origin = Origin(proto, scope);
  const auto stop = [&](ValueId& id, const onnx::NodeProto& reader) {
    const std::set<int>* detached = detached_ ? detached_->OperandsOf(reader) : nullptr;
    if (detached != nullptr && detached->contains(0)) id = Stopped(id, origin, graph.value(id).name + "/detached");
  };
  stop(data, proto);
  stop(value, *write.copies);
  if (rows_of_mask) {
    const ValueId places = EmitOp("NonZero", {chosen}, {}, origin, "");
    const ValueId tuples = EmitOp("Transpose", {places}, {{"perm", std::vector<int64_t>{1, 0}}}, origin, "");
    const ValueId written = EmitOp("ScatterND", {data, tuples, value}, {}, origin, NameOf(proto.output(0), scope));
    scope.names.insert_or_assign(proto.output(0), Binding{written, nullptr});
    return;
  }
  if (given.rank() > behind) {
    const std::vector<int64_t> target(given.begin() + 1, given.end());
    value = EmitOp("Reshape", {value, Ints(origin, target)}, {}, origin, "");
  }
  const ValueId written = EmitOp("Where", {mask, value, data}, {}, origin, NameOf(proto.output(0), scope));
  scope.names.insert_or_assign(proto.output(0), Binding{written, nullptr});
}

}  // namespace gradloom
