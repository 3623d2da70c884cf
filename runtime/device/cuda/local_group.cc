// Collectives among devices with peer access: each member sums its part of the operand, then copies the parts of the others. For a reduce
// it writes its part to the root's memory.
#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/check.h"
#include "kernels/cuda/collective.h"
#include "runtime/device/cuda/device.h"
#include "runtime/device/cuda/use_device.h"

namespace gradloom::cuda {
namespace {

using Operands = std::span<const std::vector<DeviceGroup::Operand>>;
using Streams = std::span<void* const>;

class LocalGroup : public DeviceGroup {
 public:
  explicit LocalGroup(std::span<Device* const> members) : members_(members.begin(), members.end()) {
    if (members.size() > kMaxGroupMembers) {
      throw Error(ErrorCode::kUnsupported,
                  "a collective of more than " + std::to_string(kMaxGroupMembers) + " devices of one process is not supported");
    }
    for (Device* member : members_) events_.push_back(member->NewEvent(false));
  }
  ~LocalGroup() override {
    for (size_t m = 0; m < members_.size(); ++m) members_[m]->DeleteEvent(events_[m]);
  }

  void AllReduceSum(Operands operands, Streams streams) override {
    Barrier(streams);
    for (size_t m = 0; m < members_.size(); ++m) {
      for (size_t k = 0; k < operands[m].size(); ++k) {
        const int64_t begin = PartBegin(operands[m][k], m), end = PartBegin(operands[m][k], m + 1);
        Sum(operands, m, k, begin, end, At(operands[m][k].write, operands[m][k].dtype, begin), streams[m]);
      }
    }
    Barrier(streams);
    for (size_t m = 0; m < members_.size(); ++m) {
      for (size_t k = 0; k < operands[m].size(); ++k) {
        for (size_t other = 0; other < members_.size(); ++other) {
          const DeviceGroup::Operand& mine = operands[m][k];
          const int64_t begin = PartBegin(mine, other), bytes = (PartBegin(mine, other + 1) - begin) * DTypeBytes(mine.dtype);
          if (other != m)
            members_[m]->Copy(At(mine.write, mine.dtype, begin), At(operands[other][k].write, mine.dtype, begin), bytes, streams[m]);
        }
      }
    }
    Barrier(streams);
  }

  void ReduceSum(Operands operands, Streams streams) override {
    Barrier(streams);
    for (size_t m = 0; m < members_.size(); ++m) {
      for (size_t k = 0; k < operands[m].size(); ++k) {
        const DeviceGroup::Operand& of_root = operands[static_cast<size_t>(operands[m][k].root)][k];
        const int64_t begin = PartBegin(of_root, m), end = PartBegin(of_root, m + 1);
        Sum(operands, m, k, begin, end, At(of_root.write, of_root.dtype, begin), streams[m]);
      }
    }
    Barrier(streams);
  }

  void Broadcast(int root, Operands operands, Streams streams) override {
    Barrier(streams);
    for (size_t m = 0; m < members_.size(); ++m) {
      const DeviceGroup::Operand& from = operands[static_cast<size_t>(root)][0];
      if (operands[m][0].write != from.read) members_[m]->Copy(operands[m][0].write, from.read, from.read_bytes, streams[m]);
    }
    Barrier(streams);
  }

  void ReduceScatterSum(Operands operands, Streams streams) override {
    Barrier(streams);
    for (size_t m = 0; m < members_.size(); ++m) {
      const int64_t part = operands[m][0].write_bytes / DTypeBytes(operands[m][0].dtype);
      const auto index = static_cast<int64_t>(m);
      Sum(operands, m, 0, index * part, (index + 1) * part, operands[m][0].write, streams[m]);
    }
    Barrier(streams);
  }

  void AllGather(Operands operands, Streams streams) override {
    Barrier(streams);
    for (size_t m = 0; m < members_.size(); ++m) {
      for (size_t other = 0; other < members_.size(); ++other) {
        const DeviceGroup::Operand& from = operands[other][0];
        std::byte* const to = static_cast<std::byte*>(operands[m][0].write) + static_cast<int64_t>(other) * from.read_bytes;
        if (to != from.read) members_[m]->Copy(to, from.read, from.read_bytes, streams[m]);
      }
    }
    Barrier(streams);
  }

 private:
  // A barrier: every member's stream continues once all members have arrived.
  void Barrier(Streams streams) {
    for (size_t m = 0; m < members_.size(); ++m) members_[m]->Record(events_[m], streams[m]);
    for (size_t m = 0; m < members_.size(); ++m) {
      for (size_t other = 0; other < members_.size(); ++other) {
        if (other != m) members_[m]->Wait(streams[m], events_[other]);
      }
    }
  }

  // The first element of member m's part of an operand.
  int64_t PartBegin(const DeviceGroup::Operand& operand, size_t m) const {
    return operand.read_bytes / DTypeBytes(operand.dtype) * static_cast<int64_t>(m) / static_cast<int64_t>(members_.size());
  }
  static void* At(void* memory, DType dtype, int64_t element) { return static_cast<std::byte*>(memory) + element * DTypeBytes(dtype); }

  void Sum(Operands operands, size_t m, size_t k, int64_t begin, int64_t end, void* to, void* stream) {
    std::vector<const void*> from;
    for (const auto& member : operands) from.push_back(member[k].read);
    GRADLOOM_CUDA(UseDevice(members_[m]->ordinal()));
    EnqueueTreeSum(operands[m][k].dtype, from, begin, end - begin, to, static_cast<cudaStream_t>(stream));
  }

  std::vector<Device*> members_;
  std::vector<void*> events_;  // indexed by member
};

}  // namespace

std::unique_ptr<DeviceGroup> NewLocalGroup(std::span<Device* const> members) { return std::make_unique<LocalGroup>(members); }

}  // namespace gradloom::cuda
