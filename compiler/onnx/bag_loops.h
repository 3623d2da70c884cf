// A loop over bags, as exporters write nn.EmbeddingBag: round i takes the i-th part of a tensor, and makes one row of it by a sum, a mean
// or a maximum. Written out as a loop it has a node for each sample; here all rounds are computed at once. Equal parts are put beside each
// other, [rounds, length, ...], so that a batch can be any, and be divided. Parts that begin where the data of a step say (bag_cuts.cc)
// stay one behind the other, [words, ...], and are summed by the number of their bag.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/onnx/batch_axis.h"
#include "compiler/onnx/importer.h"

namespace gradloom {

// What it does not know makes it give up, and the loop is run as any other. Values of the body are made where an output needs them, each
// once, for all rounds.
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

  // What the loop gives; nothing where it is no such loop.
  std::optional<std::vector<Binding>> Run();

 private:
  // What a value of the body is over all rounds, or over those in which a branch is taken.
  struct Lane {
    enum class Kind : uint8_t {
      kSame,       // one value, of the graph around
      kNumbers,    // an integer or a truth in each round, known
      kGathered,   // the sequence of the rows of the rounds before
      kAppended,   // the same with this round's
      kAt,         // one element of a list in each round, which the data of a step decide: where in it
      kBehind,     // `whole` less that
      kPart,       // [rounds, length, ...] of a [length, ...] in each round, or [words, ...] of all rounds
      kRow,        // what `by` makes of a part along its length in each round
      kPlace,      // where a loop within, over the elements of a part, is
      kNext,       // the place behind that
      kElement,    // [rounds, length] of what it has there
      kPlaces,     // places that it has kept so far
      kPlaceKept,  // the same with this one
      kKept,       // those that it keeps: where `id` is true
      kCount,      // how many
      kNone,       // whether there are none
      kEmpty,      // whether a bag that the data decide has no element
      kFilled,     // whether it has one
    };
    Kind kind = Kind::kSame;
    ValueId id = kNoValue;
    std::vector<int64_t> numbers = {};  // by round
    ValueId kept = kNoValue;            // of a part: [rounds, length] or [words], what of it is there; kNoValue: all
    std::string by = {};                // of a row: ReduceSum, ReduceMean or ReduceMax
    bool single = false;                // of a row: it is [1, ...] in each round
    int64_t whole = 0;                  // of kBehind
    bool operator==(const Lane&) const = default;
  };
  using Made = std::optional<Lane>;
  using Kind = Lane::Kind;

  static bool IsPlain(const onnx::NodeProto& node) { return node.domain().empty() || node.domain() == "ai.onnx"; }

  struct Body {
    const onnx::GraphProto* graph;
    Body* outer;
    Scope scope;
    std::map<std::string, Made> lanes;
  };

  bool FindRounds();
  const onnx::NodeProto* Maker(const std::string& name, const onnx::GraphProto& graph);
  Made Eval(const std::string& name, Body& body);
  Made EvalNode(const onnx::NodeProto& node, Body& body);
  Made EvalIf(const onnx::NodeProto& node, Body& body);
  Made EvalKept(const onnx::NodeProto& node, Body& body);
  Made EvalBranch(const onnx::NodeProto& node, const char* name, Body& body);
  Made EvalGather(const onnx::NodeProto& node, const Lane& data, const Lane& indices);
  Made NumbersAt(const Lane& list, const std::vector<int64_t>& begins, const std::vector<int64_t>& ends);
  Made EvalSlice(const onnx::NodeProto& node, Body& body, const Lane& data);
  Made EvalBinary(const onnx::NodeProto& node, const Lane& a, const Lane& b);
  Made EvalReduced(const onnx::NodeProto& node, Body& body, const Lane& part);
  Made EvalConstant(const onnx::NodeProto& node, Body& body);
  Made EvalWhere(const std::vector<bool>& rounds, const onnx::NodeProto& node, const char* name, Body& body);
  ValueId Reduced(const Lane& row);

  // bag_cuts.cc
  // What a list is made of: element i is element i + shift of `list` or, behind its last one, `end`.
  struct Cuts {
    ValueId list = kNoValue;
    int64_t shift = 0;
    std::optional<int64_t> end = {};
  };
  static bool IsPlaceInData(const Lane& lane) { return lane.kind == Kind::kAt || lane.kind == Kind::kBehind; }
  Cuts CutsOf(ValueId id);
  bool AreBounds(const Lane& begin, const Lane& end);
  bool IsLast() const;
  bool TakesBags(const Lane& begin, const Lane& end);
  bool TakesWords(int64_t extent);
  bool OfList(const Lane& data);
  ValueId BagOfWord(int64_t words, bool open);
  ValueId Collected(const Lane& row);

  // Data that is known, or null.
  const Tensor* Constant(const Lane& lane) { return lane.kind == Kind::kSame ? Constant(lane.id) : nullptr; }
  const Tensor* Constant(ValueId id);
  // Of the axis that parts are taken from.
  int64_t ExtentOf(ValueId id);
  const Tensor* Read(std::optional<Tensor> now);
  std::optional<std::vector<int64_t>> Numbers(const Lane& lane);
  std::optional<std::vector<int64_t>> Axes(const onnx::NodeProto& node, int input, Body& body);
  bool TakesParts(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends, int64_t extent);
  ValueId Parts(ValueId data);
  ValueId Emit(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return i_.EmitOp(op, std::move(inputs), std::move(attributes), origin_, "");
  }
  bool active(size_t round) const { return active_.empty() || active_[round]; }
  ValueId Ints(const std::vector<int64_t>& values) { return i_.Ints(origin_, values); }
  DType TypeOf(ValueId id) const { return i_.emitter().graph().value(id).dtype; }
  // Of a single number that elements of a type are compared with, or added to.
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
  int64_t steps_ = 0;  // nodes that were looked at
  int depth_ = 0;      // values that are being made
  int64_t length_ = 0;
  int64_t rounds_ = 0;
  // Where the data of a step decide where bags begin: [rounds] or, where the last one `ends_` there too, [rounds + 1]; how many words all
  // of them have (0: not known yet).
  ValueId cuts_ = kNoValue;
  bool ends_ = false;
  int64_t words_ = 0;
  // Whether the last bag takes all words from its first one on, or at least is divided by their number, as PyTorch does.
  bool open_ = false, counts_on_ = false;
  std::map<bool, ValueId> bag_of_word_;       // by whether the last one is open
  std::vector<bool> active_;                  // the rounds in which the branch at hand is taken; empty: all
  std::map<ValueId, ValueId> taken_;          // the parts of a value
  std::vector<std::vector<int64_t>> states_;  // of integers that the loop carries, by round and behind the last one; empty: of others
};

}  // namespace gradloom
