#include "runtime/api/dlpack.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "runtime/api/gradients.h"
#include "runtime/api/guard.h"
#include "runtime/api/table.h"
#include "runtime/device/device.h"

namespace gradloom::api {
namespace {

constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3;  // values of DLDeviceType

struct Type {
  DType dtype;
  uint8_t code, bits;
};
// Values of DLDataTypeCode: 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool.
constexpr Type kTypes[] = {{DType::kFloat32, 2, 32}, {DType::kFloat64, 2, 64}, {DType::kFloat16, 2, 16}, {DType::kBfloat16, 4, 16},
                           {DType::kInt8, 0, 8},     {DType::kInt16, 0, 16},   {DType::kInt32, 0, 32},   {DType::kInt64, 0, 64},
                           {DType::kUint8, 1, 8},    {DType::kUint16, 1, 16},  {DType::kUint32, 1, 32},  {DType::kUint64, 1, 64},
                           {DType::kBool, 6, 8}};

DType DTypeOfDL(const DLDataType& type) {
  for (const Type& known : kTypes) {
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return known.dtype;
  }
  throw Error(ErrorCode::kType, "unsupported DLPack element type: code " + std::to_string(type.code) + ", " + std::to_string(type.bits) +
                                    " bits, " + std::to_string(type.lanes) + " lanes");
}

bool IsRowMajor(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  // An axis of extent 1 may have any stride, and so may an empty tensor.
  int64_t expected = 1;
  for (int32_t axis = tensor.ndim; axis-- > 0;) {
    if (tensor.shape[axis] == 0) return true;
    if (tensor.shape[axis] != 1 && tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

GradloomStatus* FromDLPack(const DLManagedTensor* managed, GradloomTensor* out) {
  return Guarded([&] {
    NotNull(out, "the output pointer for the result");
    const DLTensor& tensor = NotNull(managed, "the DLPack tensor").dl_tensor;
    if (tensor.device.device_type == kCuda) {
      ExpectDeviceTensors();
    } else if (tensor.device.device_type != kCpu && tensor.device.device_type != kCudaHost) {
      throw Error(ErrorCode::kDevice, "unsupported DLPack device type " + std::to_string(tensor.device.device_type), "",
                  "copy it to host memory first");
    }
    const DType dtype = DTypeOfDL(tensor.dtype);
    const GradloomTensor made{tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset, tensor.shape,
                              tensor.ndim, static_cast<GradloomDType>(dtype)};
    ViewOf(made, "the DLPack tensor", true);
    if (!IsRowMajor(tensor)) throw Error(ErrorCode::kShape, "the DLPack tensor is not row-major", "", "make it contiguous first");
    *out = made;
  });
}

// A tensor that is handed out, in host or device memory.
struct Owned {
  Owned() = default;
  ~Owned() {
    if (memory != nullptr) device->Free(memory);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  Tensor tensor;
  Device* device = nullptr;
  std::byte* memory = nullptr;
  std::vector<int64_t> shape;
  DLManagedTensor managed;
};

void Delete(DLManagedTensor* managed) {
  const CallersDevice keep;
  delete static_cast<Owned*>(managed->manager_ctx);
}

// Describes the memory that `owned` holds as a tensor of this type and shape.
DLManagedTensor* MakeManagedTensor(std::unique_ptr<Owned> owned, DType dtype, const Shape& shape) {
  DLTensor& described = owned->managed.dl_tensor;
  for (const Type& known : kTypes) {
    if (known.dtype == dtype) described.dtype = {known.code, known.bits, 1};
  }
  if (described.dtype.bits == 0) throw Error(ErrorCode::kType, "DLPack does not support " + std::string(DTypeName(dtype)));
  owned->shape = shape.dims();
  described.data = owned->memory != nullptr ? owned->memory : owned->tensor.data();
  described.device = owned->memory != nullptr ? DLDevice{kCuda, owned->device->ordinal()} : DLDevice{kCpu, 0};
  described.ndim = shape.rank();
  described.shape = owned->shape.data();
  owned->managed.manager_ctx = owned.get();
  owned->managed.deleter = Delete;
  return &owned.release()->managed;
}

DLManagedTensor* MakeManagedTensor(Tensor tensor) {
  auto owned = std::make_unique<Owned>();
  owned->tensor = std::move(tensor);
  // The order in which arguments are evaluated is open, and one of them gives `owned` away.
  const Tensor& held = owned->tensor;
  return MakeManagedTensor(std::move(owned), held.dtype(), held.shape());
}

GradloomStatus* ToDLPack(const GradloomTensor* tensor, DLManagedTensor** out) {
  return Guarded([&] {
    DLManagedTensor*& handle = Out(out);
    handle = MakeManagedTensor(Tensor::Copy(ViewOf(NotNull(tensor, "the tensor"), "the tensor")));
  });
}

// Devices for copies, which may outlive sessions. Each is opened once and stays open until the process ends.
Device& OpenDevice(int ordinal) {
  static std::mutex mutex;
  static auto* const opened = new std::map<int, std::unique_ptr<Device>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Device>& device = (*opened)[ordinal];
  if (device == nullptr) device = CudaPlatform()->Open(ordinal);
  return *device;
}

DLManagedTensor* CopyOnDevice(const DeviceTensor& tensor) {
  Device& device = OpenDevice(tensor.ordinal);
  auto owned = std::make_unique<Owned>();
  owned->device = &device;
  owned->memory = device.Allocate(std::max<int64_t>(tensor.view.bytes(), 1));
  const std::unique_ptr<void, std::function<void(void*)>> stream(device.NewStream(), [&](void* made) { device.DeleteStream(made); });
  device.Copy(owned->memory, tensor.view.data, tensor.view.bytes(), stream.get());
  device.Synchronize(stream.get());
  return MakeManagedTensor(std::move(owned), tensor.view.dtype, tensor.view.shape);
}

[[noreturn]] void RefuseOnDevice(ErrorCode code, const std::string& name, const std::string& why, const char* function) {
  throw Error(code, "'" + Escaped(name) + "' " + why, "", std::string(function) + " copies it to host memory");
}

// A state tensor of a session on GPUs, on the first device of this process that holds it.
DeviceTensor StateOnDevice(const Call& call, const StateTensor& state, const char* function) {
  if (!state.layout.plain()) RefuseOnDevice(ErrorCode::kUnsupported, state.name, "is stored in a layout chosen for its kernels", function);
  const Plan& plan = call->plan();
  const StateArena& arena = call->executor().state();
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    if (!arena.holds(rank) || !state.in_place(plan.PlaceOf(rank))) continue;
    const void* const address = arena.at(static_cast<int>(rank), state.offset);
    return {CudaPlatform()->OrdinalOf(address), {state.dtype, state.shape, address}};
  }
  throw Error(ErrorCode::kPlan, "no device of this process holds '" + Escaped(state.name) + "'");
}

DLManagedTensor* CopyFromDevice(const Call& call, GradloomTensorKind kind, const std::string& name) {
  if (kind == GRADLOOM_STATE) return CopyOnDevice(StateOnDevice(call, StateOf(call->plan(), name), "GetParameter"));
  if (kind == GRADLOOM_GRADIENT) {
    const StateTensor& sum = GradientState(call->plan(), name);
    if (call->loss_scale()) RefuseOnDevice(ErrorCode::kUnsupported, name, "has a gradient that includes the loss scale", "GetGradient");
    return CopyOnDevice(StateOnDevice(call, sum, "GetGradient"));
  }
  if (const std::optional<DeviceTensor> found = call->FetchedOnDevice(name)) return CopyOnDevice(*found);
  const Plan& plan = call->plan();
  const bool bounded = [&] {
    for (const Fetch& fetch : plan.entries[static_cast<size_t>(call->last_entry())].fetches) {
      if (fetch.name == name) return !fetch.extents.empty();
    }
    return false;
  }();
  if (bounded) RefuseOnDevice(ErrorCode::kUnsupported, name, "has a shape that depends on the data", "GetOutput");
  RefuseOnDevice(ErrorCode::kDevice, name, "is split over several devices, or is in host memory", "GetOutput");
}

GradloomStatus* CopyToDLPack(GradloomSession* session, GradloomTensorKind kind, const char* name, DLManagedTensor** out) {
  return Guarded([&] {
    DLManagedTensor*& handle = Out(out);
    const Call call(session);
    const std::string wanted = TextOf(name, "the name");
    CheckKind(kind);
    if (call->plan().targets.front().device != DeviceKind::kCpu) {
      handle = CopyFromDevice(call, kind, wanted);
    } else if (kind == GRADLOOM_STATE) {
      handle = MakeManagedTensor(call->Get(StateOf(call->plan(), wanted).name));
    } else if (kind == GRADLOOM_GRADIENT) {
      handle = MakeManagedTensor(GradientOf(call, wanted));
    } else {
      handle = MakeManagedTensor(Tensor::Copy(call->Fetched(wanted)));
    }
  });
}

}  // namespace

void AddDLPack(GradloomApi& api) {
  api.FromDLPack = FromDLPack;
  api.ToDLPack = ToDLPack;
  api.CopyToDLPack = CopyToDLPack;
}

}  // namespace gradloom::api
