#include "runtime/api/dlpack.h"

#include "runtime/api/guard.h"
#include "runtime/api/table.h"

namespace gradloom::api {
namespace {

constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3;  // of DLDeviceType

struct Type {
  DType dtype;
  uint8_t code, bits;
};
// Codes of DLDataTypeCode: 0 int, 1 unsigned, 2 float, 4 bfloat, 6 bool.
constexpr Type kTypes[] = {{DType::kFloat32, 2, 32}, {DType::kFloat64, 2, 64}, {DType::kFloat16, 2, 16}, {DType::kBfloat16, 4, 16},
                           {DType::kInt8, 0, 8},     {DType::kInt16, 0, 16},   {DType::kInt32, 0, 32},   {DType::kInt64, 0, 64},
                           {DType::kUint8, 1, 8},    {DType::kUint16, 1, 16},  {DType::kUint32, 1, 32},  {DType::kUint64, 1, 64},
                           {DType::kBool, 6, 8}};

DType DTypeOfDL(const DLDataType& type) {
  for (const Type& known : kTypes) {
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return known.dtype;
  }
  throw Error(ErrorCode::kType, "a DLPack tensor with elements of code " + std::to_string(type.code) + ", " + std::to_string(type.bits) +
                                    " bits and " + std::to_string(type.lanes) + " lanes");
}

bool IsRowMajor(const DLTensor& tensor) {
  if (tensor.strides == nullptr) return true;
  // An axis of one element may have any stride, and so may a tensor without elements.
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
    Given(out, "the place for the result");
    const DLTensor& tensor = Given(managed, "the DLPack tensor").dl_tensor;
    if (tensor.device.device_type == kCuda) {
      ExpectDeviceTensors();
    } else if (tensor.device.device_type != kCpu && tensor.device.device_type != kCudaHost) {
      throw Error(ErrorCode::kDevice, "a DLPack tensor on a device of type " + std::to_string(tensor.device.device_type), "",
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

struct Owned {
  Tensor tensor;
  std::vector<int64_t> shape;
  DLManagedTensor managed;
};

void Delete(DLManagedTensor* managed) { delete static_cast<Owned*>(managed->manager_ctx); }

GradloomStatus* ToDLPack(const GradloomTensor* tensor, DLManagedTensor** out) {
  return Guarded([&] {
    DLManagedTensor*& handle = Out(out);
    const TensorView view = ViewOf(Given(tensor, "the tensor"), "the tensor");
    auto made = std::make_unique<Owned>();
    DLTensor& described = made->managed.dl_tensor;
    for (const Type& known : kTypes) {
      if (known.dtype == view.dtype) described.dtype = {known.code, known.bits, 1};
    }
    if (described.dtype.bits == 0) throw Error(ErrorCode::kType, "DLPack has no " + std::string(DTypeName(view.dtype)));
    made->tensor = Tensor::Copy(view);
    made->shape = view.shape.dims();
    described.data = made->tensor.data();
    described.device = {kCpu, 0};
    described.ndim = view.shape.rank();
    described.shape = made->shape.data();
    made->managed.manager_ctx = made.get();
    made->managed.deleter = Delete;
    handle = &made.release()->managed;
  });
}

}  // namespace

void AddDLPack(GradloomApi& api) {
  api.FromDLPack = FromDLPack;
  api.ToDLPack = ToDLPack;
}

}  // namespace gradloom::api
