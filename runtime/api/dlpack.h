// The structs of DLPack's unversioned C interface, as in dlpack.h 0.x. It exchanges tensors in memory.
#pragma once

#include <cstdint>

extern "C" {

struct DLDevice {
  int32_t device_type = 0;
  int32_t device_id = 0;
};

struct DLDataType {
  uint8_t code = 0;
  uint8_t bits = 0;
  uint16_t lanes = 1;
};

struct DLTensor {
  void* data = nullptr;
  DLDevice device;
  int32_t ndim = 0;
  DLDataType dtype;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // in elements; null: row-major
  uint64_t byte_offset = 0;
};

struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx = nullptr;
  void (*deleter)(DLManagedTensor* self) = nullptr;
};

}  // extern "C"
