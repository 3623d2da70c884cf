#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/plan.pb.h"
#include "runtime/plan/plan_message.h"
#include "runtime/plan/verify_scope.h"

namespace gradloom {
namespace {

constexpr size_t kMaxNameBytes = 64 << 10;
constexpr size_t kMaxTextBytes = 1 << 20;  // string attributes and properties
constexpr int kMaxListLength = 1 << 20;    // of an attribute or of class weights
constexpr int kMaxMessages = 1 << 23;      // limit of the whole plan
// Each body is two messages deep. A plan has at most verify::kMaxDepth of them nested in each other; the rest of the message needs less
// than 8.
constexpr int kMaxMessageDepth = 2 * (verify::kMaxDepth + 1) + 8;

[[noreturn]] void Refuse(const std::string& message) { throw Error(ErrorCode::kPlan, message); }

// Counts the messages nested in one of this type without allocating memory for them: an empty message of two bytes takes a hundred times as
// much once it is parsed. False if the bytes are malformed or nested too deeply.
bool CountMessages(google::protobuf::io::CodedInputStream& input, const google::protobuf::Descriptor& type, int depth, int& count) {
  if (depth > kMaxMessageDepth) return false;
  if (++count > kMaxMessages) Refuse("the plan has more than " + std::to_string(kMaxMessages) + " parts");
  while (const uint32_t tag = input.ReadTag()) {
    uint64_t ignored;
    uint32_t bytes;
    switch (tag & 7) {
      case 0:
        if (!input.ReadVarint64(&ignored)) return false;
        break;
      case 1:
        if (!input.Skip(8)) return false;
        break;
      case 5:
        if (!input.Skip(4)) return false;
        break;
      case 2: {
        if (!input.ReadVarint32(&bytes) || bytes > static_cast<uint32_t>(kMaxMessageBytes)) return false;
        const auto* field = type.FindFieldByNumber(static_cast<int>(tag >> 3));
        if (field == nullptr || field->message_type() == nullptr) {
          if (!input.Skip(static_cast<int>(bytes))) return false;
          break;
        }
        const auto limit = input.PushLimit(static_cast<int>(bytes));
        if (!CountMessages(input, *field->message_type(), depth + 1, count) || input.BytesUntilLimit() != 0) return false;
        input.PopLimit(limit);
        break;
      }
      default: return false;
    }
  }
  return input.ConsumedEntireMessage();
}

// Converts messages to structs. Counts and sizes are checked before memory is allocated for them.
class Decoder {
 public:
  Decoder(int64_t data_bytes, const ReadData& read, PlanTensors tensors) : data_bytes_(data_bytes), read_(read), tensors_(tensors) {}

  void Decode(const file::Plan& from, Plan& plan) {
    for (const file::Target& t : from.targets()) {
      plan.targets.push_back({Enum(t.device(), DeviceKind::kCuda, "device kind"), Name(t.isa()), t.threads()});
    }
    plan.model.name = Name(from.model().name());
    plan.model.hash = Name(from.model().hash());
    plan.model.bytes.resize(static_cast<size_t>(Claim(from.model().bytes())));
    read_(from.model().bytes().offset(), plan.model.bytes.data(), from.model().bytes().bytes());
    for (const file::TiedTensor& tied : from.model().tied()) plan.model.tied.push_back({Name(tied.name()), Name(tied.source())});
    plan.schedule.kind = Name(from.schedule().kind());
    plan.schedule.lr = from.schedule().lr();
    plan.schedule.attributes = Decode(from.schedule().attributes());
    plan.accumulate = from.accumulate();
    const file::StepLayout& step = from.step();
    plan.step = {step.lr(), step.step(), step.batch(), step.seed(), step.first_plus_1() - 1, step.lr64_plus_1() - 1, step.bytes()};
    plan.places.clear();
    for (const file::Place& place : from.places()) plan.places.push_back({place.state_bytes(), place.constants_bytes()});
    for (const file::StateTensor& state : from.state()) plan.state.push_back(Decode(state));
    for (const file::Constant& constant : from.constants()) {
      plan.constants.push_back(
          {Name(constant.name()), constant.offset(), Large(constant.value()), {constant.places().begin(), constant.places().end()}});
    }
    for (const file::Program& program : from.programs()) plan.programs.push_back(Decode(program));
    for (const file::Entry& entry : from.entries()) plan.entries.push_back(Decode(entry));
    for (const file::Group& group : from.groups()) {
      plan.groups.push_back({{group.ranks().begin(), group.ranks().end()}});
    }
    for (const file::Loss& loss : from.losses()) plan.losses.push_back(Decode(loss));
    for (const std::string& term : from.loss_terms()) plan.loss_terms.push_back(Name(term));
    for (const file::Property& property : from.properties()) {
      if (!plan.properties.emplace(Name(property.name()), Text(property.value())).second)
        Refuse("property '" + Escaped(property.name()) + "' occurs twice");
    }
    if (claimed_ != data_bytes_)
      Refuse("the data section has " + std::to_string(data_bytes_) + " bytes, but the plan uses " + std::to_string(claimed_));
  }

 private:
  template <typename T>
  static T Enum(int value, T last, const std::string& what) {
    if (value < 0 || value > static_cast<int>(last)) Refuse("unknown " + what + " " + std::to_string(value));
    return static_cast<T>(value);
  }

  static std::string Text(const std::string& text, size_t limit = kMaxTextBytes) {
    if (text.size() > limit) Refuse("a text has " + std::to_string(text.size()) + " bytes; the limit is " + std::to_string(limit));
    return text;
  }
  static std::string Name(const std::string& name) { return Text(name, kMaxNameBytes); }

  static DType Type(int value) {
    const DType dtype = Enum(value, static_cast<DType>(kDTypes - 1), "element type");
    if (dtype != DType::kUndefined && DTypeBytes(dtype) == 0) Refuse("unknown element type " + std::to_string(value));
    return dtype;
  }

  template <typename Dims>
  static Shape ShapeOf(const Dims& dims) {
    if (dims.size() > kMaxRank) Refuse("a shape has " + std::to_string(dims.size()) + " dimensions");
    return Shape(std::vector<int64_t>(dims.begin(), dims.end()));
  }

  static LossInfo Decode(const file::Loss& from) {
    LossInfo loss{.type = Name(from.type()), .output = Name(from.output()), .target = Name(from.target())};
    loss.classes = from.classes();
    loss.class_axis = from.class_axis();
    if (from.ignores()) loss.ignore_index = from.ignore_index();
    if (from.class_weight_size() > kMaxListLength) Refuse("a loss has " + std::to_string(from.class_weight_size()) + " class weights");
    loss.class_weight.assign(from.class_weight().begin(), from.class_weight().end());
    loss.mean = from.mean();
    return loss;
  }

  static Layout LayoutOf(const std::string& text) { return text.empty() ? Layout{} : Layout::FromString(Name(text)); }

  static int MinusOne(int value, const std::string& what) {
    if (value < 0) Refuse(what + " " + std::to_string(value) + " is negative");
    return value - 1;
  }

  template <typename List>
  static void CheckLength(const List& list) {
    if (list.size() > kMaxListLength)
      Refuse("a list has " + std::to_string(list.size()) + " elements; the limit is " + std::to_string(kMaxListLength));
  }

  // Ranges are contiguous in the order of this walk and fill the data section, so in total they are no larger than the file.
  int64_t Claim(const file::Range& range) {
    if (range.offset() != AlignUp(claimed_, kAlignmentBytes) || range.bytes() < 0 || range.bytes() > data_bytes_ - range.offset()) {
      Refuse(std::to_string(range.bytes()) + " bytes at " + std::to_string(range.offset()) + " of the data section, which has " +
             std::to_string(data_bytes_) + ", do not directly follow the bytes before them");
    }
    claimed_ = range.offset() + range.bytes();
    return range.bytes();
  }

  Tensor Decode(const file::Tensor& from) { return Decode(from, PlanTensors::kRead); }
  // A tensor that may be a weight.
  Tensor Large(const file::Tensor& from) { return Decode(from, tensors_); }

  Tensor Decode(const file::Tensor& from, PlanTensors tensors) {
    const DType dtype = Type(from.dtype());
    const Shape shape = ShapeOf(from.dims());
    if (verify::BytesOf(dtype, shape, {}) != from.data().bytes()) {
      Refuse("a tensor has " + std::to_string(from.data().bytes()) + " bytes, which do not match " + std::string(DTypeName(dtype)) +
             shape.ToString());
    }
    Claim(from.data());
    if (tensors == PlanTensors::kSkipped) return {};
    Tensor tensor(dtype, shape);
    read_(from.data().offset(), tensor.data(), tensor.bytes());
    return tensor;
  }

  Attribute Decode(const file::Attribute& from) {
    switch (from.value_case()) {
      case file::Attribute::kInt: return from.int_();
      case file::Attribute::kFloat: return from.float_();
      case file::Attribute::kString: return Text(from.string());
      case file::Attribute::kInts: {
        CheckLength(from.ints().values());
        return std::vector<int64_t>(from.ints().values().begin(), from.ints().values().end());
      }
      case file::Attribute::kFloats: {
        CheckLength(from.floats().values());
        return std::vector<double>(from.floats().values().begin(), from.floats().values().end());
      }
      case file::Attribute::kStrings: {
        CheckLength(from.strings().values());
        std::vector<std::string> strings;
        for (const std::string& s : from.strings().values()) strings.push_back(Text(s));
        return strings;
      }
      case file::Attribute::kTensor: return Decode(from.tensor());
      case file::Attribute::VALUE_NOT_SET: break;
    }
    Refuse("attribute '" + Escaped(from.name()) + "' has no value");
  }

  Attributes Decode(const google::protobuf::RepeatedPtrField<file::Attribute>& from) {
    Attributes attributes;
    for (const file::Attribute& attribute : from) {
      const std::string name = Name(attribute.name());
      if (attributes.has(name)) Refuse("attribute '" + Escaped(name) + "' occurs twice");
      attributes.set(name, Decode(attribute));
    }
    return attributes;
  }

  StateTensor Decode(const file::StateTensor& from) {
    StateTensor state;
    state.name = Name(from.name());
    state.kind = Enum(from.kind(), StateKind::kAverage, "kind of state");
    state.dtype = Type(from.dtype());
    state.shape = ShapeOf(from.dims());
    state.layout = LayoutOf(from.layout());
    state.offset = from.offset();
    state.bytes = from.bytes();
    state.parameter = from.parameter();
    state.places = {from.places().begin(), from.places().end()};
    state.partial = from.partial();
    if (from.has_initial()) state.initial = Large(from.initial());
    return state;
  }

  Buffer Decode(const file::Buffer& from) {
    Buffer buffer;
    buffer.name = Name(from.name());
    buffer.arena = Enum(from.arena(), Arena::kInput, "arena");
    buffer.offset = from.offset();
    buffer.bytes = from.bytes();
    buffer.dtype = Type(from.dtype());
    buffer.shape = ShapeOf(from.dims());
    buffer.layout = LayoutOf(from.layout());
    buffer.feed = MinusOne(from.feed_plus_1(), "feed");
    buffer.whole = MinusOne(from.whole_plus_1(), "whole");
    return buffer;
  }

  Instruction Decode(const file::Instruction& from) {
    Instruction instruction;
    instruction.kind = Enum(from.kind(), InstructionKind::kLoop, "instruction");
    instruction.stream = from.stream();
    instruction.kernel = Name(from.kernel());
    instruction.op = Name(from.op());
    instruction.domain = Name(from.domain());
    instruction.attributes = Decode(from.attributes());
    if (from.use_buffers_size() != from.use_accesses_size())
      Refuse("an instruction has " + std::to_string(from.use_buffers_size()) + " operands and " + std::to_string(from.use_accesses_size()) +
             " kinds of access");
    for (int i = 0; i < from.use_buffers_size(); ++i) {
      instruction.uses.push_back({from.use_buffers(i), Enum(from.use_accesses(i), Access::kScratch, "kind of access")});
    }
    instruction.event = MinusOne(from.event_plus_1(), "event");
    instruction.collective = Enum(from.collective(), Collective::kReduceSum, "collective");
    instruction.root = from.root();
    instruction.roots.assign(from.roots().begin(), from.roots().end());
    instruction.group = MinusOne(from.group_plus_1(), "group");
    instruction.peer = MinusOne(from.peer_plus_1(), "peer");
    instruction.tag = from.tag();
    for (const file::Program& body : from.bodies()) instruction.bodies.push_back(Decode(body));
    instruction.trip_bound = from.trip_bound();
    instruction.origin = Name(from.origin());
    instruction.phase = Enum(from.phase(), PlanPhase::kUpdate, "phase");
    return instruction;
  }

  Program Decode(const file::Program& from) {
    Program program;
    for (const file::Stream& stream : from.streams()) {
      program.streams.push_back({Enum(stream.kind(), StreamKind::kCopy, "kind of stream"), stream.device(), stream.threads()});
    }
    for (const file::Buffer& buffer : from.buffers()) program.buffers.push_back(Decode(buffer));
    program.num_events = from.num_events();
    for (const file::Instruction& instruction : from.instructions()) program.instructions.push_back(Decode(instruction));
    program.transient_bytes = from.transient_bytes();
    program.place = from.place();
    program.input_bytes = from.input_bytes();
    return program;
  }

  Entry Decode(const file::Entry& from) {
    Entry entry;
    entry.kind = Enum(from.kind(), EntryKind::kLastBatch, "kind of entry");
    entry.batch = from.batch();
    for (const file::Feed& feed : from.feeds()) {
      entry.feeds.push_back(
          {Name(feed.name()), Type(feed.dtype()), ShapeOf(feed.dims()), feed.batch_axis(), feed.batch_inner(), feed.index_extent()});
    }
    for (const file::Fetch& fetch : from.fetches()) {
      entry.fetches.push_back({Name(fetch.name()), fetch.buffer(), fetch.batch_axis(), fetch.batch_inner()});
      for (const file::FetchExtent& extent : fetch.extents()) entry.fetches.back().extents.push_back({extent.axis(), extent.fetch()});
    }
    for (const file::Rank& rank : from.ranks()) {
      entry.ranks.push_back({rank.program(),
                             {rank.groups().begin(), rank.groups().end()},
                             {rank.peers().begin(), rank.peers().end()},
                             rank.shard_start(),
                             rank.shard_length(),
                             {rank.fetches().begin(), rank.fetches().end()}});
    }
    return entry;
  }

  const int64_t data_bytes_;
  const ReadData& read_;
  const PlanTensors tensors_;
  int64_t claimed_ = 0;
};

}  // namespace

Plan DecodePlan(const std::string& message, int64_t data_bytes, const ReadData& read, PlanTensors tensors) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(message.data());
  int count = 0;
  google::protobuf::io::CodedInputStream counted(bytes, static_cast<int>(message.size()));
  file::Plan parsed;
  google::protobuf::io::CodedInputStream input(bytes, static_cast<int>(message.size()));
  if (!CountMessages(counted, *file::Plan::descriptor(), 0, count) || !parsed.ParseFromCodedStream(&input) ||
      !input.ConsumedEntireMessage()) {
    Refuse("the structure of the plan is malformed, or nested too deeply");
  }
  Plan plan;
  Decoder(data_bytes, read, tensors).Decode(parsed, plan);
  return plan;
}

}  // namespace gradloom
