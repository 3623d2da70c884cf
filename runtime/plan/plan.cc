#include "runtime/plan/plan.h"

#include <algorithm>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"

namespace gradloom {

namespace {

bool Holds(const std::vector<int>& places, int place) {
  return places.empty() || std::find(places.begin(), places.end(), place) != places.end();
}

}  // namespace

bool StateTensor::in_place(int place) const { return Holds(places, place); }
bool Constant::in_place(int place) const { return Holds(places, place); }

int Plan::PlaceOf(size_t rank) const {
  if (entries.empty()) return 0;
  return programs[static_cast<size_t>(entries.front().ranks[rank].program)].place;
}

int Plan::FindEntry(EntryKind kind, int64_t batch) const {
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].kind == kind && entries[i].batch == batch) return static_cast<int>(i);
  }
  return -1;
}

int Plan::FindState(const std::string& name) const {
  for (size_t i = 0; i < state.size(); ++i) {
    if (state[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

int FetchedBuffer(const Entry& entry, size_t rank, size_t fetch) {
  const RankBinding& binding = entry.ranks[rank];
  if (rank > 0 && !binding.fetches.empty()) return fetch < binding.fetches.size() ? binding.fetches[fetch] : -1;
  return binding.program == entry.ranks[0].program ? entry.fetches[fetch].buffer : -1;
}

std::optional<SampleStride> SamplesIn(const Shape& shape, int axis, int64_t inner, int64_t samples) {
  if (axis < 0 || axis >= shape.rank() || samples <= 0 || inner < 0) return std::nullopt;
  if (inner == 0) inner = shape[axis] / samples;
  const auto block = CheckedMul(samples, inner);
  if (!block || *block == 0 || shape[axis] % *block != 0) return std::nullopt;
  SampleStride stride{shape[axis] / *block, inner};
  for (int i = 0; i < shape.rank(); ++i) (i < axis ? stride.outer : stride.together) *= i == axis ? 1 : shape[i];
  return stride;
}

bool Communicates(const Instruction& instruction) {
  return instruction.kind == InstructionKind::kCollective || instruction.kind == InstructionKind::kSend ||
         instruction.kind == InstructionKind::kRecv;
}

KernelCall CallOf(const Program& program, const Instruction& instruction) {
  KernelCall call{.op = instruction.op, .domain = instruction.domain, .attributes = instruction.attributes, .inputs = {}, .outputs = {}};
  if (instruction.stream < 0 || instruction.stream >= static_cast<int>(program.streams.size())) {
    throw Error(ErrorCode::kPlan, "stream " + std::to_string(instruction.stream) + " is out of range", Escaped(instruction.origin));
  }
  call.threads = program.streams[static_cast<size_t>(instruction.stream)].threads;
  for (const Use& use : instruction.uses) {
    if (use.buffer < -1 || use.buffer >= static_cast<int>(program.buffers.size())) {
      throw Error(ErrorCode::kPlan, "buffer " + std::to_string(use.buffer) + " is out of range", Escaped(instruction.origin));
    }
    if (use.access == Access::kScratch) continue;
    OperandType operand;
    if (use.buffer >= 0) operand = program.buffers[static_cast<size_t>(use.buffer)].operand();
    (use.access == Access::kRead ? call.inputs : call.outputs).push_back(std::move(operand));
  }
  return call;
}

}  // namespace gradloom
