// Prepares the entries of a plan for devices: kernels, addresses, streams and events.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/exec/device_memory.h"
#include "runtime/exec/prepare.h"

namespace gradloom {

// A stream or an event that is deleted with the object; empty by default.
class DeviceStream {
 public:
  DeviceStream() = default;
  explicit DeviceStream(Device& device) : device_(&device), stream_(device.NewStream()) {}
  ~DeviceStream() {
    if (stream_ != nullptr) device_->DeleteStream(stream_);
  }
  DeviceStream(DeviceStream&& other) noexcept { *this = std::move(other); }
  DeviceStream& operator=(DeviceStream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  void* get() const { return stream_; }

 private:
  Device* device_ = nullptr;
  void* stream_ = nullptr;
};

class DeviceEvent {
 public:
  DeviceEvent() = default;
  DeviceEvent(Device& device, bool timed) : device_(&device), event_(device.NewEvent(timed)) {}
  ~DeviceEvent() {
    if (event_ != nullptr) device_->DeleteEvent(event_);
  }
  DeviceEvent(DeviceEvent&& other) noexcept { *this = std::move(other); }
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }
  void* get() const { return event_; }

 private:
  Device* device_ = nullptr;
  void* event_ = nullptr;
};

// The operands of an If or Loop, copied from the device to host memory.
struct DecisionOperands {
  int64_t trips = 0;
  uint8_t condition = 0;
};

struct DeviceInstruction {
  const Instruction* instruction = nullptr;
  const Program* program = nullptr;  // that has it: the rank's, or a body
  int index = 0;                     // position in the program
  std::string name;                  // for profilers: "#12 MatMul 'dense_1'"
  std::unique_ptr<Kernel> kernel;    // of a launch
  // By input slot; they differ only for operands in a slot.
  std::array<std::vector<const void*>, 2> inputs;
  std::array<std::vector<void*>, 2> outputs;
  void* scratch = nullptr;
  int64_t bytes = 0;                                          // of a copy or a transfer
  int group = -1;                                             // of a collective: index into Plan::groups
  int peer = -1;                                              // of a transfer: rank
  std::array<std::vector<DeviceGroup::Operand>, 2> operands;  // of a collective, by input slot
  std::vector<std::vector<DeviceInstruction>> bodies;         // of an if: then, else; of a loop one
  bool keeps_state = false;                                   // of a copy: it writes state, unless the step is refused
  DecisionOperands* decision = nullptr;                       // of an if or a loop: where its operands are copied to
  bool apart = false;                                         // whether it involves devices of other processes
  int turn = -1;                                              // then: when it is issued (communication_turns.h)
  DeviceEvent begin, end;                                     // if it is timed
  // For the first instruction of a piece: the number of launches and copies in the piece, itself included; otherwise 0.
  size_t piece = 0;
  bool piece_in_slots = false;                               // whether an operand of the piece is in an input slot
  bool piece_loaded = false;                                 // whether the piece has run
  std::array<std::unique_ptr<DeviceGraph>, 2> piece_graphs;  // by slot; only the first if no operand is in a slot
};

// Copies a rank's samples of a feed to its place in the input slot.
struct InputCopy {
  int feed = 0;
  SampleCopy samples;
  int64_t bytes = 0, slot_offset = 0;
};

struct DeviceRank {
  std::vector<std::vector<DeviceInstruction>> lanes;  // by stream of the program; copy streams are empty
  std::vector<InputCopy> copies;                      // in the order of the slot
  std::vector<DeviceEvent> events;
  std::vector<bool> of_copies;  // by event: recorded by a copy stream
  StagingMemory decisions;      // DecisionOperands, one after another
  // The instructions of the program that involve devices of other processes.
  std::vector<const DeviceInstruction*> apart;
};

// A fetch that is small enough to be copied to the host in every step.
struct StagedFetch {
  int fetch = 0;
  size_t rank = 0;
  const Buffer* buffer = nullptr;
  int64_t offset = 0;  // in the staging memory
};

struct DeviceEntry {
  std::string name;  // for profilers: "step of 64"
  std::vector<DeviceRank> ranks;
  std::vector<StagedFetch> fetches;
  StagingMemory fetched;
  std::array<std::unique_ptr<DeviceGraph>, 2> graphs;  // by slot
  bool decides = false;  // whether a rank has an if or a loop: then the step is not one graph, but has pieces that are
  int runs = 0;
};

// The position of a kernel, for its faults.
struct KernelPlace {
  const Instruction* instruction = nullptr;
};

// Throws Error(kPlan, kUnsupported) naming the instruction. Appends to `places`, whose indices are the sites of kernels. `begin_rank`:
// called before the kernels of a rank are made, in the order of ranks.
DeviceEntry PrepareOnDevices(const Plan& plan, int entry, DeviceMemories& memories, std::vector<KernelPlace>& places,
                             const std::function<void(size_t rank)>& begin_rank = {});

}  // namespace gradloom
