// Decides the branches and loops of a step on the host if their data is on devices.
#include <limits>
#include <string>
#include <vector>

#include "runtime/exec/device_issue.h"

namespace gradloom {

// An instruction takes several calls: its decision is copied to the host, the copy completes, and then the bodies are enqueued one by one.
bool DeviceIssuer::Decide(Lane& lane) {
  Frame& frame = lane.frames.back();
  switch (frame.progress) {
    case Progress::kNew:
      Begin(lane);
      frame.round = 0;
      CopyConditions(lane, true);
      return true;
    case Progress::kAwaitingConditions:
      if (!memories_.rank(lane.rank).device->Done(lane.stream)) return false;
      break;
    case Progress::kInBody:
      ++frame.round;
      // A loop without a condition needs no further decision, so its iterations are enqueued without waiting.
      if (lane.front().instruction->kind == InstructionKind::kLoop && lane.front().inputs[0][1] != nullptr) {
        CopyConditions(lane, false);
        return true;
      }
      break;
  }
  std::vector<DeviceInstruction>* const body = NextBody(lane);
  if (body == nullptr) {
    End(lane);
    return true;
  }
  frame.progress = Progress::kInBody;
  if (!body->empty()) lane.frames.push_back({body});
  return true;
}

void DeviceIssuer::CopyConditions(Lane& lane, bool all) {
  const DeviceInstruction& front = lane.front();
  Device& device = *memories_.rank(lane.rank).device;
  const DeviceRange range = RangeOf(lane);
  const std::vector<const void*>& operands = front.inputs[static_cast<size_t>(options_.slot)];
  const bool loops = front.instruction->kind == InstructionKind::kLoop;
  const void* const trips = loops ? operands[0] : nullptr;
  const void* const condition = operands[loops ? 1 : 0];
  if (all && trips != nullptr) device.Copy(&front.decision->trips, trips, sizeof front.decision->trips, lane.stream);
  if (condition != nullptr) device.Copy(&front.decision->condition, condition, sizeof front.decision->condition, lane.stream);
  lane.frames.back().progress = Progress::kAwaitingConditions;
}

std::vector<DeviceInstruction>* DeviceIssuer::NextBody(Lane& lane) {
  DeviceInstruction& front = lane.front();
  Frame& frame = lane.frames.back();
  const Instruction& instruction = *front.instruction;
  if (instruction.kind == InstructionKind::kIf) return frame.round > 0 ? nullptr : &front.bodies[front.decision->condition != 0 ? 0 : 1];
  const bool counted = front.inputs[0][0] != nullptr, conditional = front.inputs[0][1] != nullptr;
  // Read only once, since an iteration may overwrite it.
  if (frame.round == 0) frame.rounds = counted ? front.decision->trips : std::numeric_limits<int64_t>::max();
  if (frame.round >= frame.rounds || (conditional && front.decision->condition == 0)) return nullptr;
  if (frame.round < instruction.trip_bound) return &front.bodies[0];
  // The step continues to its end, as after a kernel that found an index out of range, so that nothing waits forever for the rest of it.
  if (overrun_loop_ == nullptr) overrun_loop_ = &instruction;
  memories_.rank(lane.rank).device->Refuse(lane.stream);
  return nullptr;
}

void DeviceIssuer::AwaitConditions() {
  std::vector<DeviceGroups::PendingStream> asked;
  for (const Lane& lane : lanes_) {
    if (lane.asked()) asked.push_back({memories_.rank(lane.rank).device.get(), lane.stream});
  }
  // The verifier has ruled this out.
  if (asked.empty()) throw Error(ErrorCode::kInternal, "the streams of a step wait for each other");
  groups_.AwaitAny(asked);
}

}  // namespace gradloom
