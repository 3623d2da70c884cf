#include "runtime/plan/text.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {
namespace {

constexpr std::string_view kArenas[] = {"state", "constants", "transient", "step", "feed", "input"};
constexpr std::string_view kStreams[] = {"compute", "comm", "copy"};
constexpr std::string_view kCollectives[] = {"all_reduce_sum", "broadcast", "reduce_scatter_sum", "all_gather", "reduce_sum"};
constexpr std::string_view kStates[] = {"parameter", "optimizer", "statistic", "accumulator", "loss_scale", "weight_copy", "average"};
constexpr std::string_view kEntries[] = {"step", "accumulate", "update", "eval", "predict", "last batch"};

template <typename T, size_t kCount>
std::string NameOf(const std::string_view (&names)[kCount], T value) {
  return std::string(names[static_cast<size_t>(value)]);
}

std::string Number(int64_t value) { return std::to_string(value); }

std::string Type(DType dtype, const Shape& shape, const Layout& layout) {
  std::string text = std::string(DTypeName(dtype)) + shape.ToString();
  return layout.plain() ? text : text + " as " + layout.ToString();
}

std::string List(const Attributes& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes) text += (text.empty() ? "" : ", ") + Escaped(name) + "=" + Attributes::ToString(value);
  return text.empty() ? "" : " {" + text + "}";
}

std::string Numbers(const std::vector<int>& numbers) {
  std::string text;
  for (int number : numbers) text += " " + Number(number);
  return text;
}

// A range of an arena. The end may overflow, because the text shows any plan, whatever its numbers.
std::string Range(int64_t offset, int64_t bytes) {
  const auto end = CheckedAdd(offset, bytes);
  return Number(offset) + " to " + (end ? Number(*end) : Number(offset) + " + " + Number(bytes));
}

std::string BufferText(const Buffer& buffer) {
  std::string text = buffer.dtype == DType::kUndefined ? "scratch" : Type(buffer.dtype, buffer.shape, buffer.layout);
  if (buffer.arena == Arena::kFeed) return text + " feed " + Number(buffer.feed);
  text += " " + NameOf(kArenas, buffer.arena) + " " + Range(buffer.offset, buffer.bytes);
  return buffer.whole < 0 ? text : text + " of %" + Number(buffer.whole);
}

class ProgramWriter {
 public:
  ProgramWriter(const Program& program, std::string indent) : program_(program), indent_(std::move(indent)) {}

  std::string Write() {
    Line(Number(static_cast<int64_t>(program_.instructions.size())) + " instructions, " + Number(program_.num_events) + " events, " +
         Number(program_.transient_bytes) + " transient bytes" +
         (program_.input_bytes == 0 ? "" : ", input slots of " + Number(program_.input_bytes) + " bytes"));
    for (size_t i = 0; i < program_.streams.size(); ++i) {
      const Stream& stream = program_.streams[i];
      Line("s" + Number(static_cast<int64_t>(i)) + " " + NameOf(kStreams, stream.kind) + " on target " + Number(stream.device) +
           ", threads " + Number(stream.threads));
    }
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      Line("%" + Number(static_cast<int64_t>(i)) + " " + Escaped(program_.buffers[i].name) + ": " + BufferText(program_.buffers[i]));
    }
    for (size_t i = 0; i < program_.instructions.size(); ++i) Write(static_cast<int64_t>(i), program_.instructions[i]);
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) { text_ += indent_ + line + "\n"; }

  std::string Operands(const Instruction& instruction, Access access) const {
    std::string text;
    for (const Use& use : instruction.uses) {
      if (use.access != access) continue;
      if (!text.empty()) text += ", ";
      if (use.buffer < 0 || use.buffer >= static_cast<int>(program_.buffers.size())) {
        text += use.buffer == -1 ? "absent" : "%" + Number(use.buffer) + "?";
      } else {
        text +=
            (access == Access::kScratch ? "" : Escaped(program_.buffers[static_cast<size_t>(use.buffer)].name)) + "%" + Number(use.buffer);
      }
    }
    return text;
  }

  static std::string Tag(const Instruction& i) { return i.tag == 0 ? "" : " tag " + Number(i.tag); }

  static std::string Verb(const Instruction& i) {
    switch (i.kind) {
      case InstructionKind::kLaunch: return Escaped(i.kernel);
      case InstructionKind::kCopy: return "copy";
      case InstructionKind::kRecord: return "record e" + Number(i.event);
      case InstructionKind::kWait: return "wait e" + Number(i.event);
      case InstructionKind::kCollective:
        return NameOf(kCollectives, i.collective) + " g" + Number(i.group) + (i.root == 0 ? "" : " root " + Number(i.root)) +
               (i.roots.empty() ? "" : " roots" + Numbers(i.roots)) + Tag(i);
      case InstructionKind::kSend: return "send p" + Number(i.peer) + Tag(i);
      case InstructionKind::kRecv: return "recv p" + Number(i.peer) + Tag(i);
      case InstructionKind::kIf: return "if";
      case InstructionKind::kLoop: return "loop at most " + Number(i.trip_bound);
    }
    return "?";
  }

  void Write(int64_t index, const Instruction& i) {
    std::string line = "#" + Number(index) + " s" + Number(i.stream) + " " + Verb(i);
    if (i.kind != InstructionKind::kRecord && i.kind != InstructionKind::kWait) {
      line += "(" + Operands(i, Access::kRead) + ")";
      if (const std::string writes = Operands(i, Access::kWrite); !writes.empty()) line += " -> " + writes;
      if (const std::string scratch = Operands(i, Access::kScratch); !scratch.empty()) line += " scratch " + scratch;
    }
    line += List(i.attributes);
    if (i.phase != PlanPhase::kNone && i.phase != PlanPhase::kForward) line += " " + std::string(PhaseName(i.phase));
    if (!i.origin.empty()) line += " ; " + Escaped(i.origin);
    Line(line);
    for (size_t k = 0; k < i.bodies.size(); ++k) {
      Line("  body " + Number(static_cast<int64_t>(k)) + ":");
      text_ += ProgramWriter(i.bodies[k], indent_ + "    ").Write();
    }
  }

  const Program& program_;
  const std::string indent_;
  std::string text_;
};

std::string InPlaces(const std::vector<int>& places) { return places.empty() ? "" : ", in places" + Numbers(places); }

std::string StateText(const Plan& plan) {
  std::string state, constants;
  for (const Place& place : plan.places) {
    state += (state.empty() ? "" : ", ") + Number(place.state_bytes);
    constants += (constants.empty() ? "" : ", ") + Number(place.constants_bytes);
  }
  const std::string each = plan.places.size() == 1 ? " bytes\n" : " bytes by place\n";
  std::string text = "state: " + state + each;
  for (const StateTensor& state : plan.state) {
    text += "  " + Escaped(state.name) + ": " + NameOf(kStates, state.kind);
    if (state.parameter >= 0) text += " of " + Number(state.parameter);
    text += " " + Type(state.dtype, state.shape, state.layout) + ", bytes " + Range(state.offset, state.bytes) +
            (state.initial.defined() || state.follows() ? "" : ", zero at first") + (state.partial ? ", a part on each rank" : "") +
            InPlaces(state.places) + "\n";
  }
  text += "constants: " + constants + each;
  for (const Constant& constant : plan.constants) {
    text += "  " + Escaped(constant.name) + ": " + Type(constant.value.dtype(), constant.value.shape(), {}) + ", from byte " +
            Number(constant.offset) + InPlaces(constant.places) + "\n";
  }
  return text;
}

// Whether the samples of `next` follow those of `rank` and everything else of the two is equal.
bool IsContinuation(const RankBinding& rank, const RankBinding& next) {
  return next.program == rank.program && next.groups == rank.groups && next.peers == rank.peers && next.shard_length == rank.shard_length &&
         CheckedAdd(rank.shard_start, rank.shard_length) == next.shard_start;
}

// Ranks that differ only in their samples are shown in one line.
std::string RanksText(const Entry& entry) {
  std::string text;
  for (size_t i = 0, end; i < entry.ranks.size(); i = end) {
    const RankBinding& first = entry.ranks[i];
    end = i + 1;
    while (end < entry.ranks.size() && IsContinuation(entry.ranks[end - 1], entry.ranks[end])) ++end;
    text += end == i + 1 ? "  rank " + Number(static_cast<int64_t>(i))
                         : "  ranks " + Number(static_cast<int64_t>(i)) + " to " + Number(static_cast<int64_t>(end) - 1);
    text += ": program " + Number(first.program) + ", " + Number(first.shard_length) + " samples" + (end == i + 1 ? "" : " each") +
            " from " + Number(first.shard_start);
    if (!first.groups.empty()) text += ", groups" + Numbers(first.groups);
    if (!first.peers.empty()) text += ", peers" + Numbers(first.peers);
    text += "\n";
  }
  return text;
}

std::string EntryText(const Plan& plan, size_t index) {
  const Entry& entry = plan.entries[index];
  std::string text =
      "entry " + Number(static_cast<int64_t>(index)) + ": " + NameOf(kEntries, entry.kind) + ", batch " + Number(entry.batch) + "\n";
  for (const Feed& feed : entry.feeds) {
    text += "  feed " + Escaped(feed.name) + ": " + Type(feed.dtype, feed.shape, {});
    text += feed.batch_axis < 0 ? "" : ", batch along " + Number(feed.batch_axis);
    text += (feed.index_extent == 0 ? "" : ", selects of " + Number(feed.index_extent)) + "\n";
  }
  for (const Fetch& fetch : entry.fetches) {
    text += "  fetch " + Escaped(fetch.name) + ": %" + Number(fetch.buffer);
    text += fetch.batch_axis < 0 ? "" : ", batch along " + Number(fetch.batch_axis);
    for (const FetchExtent& extent : fetch.extents) text += ", extent " + Number(extent.axis) + " by fetch " + Number(extent.fetch);
    text += "\n";
  }
  return text + RanksText(entry);
}

std::string LossText(const LossInfo& loss) {
  std::string text = "loss: " + Escaped(loss.type) + " of " + (loss.output.empty() ? "an inner value" : Escaped(loss.output)) + " and " +
                     Escaped(loss.target);
  if (loss.classes) text += ", classes along axis " + Number(loss.class_axis);
  if (loss.ignore_index) text += ", class " + Number(*loss.ignore_index) + " ignored";
  if (!loss.class_weight.empty()) text += ", class weights " + Attributes::ToString(loss.class_weight);
  return text + (loss.mean ? ", mean over positions\n" : "\n");
}

}  // namespace

std::string ArenaName(Arena arena) { return NameOf(kArenas, arena); }

std::string EntryKindName(EntryKind kind) { return NameOf(kEntries, kind); }

std::string ProgramText(const Program& program) { return ProgramWriter(program, "  ").Write(); }

std::string PlanText(const Plan& plan) {
  std::string text = "plan, format " + Number(Plan::kFormatVersion) + "\n";
  text += "model: " + Escaped(plan.model.name) + ", hash " + Escaped(plan.model.hash) + ", " +
          Number(static_cast<int64_t>(plan.model.bytes.size())) + " bytes without weights\n";
  for (const TiedTensor& tied : plan.model.tied)
    text += "tied: '" + Escaped(tied.name) + "' is '" + Escaped(tied.source) + "', transposed\n";
  for (const Target& target : plan.targets) {
    text +=
        "target: " + std::string(DeviceKindName(target.device)) + " " + Escaped(target.isa) + ", threads " + Number(target.threads) + "\n";
  }
  for (const auto& [name, value] : plan.properties) text += "property " + Escaped(name) + ": " + Escaped(value) + "\n";
  for (const LossInfo& loss : plan.losses) text += LossText(loss);
  for (const std::string& term : plan.loss_terms) text += "loss term: fetch " + Escaped(term) + "\n";
  text +=
      "schedule: " + Escaped(plan.schedule.kind) + ", lr " + Attributes::ToString(plan.schedule.lr) + List(plan.schedule.attributes) + "\n";
  text += "accumulate: " + Number(plan.accumulate) + "\n";
  text += "step: " + Number(plan.step.bytes) + " bytes, lr " + Number(plan.step.lr) + ", step " + Number(plan.step.step) + ", batch " +
          Number(plan.step.batch) + ", seed " + Number(plan.step.seed) +
          (plan.step.first < 0 ? "" : ", first sample " + Number(plan.step.first)) +
          (plan.step.lr64 < 0 ? "" : ", lr in float64 " + Number(plan.step.lr64)) + "\n";
  text += StateText(plan);
  for (size_t i = 0; i < plan.groups.size(); ++i)
    text += "group " + Number(static_cast<int64_t>(i)) + ":" + Numbers(plan.groups[i].ranks) + "\n";
  for (size_t i = 0; i < plan.entries.size(); ++i) text += EntryText(plan, i);
  for (size_t i = 0; i < plan.programs.size(); ++i)
    text += "program " + Number(static_cast<int64_t>(i)) + (plan.places.size() == 1 ? "" : ", place " + Number(plan.programs[i].place)) +
            ":\n" + ProgramText(plan.programs[i]);
  return text;
}

}  // namespace gradloom
