#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/plan/plan.pb.h"
#include "runtime/plan/plan_message.h"

namespace gradloom {
namespace {

class Encoder {
 public:
  explicit Encoder(EncodedPlan& out) : out_(out) {}

  void Encode(const Plan& plan, file::Plan& to) {
    for (const Target& target : plan.targets) {
      file::Target& t = *to.add_targets();
      t.set_device(static_cast<int>(target.device));
      t.set_isa(target.isa);
      t.set_threads(target.threads);
    }
    to.mutable_model()->set_name(plan.model.name);
    to.mutable_model()->set_hash(plan.model.hash);
    Add(plan.model.bytes.data(), static_cast<int64_t>(plan.model.bytes.size()), *to.mutable_model()->mutable_bytes());
    for (const TiedTensor& tied : plan.model.tied) {
      file::TiedTensor& t = *to.mutable_model()->add_tied();
      t.set_name(tied.name);
      t.set_source(tied.source);
    }
    to.mutable_schedule()->set_kind(plan.schedule.kind);
    to.mutable_schedule()->set_lr(plan.schedule.lr);
    Encode(plan.schedule.attributes, *to.mutable_schedule()->mutable_attributes());
    to.set_accumulate(plan.accumulate);
    Encode(plan.step, *to.mutable_step());
    for (const StateTensor& state : plan.state) Encode(state, *to.add_state());
    for (const Place& place : plan.places) {
      file::Place& p = *to.add_places();
      p.set_state_bytes(place.state_bytes);
      p.set_constants_bytes(place.constants_bytes);
    }
    for (const Constant& constant : plan.constants) {
      file::Constant& c = *to.add_constants();
      c.set_name(constant.name);
      c.set_offset(constant.offset);
      Encode(constant.value, *c.mutable_value());
      c.mutable_places()->Add(constant.places.begin(), constant.places.end());
    }
    for (const Program& program : plan.programs) Encode(program, *to.add_programs());
    for (const Entry& entry : plan.entries) Encode(entry, *to.add_entries());
    for (const Group& group : plan.groups) to.add_groups()->mutable_ranks()->Add(group.ranks.begin(), group.ranks.end());
    for (const LossInfo& loss : plan.losses) Encode(loss, *to.add_losses());
    for (const std::string& term : plan.loss_terms) to.add_loss_terms(term);
    for (const auto& [name, value] : plan.properties) {
      file::Property& property = *to.add_properties();
      property.set_name(name);
      property.set_value(value);
    }
  }

 private:
  void Add(const void* data, int64_t bytes, file::Range& range) {
    const int64_t offset = AlignUp(out_.data_bytes, kAlignmentBytes);
    range.set_offset(offset);
    range.set_bytes(bytes);
    out_.pieces.push_back({data, offset, bytes});
    out_.data_bytes = offset + bytes;
  }

  template <typename Message>
  static void Dims(const Shape& shape, Message& to) {
    to.mutable_dims()->Add(shape.begin(), shape.end());
  }

  static void Encode(const LossInfo& loss, file::Loss& to) {
    to.set_type(loss.type);
    to.set_output(loss.output);
    to.set_target(loss.target);
    to.set_classes(loss.classes);
    to.set_class_axis(loss.class_axis);
    to.set_ignores(loss.ignore_index.has_value());
    to.set_ignore_index(loss.ignore_index.value_or(0));
    to.mutable_class_weight()->Add(loss.class_weight.begin(), loss.class_weight.end());
    to.set_mean(loss.mean);
  }

  static std::string Text(const Layout& layout) { return layout.plain() ? "" : layout.ToString(); }

  void Encode(const Tensor& tensor, file::Tensor& to) {
    to.set_dtype(static_cast<int>(tensor.dtype()));
    Dims(tensor.shape(), to);
    Add(tensor.data(), tensor.bytes(), *to.mutable_data());
  }

  void Encode(const Attribute& value, file::Attribute& to) {
    if (const auto* i = std::get_if<int64_t>(&value)) to.set_int_(*i);
    if (const auto* f = std::get_if<double>(&value)) to.set_float_(*f);
    if (const auto* s = std::get_if<std::string>(&value)) to.set_string(*s);
    if (const auto* l = std::get_if<std::vector<int64_t>>(&value)) to.mutable_ints()->mutable_values()->Add(l->begin(), l->end());
    if (const auto* l = std::get_if<std::vector<double>>(&value)) to.mutable_floats()->mutable_values()->Add(l->begin(), l->end());
    if (const auto* l = std::get_if<std::vector<std::string>>(&value)) {
      for (const std::string& s : *l) to.mutable_strings()->add_values(s);
    }
    if (const auto* t = std::get_if<Tensor>(&value)) Encode(*t, *to.mutable_tensor());
  }

  void Encode(const Attributes& attributes, google::protobuf::RepeatedPtrField<file::Attribute>& to) {
    for (const auto& [name, value] : attributes) {
      file::Attribute& attribute = *to.Add();
      attribute.set_name(name);
      Encode(value, attribute);
    }
  }

  static void Encode(const StepLayout& step, file::StepLayout& to) {
    to.set_lr(step.lr);
    to.set_step(step.step);
    to.set_batch(step.batch);
    to.set_seed(step.seed);
    to.set_first_plus_1(step.first + 1);
    to.set_lr64_plus_1(step.lr64 + 1);
    to.set_bytes(step.bytes);
  }

  void Encode(const StateTensor& state, file::StateTensor& to) {
    to.set_name(state.name);
    to.set_kind(static_cast<int>(state.kind));
    to.set_dtype(static_cast<int>(state.dtype));
    Dims(state.shape, to);
    to.set_layout(Text(state.layout));
    to.set_offset(state.offset);
    to.set_bytes(state.bytes);
    to.set_parameter(state.parameter);
    to.mutable_places()->Add(state.places.begin(), state.places.end());
    to.set_partial(state.partial);
    if (state.initial.defined()) Encode(state.initial, *to.mutable_initial());
  }

  static void Encode(const Buffer& buffer, file::Buffer& to) {
    to.set_name(buffer.name);
    to.set_arena(static_cast<int>(buffer.arena));
    to.set_offset(buffer.offset);
    to.set_bytes(buffer.bytes);
    to.set_dtype(static_cast<int>(buffer.dtype));
    Dims(buffer.shape, to);
    to.set_layout(Text(buffer.layout));
    to.set_feed_plus_1(buffer.feed + 1);
    to.set_whole_plus_1(buffer.whole + 1);
  }

  void Encode(const Instruction& instruction, file::Instruction& to) {
    to.set_kind(static_cast<int>(instruction.kind));
    to.set_stream(instruction.stream);
    to.set_kernel(instruction.kernel);
    to.set_op(instruction.op);
    to.set_domain(instruction.domain);
    Encode(instruction.attributes, *to.mutable_attributes());
    for (const Use& use : instruction.uses) {
      to.add_use_buffers(use.buffer);
      to.add_use_accesses(static_cast<int>(use.access));
    }
    to.set_event_plus_1(instruction.event + 1);
    to.set_collective(static_cast<int>(instruction.collective));
    to.set_root(instruction.root);
    to.mutable_roots()->Add(instruction.roots.begin(), instruction.roots.end());
    to.set_group_plus_1(instruction.group + 1);
    to.set_peer_plus_1(instruction.peer + 1);
    to.set_tag(instruction.tag);
    for (const Program& body : instruction.bodies) Encode(body, *to.add_bodies());
    to.set_trip_bound(instruction.trip_bound);
    to.set_origin(instruction.origin);
    to.set_phase(static_cast<int>(instruction.phase));
  }

  void Encode(const Program& program, file::Program& to) {
    for (const Stream& stream : program.streams) {
      file::Stream& s = *to.add_streams();
      s.set_kind(static_cast<int>(stream.kind));
      s.set_device(stream.device);
      s.set_threads(stream.threads);
    }
    for (const Buffer& buffer : program.buffers) Encode(buffer, *to.add_buffers());
    to.set_num_events(program.num_events);
    for (const Instruction& instruction : program.instructions) Encode(instruction, *to.add_instructions());
    to.set_transient_bytes(program.transient_bytes);
    to.set_place(program.place);
    to.set_input_bytes(program.input_bytes);
  }

  static void Encode(const Entry& entry, file::Entry& to) {
    to.set_kind(static_cast<int>(entry.kind));
    to.set_batch(entry.batch);
    for (const Feed& feed : entry.feeds) {
      file::Feed& f = *to.add_feeds();
      f.set_name(feed.name);
      f.set_dtype(static_cast<int>(feed.dtype));
      Dims(feed.shape, f);
      f.set_batch_axis(feed.batch_axis);
      f.set_batch_inner(feed.batch_inner);
      f.set_index_extent(feed.index_extent);
    }
    for (const Fetch& fetch : entry.fetches) {
      file::Fetch& f = *to.add_fetches();
      f.set_name(fetch.name);
      f.set_buffer(fetch.buffer);
      f.set_batch_axis(fetch.batch_axis);
      f.set_batch_inner(fetch.batch_inner);
      for (const FetchExtent& extent : fetch.extents) {
        file::FetchExtent& e = *f.add_extents();
        e.set_axis(extent.axis);
        e.set_fetch(extent.fetch);
      }
    }
    for (const RankBinding& rank : entry.ranks) {
      file::Rank& r = *to.add_ranks();
      r.set_program(rank.program);
      r.mutable_groups()->Add(rank.groups.begin(), rank.groups.end());
      r.mutable_peers()->Add(rank.peers.begin(), rank.peers.end());
      r.set_shard_start(rank.shard_start);
      r.set_shard_length(rank.shard_length);
      r.mutable_fetches()->Add(rank.fetches.begin(), rank.fetches.end());
    }
  }

  EncodedPlan& out_;
};

}  // namespace

EncodedPlan EncodePlan(const Plan& plan) {
  EncodedPlan out;
  file::Plan message;
  Encoder(out).Encode(plan, message);
  const size_t bytes = message.ByteSizeLong();
  if (bytes > static_cast<size_t>(kMaxMessageBytes)) {
    throw Error(ErrorCode::kLimit, "the plan has " + std::to_string(bytes) + " bytes without its tensors, more than the limit of " +
                                       std::to_string(kMaxMessageBytes));
  }
  GRADLOOM_CHECK(message.SerializeToString(&out.message));
  return out;
}

}  // namespace gradloom
