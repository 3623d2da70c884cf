#include "tests/verify/plan_builder.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/checked.h"

namespace gradloom {
namespace {

std::string Arity(const KernelCall& call, size_t least, size_t most, size_t outputs = 1) {
  if (call.inputs.size() < least || call.inputs.size() > most || call.outputs.size() != outputs) return "number of operands";
  return "";
}

std::string Equal(const KernelCall& call, size_t least, size_t most) {
  std::string wrong = Arity(call, least, most);
  if (!wrong.empty()) return wrong;
  for (const auto* operands : {&call.inputs, &call.outputs}) {
    for (const OperandType& operand : *operands) {
      if (operand.dtype != DType::kFloat32) return "dtype";
      if (operand.shape != call.outputs[0].shape || operand.layout != call.outputs[0].layout) return "shape or layout";
    }
  }
  return "";
}

std::string RejectsFill(const KernelCall& call) {
  if (!std::isfinite(call.attributes.Float("value", 0))) return "value is not finite";
  return Equal(call, 0, 0);
}

std::string RejectsTest(const KernelCall& call) {
  std::string wrong = Arity(call, 1, 1);
  return !wrong.empty() || call.outputs[0].dtype == DType::kBool ? wrong : "dtype";
}

std::string RejectsGather(const KernelCall& call) {
  std::string wrong = Arity(call, 2, 2);
  return !wrong.empty() || call.inputs[1].dtype == DType::kInt64 ? wrong : "dtype";
}

constexpr Aliasing kOnFirst[] = {{0, 0}};

const KernelRow kRows[] = {
    {.name = "test.Fill", .op = "Fill", .domain = "test", .rejects = RejectsFill},
    {.name = "test.Map",
     .op = "Map",
     .domain = "test",
     .rejects = [](const KernelCall& call) { return Equal(call, 1, 8); },
     .may_alias = kOnFirst},
    {.name = "test.Mix", .op = "Mix", .domain = "test", .rejects = [](const KernelCall& call) { return Equal(call, 2, 2); }},
    {.name = "test.Update",
     .op = "Update",
     .domain = "test",
     .rejects = [](const KernelCall& call) { return Equal(call, 2, 2); },
     .may_alias = kOnFirst},
    {.name = "test.Work",
     .op = "Work",
     .domain = "test",
     .rejects = [](const KernelCall& call) { return Equal(call, 1, 1); },
     .scratch_bytes = [](const KernelCall& call) { return 2 * call.outputs[0].bytes(); }},
    {.name = "test.Test", .op = "Test", .domain = "test", .rejects = RejectsTest},
    {.name = "test.Gather", .op = "Gather", .domain = "", .rejects = RejectsGather},
    {.name = "test.Fused", .op = "Fused", .domain = "gradloom"},
};

}  // namespace

const KernelRow* FindTestKernel(std::string_view name) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows), [&](const KernelRow& row) { return row.name == name; });
  return found == std::end(kRows) ? nullptr : found;
}

ProgramBuilder::ProgramBuilder(Plan& plan, int streams) : plan_(plan) { program_.streams.resize(static_cast<size_t>(streams)); }

int ProgramBuilder::Add(Buffer buffer) {
  if (buffer.arena == Arena::kTransient) {
    program_.transient_bytes = std::max(program_.transient_bytes, AlignUp(buffer.offset + buffer.bytes, kAlignmentBytes));
  }
  program_.buffers.push_back(std::move(buffer));
  return static_cast<int>(program_.buffers.size()) - 1;
}

int ProgramBuilder::Value(const std::string& name, int64_t elements, int64_t offset, DType dtype) {
  return Add({.name = name,
              .offset = offset < 0 ? program_.transient_bytes : offset,
              .bytes = elements * DTypeBytes(dtype),
              .dtype = dtype,
              .shape = elements == 1 ? Shape{} : Shape{elements},
              .layout = {}});
}

int ProgramBuilder::Scratch(int64_t bytes, int64_t offset) {
  return Add({.name = "scratch", .offset = offset < 0 ? program_.transient_bytes : offset, .bytes = bytes, .shape = {}, .layout = {}});
}

int ProgramBuilder::Part(const std::string& name, int whole, int64_t start, int64_t elements) {
  Buffer part = program_.buffers[static_cast<size_t>(whole)];
  part.name = name;
  part.offset += start * DTypeBytes(part.dtype);
  part.bytes = elements * DTypeBytes(part.dtype);
  part.shape = {elements};
  part.whole = whole;
  return Add(part);
}

int ProgramBuilder::State(int state, const std::string& suffix) {
  const StateTensor& tensor = plan_.state[static_cast<size_t>(state)];
  return Add({.name = tensor.name + suffix,
              .arena = Arena::kState,
              .offset = tensor.offset,
              .bytes = tensor.bytes,
              .dtype = tensor.dtype,
              .shape = tensor.shape,
              .layout = {}});
}

int ProgramBuilder::Constant(int constant) {
  const gradloom::Constant& given = plan_.constants[static_cast<size_t>(constant)];
  return Add({.name = given.name,
              .arena = Arena::kConstants,
              .offset = given.offset,
              .bytes = given.value.bytes(),
              .dtype = given.value.dtype(),
              .shape = given.value.shape(),
              .layout = {}});
}

int ProgramBuilder::Feed(int feed, int64_t elements, DType dtype) {
  return Add({.name = "feed" + std::to_string(feed),
              .arena = Arena::kFeed,
              .bytes = elements * DTypeBytes(dtype),
              .dtype = dtype,
              .shape = {elements},
              .layout = {},
              .feed = feed});
}

int ProgramBuilder::StepLr() {
  return Add(
      {.name = "lr", .arena = Arena::kStep, .offset = plan_.step.lr, .bytes = 4, .dtype = DType::kFloat32, .shape = {}, .layout = {}});
}

int ProgramBuilder::Add(Instruction instruction, std::initializer_list<int> reads, std::initializer_list<int> writes, int scratch) {
  for (int buffer : reads) instruction.uses.push_back({buffer, Access::kRead});
  for (int buffer : writes) instruction.uses.push_back({buffer, Access::kWrite});
  if (scratch >= 0) instruction.uses.push_back({scratch, Access::kScratch});
  program_.instructions.push_back(std::move(instruction));
  return static_cast<int>(program_.instructions.size()) - 1;
}

int ProgramBuilder::Launch(const std::string& op, std::initializer_list<int> reads, std::initializer_list<int> writes, int stream,
                           int scratch) {
  Instruction launch;
  launch.stream = stream;
  launch.kernel = "test." + op;
  launch.op = op;
  launch.domain = "test";
  launch.origin = "/" + op + std::to_string(program_.instructions.size());
  return Add(launch, reads, writes, scratch);
}

int ProgramBuilder::Gather(int table, int indices, int to, int stream) {
  const int launch = Launch("Gather", {table, indices}, {to}, stream);
  program_.instructions.back().domain.clear();
  return launch;
}

int ProgramBuilder::Copy(int from, int to, int stream) {
  return Add({.kind = InstructionKind::kCopy,
              .stream = stream,
              .kernel = {},
              .op = {},
              .domain = {},
              .attributes = {},
              .uses = {},
              .bodies = {},
              .origin = {}},
             {from}, {to});
}

int ProgramBuilder::Record(int stream, int event) {
  Instruction record;
  record.kind = InstructionKind::kRecord;
  record.stream = stream;
  record.event = event >= 0 ? event : program_.num_events++;
  return Add(record, {}, {});
}

int ProgramBuilder::Wait(int stream, int event) {
  Instruction wait;
  wait.kind = InstructionKind::kWait;
  wait.stream = stream;
  wait.event = event;
  return Add(wait, {}, {});
}

void ProgramBuilder::Order(int stream, int waiting) {
  const int record = Record(stream);
  Wait(waiting, program_.instructions[static_cast<size_t>(record)].event);
}

int ProgramBuilder::Collective(gradloom::Collective collective, int from, int to, int group, int stream) {
  Instruction instruction;
  instruction.kind = InstructionKind::kCollective;
  instruction.stream = stream;
  instruction.collective = collective;
  instruction.group = group;
  return Add(instruction, {from}, {to});
}

int ProgramBuilder::Reduce(std::initializer_list<int> from, std::initializer_list<int> to, std::vector<int> roots) {
  Instruction instruction;
  instruction.kind = InstructionKind::kCollective;
  instruction.collective = Collective::kReduceSum;
  instruction.group = 0;
  instruction.roots = std::move(roots);
  return Add(instruction, from, to);
}

int ProgramBuilder::Send(int buffer, int peer, int stream) {
  Instruction instruction;
  instruction.kind = InstructionKind::kSend;
  instruction.stream = stream;
  instruction.peer = peer;
  return Add(instruction, {buffer}, {});
}

int ProgramBuilder::Recv(int buffer, int peer, int stream) {
  Instruction instruction;
  instruction.kind = InstructionKind::kRecv;
  instruction.stream = stream;
  instruction.peer = peer;
  return Add(instruction, {}, {buffer});
}

int ProgramBuilder::If(std::initializer_list<int> reads, std::initializer_list<int> writes, Program then_body, Program else_body,
                       int scratch) {
  Instruction instruction;
  instruction.kind = InstructionKind::kIf;
  instruction.bodies = {std::move(then_body), std::move(else_body)};
  return Add(instruction, reads, writes, scratch);
}

int ProgramBuilder::Loop(std::initializer_list<int> reads, std::initializer_list<int> writes, Program body, int64_t trip_bound,
                         int scratch) {
  Instruction instruction;
  instruction.kind = InstructionKind::kLoop;
  instruction.bodies = {std::move(body)};
  instruction.trip_bound = trip_bound;
  return Add(instruction, reads, writes, scratch);
}

Program ProgramBuilder::Take(bool body) {
  if (body) program_.transient_bytes = 0;
  return std::move(program_);
}

Plan EmptyPlan() {
  Plan plan;
  plan.targets.push_back({DeviceKind::kCpu, "any", 1});
  plan.step.lr = 0;
  plan.step.bytes = 64;
  return plan;
}

int AddState(Plan& plan, const std::string& name, int64_t elements, StateKind kind, int parameter) {
  StateTensor state;
  state.name = name;
  state.kind = kind;
  state.shape = {elements};
  state.offset = plan.places[0].state_bytes;
  state.bytes = elements * 4;
  state.parameter = parameter;
  plan.places[0].state_bytes = AlignUp(state.offset + state.bytes, kAlignmentBytes);
  plan.state.push_back(state);
  return static_cast<int>(plan.state.size()) - 1;
}

int AddConstant(Plan& plan, const std::string& name, int64_t elements) {
  plan.constants.push_back({name, plan.places[0].constants_bytes, Tensor(DType::kFloat32, {elements})});
  plan.places[0].constants_bytes = AlignUp(plan.places[0].constants_bytes + elements * 4, kAlignmentBytes);
  return static_cast<int>(plan.constants.size()) - 1;
}

Entry& AddEntry(Plan& plan, EntryKind kind, int64_t batch, std::vector<int> programs) {
  Entry entry;
  entry.kind = kind;
  entry.batch = batch;
  const int64_t ranks = static_cast<int64_t>(programs.size()), share = batch / ranks;
  if (plan.groups.empty()) {
    plan.groups.emplace_back();
    for (int r = 0; r < ranks; ++r) plan.groups[0].ranks.push_back(r);
  }
  for (int64_t r = 0; r < ranks; ++r) {
    RankBinding binding;
    binding.program = programs[static_cast<size_t>(r)];
    binding.groups = {0};
    binding.shard_start = r * share;
    binding.shard_length = share;
    entry.ranks.push_back(binding);
  }
  plan.entries.push_back(entry);
  return plan.entries.back();
}

}  // namespace gradloom
