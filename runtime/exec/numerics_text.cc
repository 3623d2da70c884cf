#include "runtime/exec/numerics_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/base/counted.h"
#include "runtime/base/error.h"
#include "runtime/base/joined.h"
#include "runtime/base/number_text.h"
#include "runtime/exec/rethrow.h"

namespace gradloom {
namespace {

constexpr size_t kShownReads = 4;

int64_t First(const ScannedValue& value) { return value.nans > 0 ? value.first_nan : value.first_infinity; }

std::string TypeOf(const ScannedValue& value) {
  return "'" + Escaped(value.buffer->name) + "' " + std::string(DTypeName(value.buffer->dtype)) + value.buffer->shape.ToString();
}

// "2 NaN and 1 infinity of 12 elements, the first at [1, 0]".
std::string CountsOf(const ScannedValue& value) {
  std::string text = value.nans > 0 ? std::to_string(value.nans) + " NaN" : "";
  if (value.infinities > 0) text += (text.empty() ? "" : " and ") + Counted(value.infinities, "infinity", "infinities");
  text += " of " + Counted(value.elements(), "element", "elements");
  const std::vector<int64_t> index = IndexOf(value.buffer->shape, First(value));
  const std::string at = JoinedTexts(index, [](int64_t i) { return std::to_string(i); });
  if (!index.empty()) text += ", the first" + std::string(value.nans > 0 && value.infinities > 0 ? " NaN" : "") + " at [" + at + "]";
  return text;
}

// "'x' is from 0 to 1", "'x' is from 0 to 1 except 3 infinities".
std::string RangeOf(const ScannedValue& value) {
  std::string text = "'" + Escaped(value.buffer->name) + "' ";
  const int64_t others = value.nans + value.infinities;
  const bool has_range = others < value.elements();
  if (value.elements() == 0) return text + "is empty";
  if (has_range) {
    text += value.min == value.max ? "is " + NumberText(value.min) : "is from " + NumberText(value.min) + " to " + NumberText(value.max);
    if (others > 0) text += " except ";
  } else {
    text += "is ";
  }
  if (value.nans > 0) text += std::to_string(value.nans) + " NaN";
  if (value.infinities > 0) text += (value.nans > 0 ? " and " : "") + Counted(value.infinities, "infinity", "infinities");
  return text;
}

}  // namespace

std::vector<int64_t> IndexOf(const Shape& shape, int64_t element) {
  std::vector<int64_t> index(static_cast<size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  return index;
}

std::string NonFiniteText::Node() const {
  const Instruction& instruction = *site.instruction;
  const std::string origin = instruction.origin.empty() ? "" : " '" + Escaped(instruction.origin) + "'";
  if (Communicates(instruction)) return std::string(CommunicationName(instruction)) + origin;
  if (instruction.kind == InstructionKind::kCopy) return "copy" + origin;
  return NodeOf(instruction);
}

std::string NonFiniteText::When() const {
  const std::string_view phase = PhaseName(program().instructions[static_cast<size_t>(site.top)].phase);
  return phase.empty() ? " in" : " in the " + std::string(phase) + (phase == "update" ? " of" : " pass of");
}

std::string NonFiniteText::Device() const { return plan.num_ranks() > 1 ? ", on device " + std::to_string(site.rank) : ""; }

int NonFiniteText::FeedOf(const Buffer& buffer) const {
  if (buffer.arena == Arena::kFeed) return buffer.feed;
  if (buffer.arena != Arena::kInput) return -1;
  for (const Instruction& instruction : program().instructions) {
    if (instruction.kind != InstructionKind::kCopy || program().streams[static_cast<size_t>(instruction.stream)].kind != StreamKind::kCopy)
      continue;
    const Buffer& to = program().buffers[static_cast<size_t>(instruction.uses[1].buffer)];
    if (to.offset <= buffer.offset && buffer.offset < to.offset + to.bytes)
      return program().buffers[static_cast<size_t>(instruction.uses[0].buffer)].feed;
  }
  return -1;
}

std::string NonFiniteText::SampleOf(const Buffer& buffer, int64_t element) const {
  const int feed = FeedOf(buffer);
  if (feed < 0) return "";
  const Feed& stated = entry_of_plan().feeds[static_cast<size_t>(feed)];
  // A device may have all samples, besides its own.
  const bool all = buffer.shape == stated.shape;
  const int64_t samples = all ? entry_of_plan().batch : binding().shard_length;
  const std::optional<SampleStride> stride = SamplesIn(buffer.shape, stated.batch_axis, stated.batch_inner, samples);
  if (!stride) return "";
  const int64_t sample = element / stride->together % samples + (all ? 0 : binding().shard_start);
  return ", in sample " + std::to_string(sample) + " of the batch";
}

std::string NonFiniteText::Made() const {
  std::string text = Node() + When() + " step " + std::to_string(step) + Device();
  const auto bad = std::find_if(writes.begin(), writes.end(), [](const ScannedValue& value) { return !value.finite(); });
  if (bad != writes.end()) text += ": " + TypeOf(*bad) + " has " + CountsOf(*bad);
  size_t shown = 0;
  for (const ScannedValue& read : reads) {
    if (shown++ == kShownReads) break;
    text += (shown == 1 ? "; of its inputs, " : ", ") + RangeOf(read);
    if (!read.finite()) text += SampleOf(*read.buffer, First(read));
  }
  return text;
}

std::string NonFiniteText::Given(const ScannedValue& read) const {
  const Buffer& buffer = *read.buffer;
  const int feed = FeedOf(buffer);
  std::string what = feed >= 0                           ? "input '" + Escaped(entry_of_plan().feeds[static_cast<size_t>(feed)].name) + "'"
                     : buffer.arena == Arena::kState     ? "state '" + Escaped(buffer.name) + "'"
                     : buffer.arena == Arena::kConstants ? "constant '" + Escaped(buffer.name) + "'"
                                                         : "'" + Escaped(buffer.name) + "'";
  what += feed >= 0 ? " of step " + std::to_string(step) : " before step " + std::to_string(step);
  return what + " has " + CountsOf(read) + SampleOf(buffer, First(read)) + Device() + "; " + Node() + " reads it";
}

}  // namespace gradloom
