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

// A stream or an event, deleted with the object. Empty ones have none.
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

// What the device says of the operands of an If or Loop, in host memory.
struct DecisionOperands {
  int64_t trips = 0;
  uint8_t condition = 0;
};

struct DeviceInstruction {
  const Instruction* instruction = nullptr;
  int index = 0;                   // in the program
  std::string name;                // for profilers: "#12 MatMul 'dense_1'"
  std::unique_ptr<Kernel> kernel;  // of a launch
  // By input slot; the same but for operands that lie in one.
  std::array<std::vector<const void*>, 2> inputs;
  std::array<std::vector<void*>, 2> outputs;
  void* scratch = nullptr;
  int64_t bytes = 0;                                          // of a copy or a transfer
  int group = -1;                                             // of a collective: index into Plan::groups
  int peer = -1;                                              // of a transfer: rank
  std::array<std::vector<DeviceGroup::Operand>, 2> operands;  // of a collective, by input slot
  std::vector<std::vector<DeviceInstruction>> bodies;         // of an if: then, else; of a loop one
  bool keeps_state = false;                                   // of a copy: it goes to what lives between steps, unless that is refused
  DecisionOperands* decision = nullptr;                       // of an if or a loop: where its operands are copied to
  bool apart = false;                                         // whether it is done together with devices of other processes
  DeviceEvent begin, end;                                     // where it is timed
  // At the head of a piece: how many launches and copies of its list follow one another, itself included; else 0.
  size_t piece = 0;
  bool piece_in_slots = false;                               // whether an operand of the piece lies in an input slot
  bool piece_loaded = false;                                 // whether the piece has run
  std::array<std::unique_ptr<DeviceGraph>, 2> piece_graphs;  // by slot; the first alone where no operand lies in one
};

// A feed's samples of a rank, into its place of the input slot.
struct InputCopy {
  int feed = 0;
  SampleCopy samples;
  int64_t bytes = 0, slot_offset = 0;
};

struct DeviceRank {
  std::vector<std::vector<DeviceInstruction>> lanes;  // by stream of the program, copy streams left out (they are empty)
  std::vector<InputCopy> copies;
  std::vector<DeviceEvent> events;
  std::vector<bool> of_copies;  // by event: recorded by a copy stream
  StagingMemory decisions;      // DecisionOperands, one after another
  // Of the program, what is done together with devices of other processes.
  std::vector<const DeviceInstruction*> apart;
};

// A fetch that is small enough to be brought to the host with every step.
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
  bool decides = false;  // whether a rank of this process has an if or a loop: the step is no one graph then, and has pieces that are
  int runs = 0;
};

// Where a kernel stands, for what it finds wrong.
struct KernelPlace {
  const Instruction* instruction = nullptr;
};

// Throws Error(kPlan, kUnsupported) naming the instruction. Appends to `places`, whose indices are the sites of kernels. `begin_rank`:
// called before the kernels of a rank are made, in the order of ranks.
DeviceEntry PrepareOnDevices(const Plan& plan, int entry, DeviceMemories& memories, std::vector<KernelPlace>& places,
                             const std::function<void(size_t rank)>& begin_rank = {});

}  // namespace gradloom
