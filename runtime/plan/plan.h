// The plan: everything that will happen, decided before step 0. It is data, never code: plain structs with integer ids. plan.proto is their
// form on disk, docs/plan-format.md describes what they mean.
//
// A plan has a state arena (parameters, optimizer state, statistics: fixed offsets, shared by all entries) and a constants arena. Each
// entry (for example a training step at one batch size, or an evaluation) names one program per rank. A program has streams, buffers in
// arenas, events and instructions. All streams join at the end of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/catalog/kernel.h"
#include "runtime/base/attributes.h"
#include "runtime/base/dtype.h"
#include "runtime/base/layout.h"
#include "runtime/base/shape.h"
#include "runtime/plan/loss_info.h"

namespace gradloom {

// The block of memory that a buffer lies in. A rank has one of each on its device.
enum class Arena : uint8_t {
  kState,      // survives the step; offsets are those of Plan::state
  kConstants,  // read-only; the bytes are Plan::constants
  kTransient,  // of the running entry only; nothing in it survives the step except what is fetched
  kStep,       // the step parameters: written by the host before the step, read-only during it
  kFeed,       // memory of the caller, bound at each step: buffer.offset is 0, buffer.feed says which feed
  kInput,      // two slots that steps use in turn: a copy stream fills one while the previous step runs on the other
};

// A buffer is one value. One instruction writes it (or none: it is given), and every read of it means the bytes of that write. Values share
// bytes, never a buffer: the next value of a state tensor, and an output that overwrites its input, are separate buffers at the same place.
struct Buffer {
  std::string name;  // of the graph's value
  Arena arena = Arena::kTransient;
  int64_t offset = 0;  // bytes from the start of the arena, a multiple of kAlignmentBytes
  int64_t bytes = 0;
  DType dtype = DType::kUndefined;  // kUndefined: scratch
  Shape shape;
  Layout layout;
  int feed = -1;   // index into Entry::feeds, for kFeed
  int whole = -1;  // a part or a view: the buffer that this one is a range of (which itself is not a part).
                   // Every byte of a whole is written once, through the whole or one of its parts.

  OperandType operand() const { return {dtype, shape, layout}; }
};

enum class Access : uint8_t { kRead, kWrite, kScratch };

// One operand of an instruction. buffer -1 is an absent optional operand.
struct Use {
  int buffer = -1;
  Access access = Access::kRead;
  bool operator==(const Use&) const = default;
};

// A copy stream copies feeds into the input slot and does nothing else. It waits for no other stream, so it may run ahead, during the
// previous step.
enum class StreamKind : uint8_t { kCompute, kComm, kCopy };

struct Stream {
  StreamKind kind = StreamKind::kCompute;
  int device = 0;   // index into Plan::targets, the kind of device; the same for all streams of a program
  int threads = 1;  // threads of one operator on the CPU
};

enum class InstructionKind : uint8_t { kLaunch, kCopy, kRecord, kWait, kCollective, kSend, kRecv, kIf, kLoop };

// The part of a step that an instruction belongs to. It orders nothing, but no instruction reads what a later phase writes. kNone: records,
// waits, input copies, and all instructions of a plan by a program that did not note phases.
enum class PlanPhase : uint8_t { kNone, kForward, kBackward, kUpdate };

// kReduceSum: each operand is summed for one member, its root. The others have no result of it.
enum class Collective : uint8_t { kAllReduceSum, kBroadcast, kReduceScatterSum, kAllGather, kReduceSum };

// "all-reduce", "broadcast", "reduce-scatter", "all-gather", "reduce".
std::string_view CollectiveName(Collective collective);

struct Program;

struct Instruction {
  InstructionKind kind = InstructionKind::kLaunch;
  int stream = 0;
  // kLaunch: the name of the catalog row, and the operator that it computes. Uses are the inputs in order, then the outputs, then the
  // scratch buffer if the row asks for one.
  std::string kernel;
  std::string op;
  std::string domain;
  Attributes attributes;
  // kCopy: one read, one write, of equal bytes and layout. kSend: one read. kRecv: one write. kCollective: one read, one write; the read of
  // a reduce-scatter and the write of an all-gather have a part for each member of the group, in the group's order; an all-reduce and
  // a reduce may have several reads, then as many writes, and the writes of a reduce are absent except on their roots. kIf: the condition
  // (bool), what the bodies read, what both bodies write, and as scratch their intermediate values. kLoop: the trip count (int64) or -1,
  // the condition (bool) or -1, what the body reads, what it carries: each write has a read of the same range, the value before.
  std::vector<Use> uses;
  int event = -1;  // kRecord, kWait
  Collective collective = Collective::kAllReduceSum;
  int root = 0;                        // kBroadcast: index into the group's ranks
  std::vector<int> roots = {};         // kReduceSum: by read, index into the group's ranks
  int group = -1;                      // kCollective: slot of the group, which the entry binds for each rank
  int peer = -1;                       // kSend, kRecv: slot of the peer
  int tag = 0;                         // kCollective, kSend, kRecv: the same for all members, so that none is mistaken for another
  std::vector<Program> bodies;         // kIf: then, else; kLoop: body. They use the arenas of the enclosing program
                                       // at the same offsets, and access only what `uses` names
  int64_t trip_bound = 0;              // kLoop: the largest possible number of iterations
  std::string origin;                  // the ONNX node, for messages and traces
  PlanPhase phase = PlanPhase::kNone;  // for messages and traces; that of an if or a loop is its bodies'
};

struct Program {
  std::vector<Stream> streams;
  std::vector<Buffer> buffers;
  int num_events = 0;
  std::vector<Instruction> instructions;  // in the order in which the host issues them
  int64_t transient_bytes = 0;            // size of the transient arena; 0 for a body
  int64_t input_bytes = 0;                // size of an input slot; 0 for a body
  int place = 0;  // index into Plan::places: the place of the ranks that run it; a body's is that of the enclosing program
};

// The programs of a plan. Copies of the list share the programs, so a plan with one more entry costs only that entry.
class ProgramList {
 public:
  size_t size() const { return programs_.size(); }
  bool empty() const { return programs_.empty(); }
  const Program& operator[](size_t i) const { return *programs_[i]; }
  const Program& at(size_t i) const { return *programs_.at(i); }
  const Program& front() const { return *programs_.front(); }
  const Program& back() const { return *programs_.back(); }
  // A program to change. It is copied first if other lists share it.
  Program& Mutable(size_t i);

  void push_back(Program program) { programs_.push_back(std::make_shared<Program>(std::move(program))); }
  Program& emplace_back() { return *programs_.emplace_back(std::make_shared<Program>()); }

  class Iterator {
   public:
    using iterator_category = std::forward_iterator_tag;
    using value_type = Program;
    using difference_type = std::ptrdiff_t;
    using pointer = const Program*;
    using reference = const Program&;

    Iterator() = default;
    explicit Iterator(const std::shared_ptr<Program>* at) : at_(at) {}
    reference operator*() const { return **at_; }
    pointer operator->() const { return at_->get(); }
    Iterator& operator++() { return ++at_, *this; }
    Iterator operator++(int) { return Iterator(at_++); }
    bool operator==(const Iterator&) const = default;

   private:
    const std::shared_ptr<Program>* at_ = nullptr;
  };
  Iterator begin() const { return Iterator(programs_.data()); }
  Iterator end() const { return Iterator(programs_.data() + programs_.size()); }

 private:
  std::vector<std::shared_ptr<Program>> programs_;
};

// The tensors that a rank's device holds between steps. Ranks of one place hold the same states and constants at the same offsets. There
// are several places if parts of the model are on devices of their own.
struct Place {
  int64_t state_bytes = 0, constants_bytes = 0;  // sizes of the two arenas
};

// kWeightCopy: a parameter rounded to 16 bits. Whatever sets the parameter sets it, so it is in no file, and nobody sees it.
// kAverage: the moving average of a parameter's values, which evaluations, predictions and exports take for the weight; its name is
// AverageOf (runtime/plan/average_state.h).
enum class StateKind : uint8_t { kParameter, kOptimizer, kStatistic, kAccumulator, kLossScale, kWeightCopy, kAverage };

// A tensor that persists between steps, with one offset and one layout in all entries.
struct StateTensor {
  std::string name;  // parameters and statistics: the ONNX initializer's name
  StateKind kind = StateKind::kParameter;
  DType dtype = DType::kFloat32;
  Shape shape;
  Layout layout;
  int64_t offset = 0;       // in the state arena of each place that holds it
  int64_t bytes = 0;        // including padding of the layout
  int parameter = -1;       // kOptimizer, kAccumulator, kWeightCopy, kAverage: index of the parameter it belongs to
  std::vector<int> places;  // that hold it, ascending; empty: all
  Tensor initial;           // logical order; undefined: zeros, for a copy or an average the value of the parameter
  // kAccumulator: each rank that holds it has its own part, and the tensor is their sum; otherwise all hold the same.
  bool partial = false;

  bool in_place(int place) const;
  // Whether it follows from other tensors.
  bool derived() const { return kind == StateKind::kWeightCopy; }
  // Whether its first value is that of its parameter.
  bool follows() const { return derived() || kind == StateKind::kAverage; }
};

struct Constant {
  std::string name;
  int64_t offset = 0;  // in the constants arena of each place that holds it
  Tensor value;
  std::vector<int> places;  // that hold it, ascending; empty: all

  bool in_place(int place) const;
};

// An input that the caller gives, by its ONNX name.
struct Feed {
  std::string name;
  DType dtype = DType::kUndefined;
  Shape shape;
  int batch_axis = -1;  // the axis of the batch; -1: none
  // Number of adjacent positions on that axis that belong to one sample: sample s has the positions (o * batch + s) * inner + i for all o.
  // 0: all that it has, extent / batch.
  int64_t batch_inner = 0;
  // Above 0: its integers select rows of a weight (Gather), which has this many, or of several, of which the smallest has. Negative ones
  // count from its end, as ONNX says.
  int64_t index_extent = 0;

  bool operator==(const Feed&) const = default;
};
// An extent that the data of a step decides. The buffer has room for the largest possible extent; the first elements along the axis are
// valid, and another fetch of the entry says how many (int64, rank 0).
struct FetchExtent {
  int axis = 0;
  int fetch = -1;

  bool operator==(const FetchExtent&) const = default;
};
struct Fetch {
  std::string name;
  int buffer = -1;  // in the program of rank 0; -1: other ranks have it, see RankBinding::fetches
  // As for a feed. The whole is gathered from the ranks that have a part. -1: the first rank that has it has all of it.
  int batch_axis = -1;
  int64_t batch_inner = 0;
  std::vector<FetchExtent> extents = {};  // axes ascending; the caller gets only the valid part

  bool operator==(const Fetch&) const = default;
};

// If several batches make an update, the batches before the last run kAccumulate. The last runs kLastBatch, which also updates, or
// kAccumulate and then kUpdate.
enum class EntryKind : uint8_t { kStep, kAccumulate, kUpdate, kEval, kPredict, kLastBatch };

// Computes no gradients and updates nothing.
constexpr bool IsForwardOnly(EntryKind kind) { return kind == EntryKind::kEval || kind == EntryKind::kPredict; }

// Runs a batch forward and backward. kUpdate has no batch.
constexpr bool Trains(EntryKind kind) { return !IsForwardOnly(kind) && kind != EntryKind::kUpdate; }

struct RankBinding {
  int program = 0;          // index into Plan::programs
  std::vector<int> groups;  // group slot -> index into Plan::groups
  std::vector<int> peers;   // peer slot -> rank
  int64_t shard_start = 0;  // of the batch
  int64_t shard_length = 0;
  std::vector<int> fetches;  // by fetch: the buffer in this rank's program, or -1; empty: the same as rank 0

  bool operator==(const RankBinding&) const = default;
};

struct Entry {
  EntryKind kind = EntryKind::kStep;
  int64_t batch = 0;  // global
  std::vector<Feed> feeds;
  std::vector<Fetch> fetches;
  std::vector<RankBinding> ranks;

  bool operator==(const Entry&) const = default;
};

// A set of ranks that communicate through one communicator, used by this group only.
struct Group {
  std::vector<int> ranks;

  bool operator==(const Group&) const = default;
};

// The kind of machine that the plan was made for. Another kind refuses it.
struct Target {
  DeviceKind device = DeviceKind::kCpu;
  std::string isa;  // "x86-64-v3", "sm_90"; "any" if it names portable kernels only
  int threads = 1;  // threads of one operator on a device

  bool operator==(const Target&) const = default;
};

// The learning rate as a function of the step; see runtime/session/schedule.h for the formulas.
struct Schedule {
  std::string kind = "constant";
  double lr = 0;
  Attributes attributes;
};

// Offsets of the step parameters in the step arena; -1: the plan does not read that one.
struct StepLayout {
  int64_t lr = -1;     // float32: the learning rate of this step
  int64_t step = -1;   // int64: the number of this update, from 1
  int64_t batch = -1;  // int64: batches before this one, including accumulated ones
  int64_t seed = -1;   // int64
  int64_t first = -1;  // int64: the rank's shard_start; the only step parameter that differs between ranks
  int64_t lr64 = -1;   // float64: the learning rate of this step, for updates of float64 parameters
  int64_t bytes = 0;

  bool operator==(const StepLayout&) const = default;
};

// A matrix that the model's file has twice. The plan has only `source`, and an export writes its transpose for `name`.
struct TiedTensor {
  std::string name, source;

  bool operator==(const TiedTensor&) const = default;
};

struct ModelInfo {
  std::string name;
  std::string hash;   // of the ONNX file with its external data, hexadecimal
  std::string bytes;  // the original ModelProto without its weights, for export
  std::vector<TiedTensor> tied = {};
};

struct Plan {
  static constexpr int kFormatVersion = 9;

  std::vector<Target> targets;
  ModelInfo model;
  Schedule schedule;
  int64_t accumulate = 1;  // batches per update
  StepLayout step;
  std::vector<Place> places{1};
  std::vector<StateTensor> state;
  std::vector<Constant> constants;
  ProgramList programs;
  std::vector<Entry> entries;
  std::vector<Group> groups;
  std::vector<LossInfo> losses;                   // empty if the plan has no loss
  std::vector<std::string> loss_terms;            // fetches of the terms of a loss that has several: "loss/NAME", a scalar each
  std::map<std::string, std::string> properties;  // texts for users: options that it was compiled with, versions

  // The number of devices, the same for every entry.
  size_t num_ranks() const { return entries.empty() ? 1 : entries.front().ranks.size(); }
  // The place of a rank, the same in every entry of a sound plan.
  int PlaceOf(size_t rank) const;
  // The entry of this kind for a global batch, or -1.
  int FindEntry(EntryKind kind, int64_t batch) const;
  // Whether there is an entry of this kind for any batch.
  bool HasEntry(EntryKind kind) const;
  // The state tensor of this name, or -1.
  int FindState(const std::string& name) const;
  // Whether some state is partial (StateTensor::partial).
  bool HasPartialState() const;
};

// The ranks that hold the first copy of the model: rank 0, and those that are connected to it by transfers, directly or through others.
std::set<int> CopyOfModel(const Entry& entry);

// Whether `plan` has the states of `base` at the same places and offsets of the same ranks, perhaps with others after them.
bool KeepsState(const Plan& plan, const Plan& base);

// Whether `plan` is `base` with additions at the end. Targets, step parameters, places, groups, states, constants and entries of `base` are
// unchanged (except for sizes of arenas, which may have grown), its programs are the same objects, and new constants have offsets after the
// old ones.
bool Extends(const Plan& plan, const Plan& base);

// Whether a fetch exists only as the extent of another one, and is not an output of the model.
bool IsOnlyExtent(const Entry& entry, size_t fetch);

// The buffer of a fetch in the program of a rank; -1 if the rank does not have it.
int FetchedBuffer(const Entry& entry, size_t rank, size_t fetch);

// How samples are arranged in the tensor of a feed or a fetch: for each o < outer, sample s has the `together` elements from (o * samples +
// s) * together on.
struct SampleStride {
  int64_t outer = 1, together = 1;
};
// The stride of a tensor with `samples` samples along the axis. Empty if the axis cannot be divided in this way.
std::optional<SampleStride> SamplesIn(const Shape& shape, int axis, int64_t inner, int64_t samples);

// Groups of ranks that are independent in every entry: no collective, no transfer and no state connects two groups. In a plan that the
// verifier has found sound, each group does what it would do alone.
std::vector<std::vector<int>> IndependentRanks(const Plan& plan);

// "forward", "backward", "update", or "" for none.
std::string_view PhaseName(PlanPhase phase);

// Whether it is a collective or a transfer.
bool Communicates(const Instruction& instruction);

// Whether it writes data that lives between steps. Looks at no body.
bool WritesState(const Program& program, const Instruction& instruction);

// The kernel call of a launch instruction. Borrows values of the plan's constants. Throws Error(kPlan) for ids out of range.
KernelCall CallOf(const Plan& plan, const Program& program, const Instruction& instruction);

}  // namespace gradloom
