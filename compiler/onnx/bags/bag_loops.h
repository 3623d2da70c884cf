// A loop over bags, as exporters write nn.EmbeddingBag: iteration i takes the i-th part of a tensor and reduces it to one row by a sum, a
// mean or a maximum. Unrolled, it would have a node for each sample; here all iterations are computed at once. Equal parts are stacked,
// [iterations, length, ...], so that the batch can have any size and can be divided. Parts whose beginnings are data of a step
// (bag_cuts.cc) stay contiguous, [words, ...], and are summed by the index of their bag.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch/batch_axis.h"
#include "compiler/onnx/importer.h"

namespace gradloom {

// Gives up if the body contains anything unknown; the loop then runs like any other. Values of the body are created when an output needs
// them, once for all iterations.
class Importer::BagLoop {
 public:
  BagLoop(Importer& importer, const LoopParts& parts, const std::string& origin, const Scope& scope, BagNumbers& numbers)
      : i_(importer),
        parts_(parts),
        origin_(origin),
        body_{&parts.graph, nullptr, importer.Nested(scope, origin + "/"), {}},
        numbers_(numbers),
        replays_(numbers.bags) {
    i_.AddInitializers(parts.graph, body_.scope);
  }

  // Returns the results of the loop; nullopt if it is not such a loop.
  std::optional<std::vector<Binding>> Run();

 private:
  // A value of the body over all iterations, or over those in which a branch is taken.
  struct Lane {
    enum class Kind : uint8_t {
      kSame,       // one value of the enclosing graph
      kNumbers,    // a known integer or bool in each iteration
      kGathered,   // the sequence of the rows of earlier iterations
      kAppended,   // the same with the row of this iteration
      kAt,         // one element of a list in each iteration, which is data of a step; `numbers`: its position
      kBehind,     // `whole` minus that
      kPart,       // [iterations, length, ...] for a [length, ...] in each iteration, or [words, ...] of all iterations
      kRow,        // a part reduced by `by` along its length in each iteration
      kPlace,      // the position of an inner loop over the elements of a part
      kNext,       // the next position
      kElement,    // [iterations, length]: the element at that position
      kPlaces,     // the positions kept so far
      kPlaceKept,  // the same with the current one
      kKept,       // the positions that it keeps: where `id` is true
      kCount,      // their number
      kNone,       // whether there are none
      kEmpty,      // whether a bag with data-dependent bounds has no element
      kFilled,     // whether it has one
    };
    Kind kind = Kind::kSame;
    ValueId id = kNoValue;
    std::vector<int64_t> numbers = {};  // by iteration
    ValueId kept = kNoValue;            // of a part: [iterations, length] or [words], the elements that are kept; kNoValue: all
    std::string by = {};                // of a row: ReduceSum, ReduceMean or ReduceMax
    bool single = false;                // of a row: it is [1, ...] in each iteration
    int64_t whole = 0;                  // of kBehind
    bool operator==(const Lane&) const = default;
  };
  using MaybeLane = std::optional<Lane>;
  using Kind = Lane::Kind;

  struct Body {
    const onnx::GraphProto* graph;
    Body* outer;
    Scope scope;
    std::map<std::string, MaybeLane> lanes;
  };

  bool FindTripCount();
  const onnx::NodeProto* Producer(const std::string& name, const onnx::GraphProto& graph);
  MaybeLane Eval(const std::string& name, Body& body);
  MaybeLane EvalNode(const onnx::NodeProto& node, Body& body);
  MaybeLane EvalIf(const onnx::NodeProto& node, Body& body);
  MaybeLane EvalKept(const onnx::NodeProto& node, Body& body);
  MaybeLane EvalBranch(const onnx::NodeProto& node, const char* name, Body& body);
  MaybeLane EvalGather(const onnx::NodeProto& node, const Lane& data, const Lane& indices);
  MaybeLane NumbersAt(const Lane& list, const std::vector<int64_t>& begins, const std::vector<int64_t>& ends);
  MaybeLane EvalSlice(const onnx::NodeProto& node, Body& body, const Lane& data);
  MaybeLane EvalBinary(const onnx::NodeProto& node, const Lane& a, const Lane& b);
  MaybeLane EvalReduced(const onnx::NodeProto& node, Body& body, const Lane& part);
  MaybeLane EvalConstant(const onnx::NodeProto& node, Body& body);
  MaybeLane EvalWhere(const std::vector<bool>& iterations, const onnx::NodeProto& node, const char* name, Body& body);
  ValueId Reduced(const Lane& row);

  // bag_cuts.cc
  // The source of a list: element i is element i + shift of `list` or, after its last one, `end`.
  struct Cuts {
    ValueId list = kNoValue;
    int64_t shift = 0;
    std::optional<int64_t> end = {};
  };
  static bool IsDataDependent(const Lane& lane) { return lane.kind == Kind::kAt || lane.kind == Kind::kBehind; }
  Cuts CutsOf(ValueId id);
  bool AreBounds(const Lane& begin, const Lane& end);
  bool IsLast() const;
  bool MatchBags(const Lane& begin, const Lane& end);
  bool MatchWords(int64_t extent);
  bool OfList(const Lane& data);
  ValueId BagIndices(int64_t words, bool open);
  ValueId Collected(const Lane& row);

  // Returns known data, or null.
  const Tensor* Constant(const Lane& lane) { return lane.kind == Kind::kSame ? Constant(lane.id) : nullptr; }
  const Tensor* Constant(ValueId id);
  // The extent of the axis that parts are taken from.
  int64_t ExtentOf(ValueId id);
  const Tensor* Read(std::optional<Tensor> now);
  std::optional<std::vector<int64_t>> Numbers(const Lane& lane);
  std::optional<std::vector<int64_t>> Axes(const onnx::NodeProto& node, int input, Body& body);
  bool MatchParts(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t extent);
  ValueId Parts(ValueId data);
  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return i_.EmitOp(op, std::move(inputs), std::move(attributes), origin_, "");
  }
  bool active(size_t iteration) const { return active_.empty() || active_[iteration]; }
  ValueId Ints(const std::vector<int64_t>& values) { return i_.Ints(origin_, values); }
  DType TypeOf(ValueId id) const { return i_.emitter().graph().value(id).dtype; }
  // Returns a number as a scalar of a type, to be compared with or added to elements of the type.
  ValueId NumberAs(int64_t number, DType dtype) {
    return i_.emitter().AddConstant(origin_ + "/number", Converted(Tensor::Scalar<int64_t>(number).view(), dtype));
  }

  Importer& i_;
  const LoopParts& parts_;
  const std::string& origin_;
  Body body_;
  BagNumbers& numbers_;
  const bool replays_;
  size_t read_ = 0;    // of numbers_
  int64_t steps_ = 0;  // nodes visited so far
  int depth_ = 0;      // values that are being evaluated
  int64_t length_ = 0;
  int64_t trips_ = 0;
  // If the beginnings of bags are data of a step: the list of them, [iterations] or, if it also `ends_` the last bag, [iterations + 1]; and
  // the total number of words of all bags (0: not known yet).
  ValueId cuts_ = kNoValue;
  bool ends_ = false;
  int64_t words_ = 0;
  // Whether the last bag takes all words from its first one on, or is at least divided by their number, as in PyTorch.
  bool open_ = false, divides_by_count_ = false;
  std::map<bool, ValueId> bag_indices_;       // by whether the last bag is open
  std::vector<bool> active_;                  // the iterations in which the current branch is taken; empty: all
  std::map<ValueId, ValueId> taken_;          // the parts that a value was reshaped to
  std::vector<std::vector<int64_t>> states_;  // loop-carried integers, by iteration; empty: not an integer
};

}  // namespace gradloom
