// Layers with data-dependent extents.
#include <algorithm>

#include "compiler/onnx/extents/extent_node.h"
#include "runtime/base/attention_form.h"

namespace gradloom {

// With running statistics every element is normalized independently; batch statistics are computed over valid elements. Which of them an
// entry uses is not known here (compiler/passes/training_view), so the node gets a mask and the number of valid elements.
void ExtentNode::BatchNormalization() {
  const Axes after = axes(in(0));
  if (after.contains(1)) Refuse(0, 1);
  for (size_t i = 1; i < num_inputs(); ++i) Only(i);
  if (after.empty()) return Same();
  Size count{1};
  for (int axis = 0; axis < rank(in(0)); ++axis) {
    if (axis != 1) count = Times(count, ExtentOf(in(0), axis));
  }
  std::vector<ValueId> operands = node_.inputs;
  operands.push_back(Counts(after, shape(in(0))));
  operands.push_back(ScalarOf(count));
  node_.domain = kGradloomDomain;
  Same(operands);
  SetAxes(0, after);
}

Size ExtentNode::SameSize(size_t i, int axis, size_t k, int other) {
  const Size a = ExtentOf(in(i), axis), b = ExtentOf(in(k), other);
  if (a == b) return a;
  if (a.known()) Refuse(k, other, "another operand has the fixed extent " + std::to_string(a.factor) + " there");
  if (b.known()) Refuse(i, axis, "another operand has the fixed extent " + std::to_string(b.factor) + " there");
  Axes same{{0, a}};
  Merge(same, 0, b, shape(in(k))[other], shape(in(i))[axis]);
  return same[0];
}

// LSTM, GRU and RNN: samples are independent, and invalid steps are past `sequence_lens`.
void ExtentNode::Recurrent() {
  constexpr size_t kLengths = 4, kFirstState = 5, kLastState = 6;
  const bool batch_first = Attr("layout", 0) == 1;
  const int time = batch_first ? 1 : 0, batch = 1 - time, state = batch_first ? 0 : 1;
  for (size_t i : {size_t{0}, kFirstState, kLastState}) ExpectRank(i, 3);
  ExpectRank(kLengths, 1);
  Only(0, {time, batch});
  for (size_t i : {1, 2, 3, 7}) Only(i);
  Only(kLengths, {0});
  Size samples = ExtentOf(in(0), batch);
  if (in(kLengths) != kNoValue) samples = SameSize(0, batch, kLengths, 0);
  for (size_t i = kFirstState; i <= kLastState; ++i) {
    Only(i, {state});
    if (in(i) != kNoValue) samples = SameSize(0, batch, i, state);
  }
  const Size steps = ExtentOf(in(0), time);
  std::vector<ValueId> operands = node_.inputs;
  if (!steps.known() && in(kLengths) == kNoValue) {
    operands.resize(std::max(operands.size(), kLengths + 1), kNoValue);
    const ValueId length = Reshaped(Op("Cast", {ScalarOf(steps)}, {{"to", static_cast<int64_t>(DType::kInt32)}}), {1});
    operands[kLengths] = Op("Expand", {length, Ints({shape(in(0))[batch]})});
  }
  Same(operands);
  SetAxes(0, batch_first ? Axes{{0, samples}, {1, steps}} : Axes{{0, steps}, {2, samples}});
  for (size_t i = 1; i < results_.size(); ++i) SetAxes(i, {{state, samples}});
}

// Queries are independent; invalid keys are masked.
void ExtentNode::Attention() {
  using enum attention::Input;
  using enum attention::Output;
  for (size_t i : {kQ, kK, kV}) ExpectRank(i, 3, 4);
  ExpectRank(kMask, 2, 4);
  ExpectRank(kPastKey, 4);
  const int tokens = rank(in(kQ)) == 3 ? 1 : 2, of_keys = rank(in(kK)) == 3 ? 1 : 2, of_values = rank(in(kV)) == 3 ? 1 : 2;
  Only(kQ, {0, tokens});
  Only(kK, {0, of_keys});
  Only(kV, {0, of_values});
  for (size_t i = kPastKey; i <= kLengths; ++i) Only(i, {0});
  SameSize(kQ, 0, kK, 0);
  const Size samples = SameSize(kQ, 0, kV, 0), queries = ExtentOf(in(kQ), tokens);
  Size keys = SameSize(kK, of_keys, kV, of_values);
  std::vector<ValueId> operands = node_.inputs;
  int64_t most = shape(in(kK))[of_keys];
  if (!keys.known()) {
    // If no key is valid, the first position is attended to; its value is 0.
    operands[kV] = Masked(in(kV), {{of_values, keys}}, 0);
    if (in(kPastKey) != kNoValue) {
      const int64_t past = shape(in(kPastKey))[2];
      keys = Sum(keys, {past});
      most += past;
    }
    const ValueId mask = in(kMask);
    const int n = mask == kNoValue ? 2 : rank(mask);
    const ValueId counts = Mask(NewSize(Op("Max", {ScalarOf(keys), Int(1)}), std::max<int64_t>(Bound(keys), 1)), most, n - 1, n);
    operands.resize(std::max<size_t>(operands.size(), kMask + 1), kNoValue);
    if (mask == kNoValue) {
      operands[kMask] = Op("Expand", {counts, Ints({shape(in(kQ))[tokens], most})});
    } else if (shape(mask)[n - 1] != most && shape(mask)[n - 1] != 1) {
      Refuse(kK, of_keys, "the mask covers fewer keys");
    } else if (dtype(mask) == DType::kBool) {
      operands[kMask] = Op("And", {counts, mask});
    } else {
      // Half of the lowest number, so that sums with scores stay finite.
      operands[kMask] = Op("Where", {counts, mask, Scalar(Lowest(dtype(mask)) / 2, dtype(mask))});
    }
  } else if (in(kPastKey) != kNoValue) {
    keys = Size{keys.factor + shape(in(kPastKey))[2]};
  }
  Same(operands);
  SetAxes(kY, {{0, samples}, {tokens, queries}});
  for (size_t i : {kPresentKey, kPresentValue}) SetAxes(i, {{0, samples}, {2, keys}});
  SetAxes(kScores, {{0, samples}, {2, queries}, {3, keys}});
}

// Operands: images, boxes and the image of each box, or the latter two in one tensor. Invalid boxes get the first image.
void ExtentNode::RegionsOfInterest() {
  const size_t of_image = num_inputs() - 1;
  ExpectRank(1, 2);
  ExpectRank(of_image, 1, 2);
  Only(0);
  Only(1, {0});
  Only(of_image, {0});
  const Size boxes = SameSize(1, 0, of_image, 0);
  std::vector<ValueId> operands = node_.inputs;
  operands[of_image] = MaskedAll(in(of_image), 0);
  Same(operands);
  SetAxes(0, {{0, boxes}});
}

}  // namespace gradloom
