#include "runtime/device/cuda/nccl_group.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <vector>

#include "kernels/cuda/check.h"

namespace gradloom::cuda {
namespace {

using Operands = std::span<const std::vector<DeviceGroup::Operand>>;
using Streams = std::span<void* const>;

void Check(ncclResult_t result, const char* call) {
  // What a communicator is still doing is no error.
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Error(ErrorCode::kDevice, std::string(call) + " failed: " + ncclGetErrorString(result), ncclGetLastError(nullptr),
              "run again with NCCL_DEBUG=INFO");
}

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return ncclFloat32;
    case DType::kFloat64: return ncclFloat64;
    case DType::kFloat16: return ncclFloat16;
    case DType::kBfloat16: return ncclBfloat16;
    case DType::kInt32: return ncclInt32;
    case DType::kInt64: return ncclInt64;
    case DType::kUint8:
    case DType::kBool: return ncclUint8;
    default: break;
  }
  throw Error(ErrorCode::kUnsupported, "no collectives of " + std::string(DTypeName(dtype)));
}

class NcclGroup : public DeviceGroup {
 public:
  explicit NcclGroup(std::span<Device* const> members) : members_(members.begin(), members.end()), communicators_(members.size()) {
    std::vector<int> ordinals;
    for (Device* member : members_) ordinals.push_back(member->ordinal());
    Check(ncclCommInitAll(communicators_.data(), static_cast<int>(ordinals.size()), ordinals.data()), "ncclCommInitAll");
  }
  ~NcclGroup() override {
    for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  }

  void AllReduceSum(Operands operands, Streams streams) override {
    ForAll(operands, streams, [&](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclAllReduce(o.read, o.write, Count(o.read_bytes, o), TypeOf(o.dtype), ncclSum, c, stream);
    });
  }
  void Broadcast(int root, Operands operands, Streams streams) override {
    ForAll(operands, streams, [&](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclBroadcast(o.read, o.write, static_cast<size_t>(o.write_bytes), ncclUint8, root, c, stream);
    });
  }
  void ReduceScatterSum(Operands operands, Streams streams) override {
    ForAll(operands, streams, [&](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclReduceScatter(o.read, o.write, Count(o.write_bytes, o), TypeOf(o.dtype), ncclSum, c, stream);
    });
  }
  void AllGather(Operands operands, Streams streams) override {
    ForAll(operands, streams, [&](const Operand& o, ncclComm_t c, cudaStream_t stream) {
      return ncclAllGather(o.read, o.write, static_cast<size_t>(o.read_bytes), ncclUint8, c, stream);
    });
  }

 private:
  static size_t Count(int64_t bytes, const Operand& operand) { return static_cast<size_t>(bytes / DTypeBytes(operand.dtype)); }

  // One thread speaks for all members, which NCCL wants to hear of between a begin and an end.
  template <typename F>
  void ForAll(Operands operands, Streams streams, F&& call) {
    Check(ncclGroupStart(), "ncclGroupStart");
    for (size_t m = 0; m < members_.size(); ++m) {
      GRADLOOM_CUDA(cudaSetDevice(members_[m]->ordinal()));
      for (const Operand& operand : operands[m]) {
        Check(call(operand, communicators_[m], static_cast<cudaStream_t>(streams[m])), "an NCCL collective");
      }
    }
    Check(ncclGroupEnd(), "ncclGroupEnd");
    for (ncclComm_t communicator : communicators_) {
      ncclResult_t state = ncclSuccess;
      Check(ncclCommGetAsyncError(communicator, &state), "ncclCommGetAsyncError");
      Check(state, "an NCCL collective");
    }
  }

  std::vector<Device*> members_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace

std::unique_ptr<DeviceGroup> NewNcclGroup(std::span<Device* const> members) { return std::make_unique<NcclGroup>(members); }

}  // namespace gradloom::cuda
