/* The part of onnxruntime's OrtApi (onnxruntime_c_api.h) that a training program needs: environments, options, statuses, allocators and
 * tensors, under their names. C99 and C++, header-only. Include gradloom_ort_compat.h, which includes this file.
 *
 * The table has only these functions: a program that uses another one does not compile. Tensors are in host memory.
 */
#ifndef GRADLOOM_GRADLOOM_ORT_API_C_H_
#define GRADLOOM_GRADLOOM_ORT_API_C_H_

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradloom/gradloom_c.h"

#define ORT_API_VERSION 19
#define ORTCHAR_T char
#define ORT_TSTR(text) text

/* In C++ all source files share one function; in C each has its own. */
#ifdef __cplusplus
#define GRADLOOM_ORT_INLINE inline
#else
#define GRADLOOM_ORT_INLINE static inline
#endif

typedef enum OrtErrorCode {
  ORT_OK,
  ORT_FAIL,
  ORT_INVALID_ARGUMENT,
  ORT_NO_SUCHFILE,
  ORT_NO_MODEL,
  ORT_ENGINE_ERROR,
  ORT_RUNTIME_EXCEPTION,
  ORT_INVALID_PROTOBUF,
  ORT_MODEL_LOADED,
  ORT_NOT_IMPLEMENTED,
  ORT_INVALID_GRAPH,
  ORT_EP_FAIL
} OrtErrorCode;
typedef enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE,
  ORT_LOGGING_LEVEL_INFO,
  ORT_LOGGING_LEVEL_WARNING,
  ORT_LOGGING_LEVEL_ERROR,
  ORT_LOGGING_LEVEL_FATAL
} OrtLoggingLevel;
typedef enum OrtAllocatorType { OrtInvalidAllocator = -1, OrtDeviceAllocator = 0, OrtArenaAllocator = 1 } OrtAllocatorType;
typedef enum OrtMemType { OrtMemTypeCPUInput = -2, OrtMemTypeCPUOutput = -1, OrtMemTypeCPU = -1, OrtMemTypeDefault = 0 } OrtMemType;
typedef enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = GRADLOOM_FLOAT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = GRADLOOM_UINT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = GRADLOOM_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16 = GRADLOOM_UINT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16 = GRADLOOM_INT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = GRADLOOM_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = GRADLOOM_INT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = GRADLOOM_BOOL,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16 = GRADLOOM_FLOAT16,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = GRADLOOM_FLOAT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32 = GRADLOOM_UINT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64 = GRADLOOM_UINT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16 = GRADLOOM_BFLOAT16
} ONNXTensorElementDataType;

typedef struct OrtStatus {
  OrtErrorCode code;
  const char* message; /* stored after the struct */
} OrtStatus;
typedef OrtStatus* OrtStatusPtr;

/* These have no content. */
typedef struct OrtEnv {
  int made;
} OrtEnv;
typedef struct OrtMemoryInfo {
  int made;
} OrtMemoryInfo;
typedef struct OrtRunOptions {
  int made;
} OrtRunOptions;

typedef struct OrtSessionOptions {
  int intra_op_threads; /* 0: from the configuration or the plan */
} OrtSessionOptions;

/* A program may have its own allocator, whose struct begins like this. */
typedef struct OrtAllocator {
  uint32_t version;
  void* (*Alloc)(struct OrtAllocator* allocator, size_t bytes);
  void (*Free)(struct OrtAllocator* allocator, void* memory);
  const OrtMemoryInfo* (*Info)(const struct OrtAllocator* allocator);
} OrtAllocator;

/* A tensor over the caller's buffer, or over its own. */
typedef struct OrtValue {
  GradloomTensor tensor;
  void* owned;
} OrtValue;

typedef struct OrtTensorTypeAndShapeInfo {
  ONNXTensorElementDataType type;
  size_t rank;
  int64_t* shape; /* stored after the struct */
} OrtTensorTypeAndShapeInfo;

GRADLOOM_ORT_INLINE const GradloomApi* GradloomOrtTable(void) { return GradloomGetApi(GRADLOOM_API_VERSION); }

/* ---- Statuses ---- */
/* The status for running out of memory for a status; never freed. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtNoMemory(void) {
  static OrtStatus status = {ORT_FAIL, "out of memory"};
  return &status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateStatus(OrtErrorCode code, const char* message) {
  const size_t bytes = strlen(message == NULL ? "" : message) + 1;
  OrtStatus* status = (OrtStatus*)malloc(sizeof(OrtStatus) + bytes);
  if (status == NULL) return GradloomOrtNoMemory();
  status->code = code;
  status->message = (char*)memcpy(status + 1, message == NULL ? "" : message, bytes);
  return status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtWrong(const char* message) { return GradloomOrtCreateStatus(ORT_INVALID_ARGUMENT, message); }
GRADLOOM_ORT_INLINE void GradloomOrtReleaseStatus(OrtStatus* status) {
  if (status != GradloomOrtNoMemory()) free(status);
}
GRADLOOM_ORT_INLINE OrtErrorCode GradloomOrtGetErrorCode(const OrtStatus* status) { return status == NULL ? ORT_OK : status->code; }
GRADLOOM_ORT_INLINE const char* GradloomOrtGetErrorMessage(const OrtStatus* status) { return status == NULL ? "" : status->message; }

/* The code nearest to Gradloom's error class. A file that cannot be written counts as one that does not exist. */
GRADLOOM_ORT_INLINE OrtErrorCode GradloomOrtCodeOf(GradloomErrorCode code) {
  switch (code) {
    case GRADLOOM_E_PATH:
    case GRADLOOM_E_IO: return ORT_NO_SUCHFILE;
    case GRADLOOM_E_PARSE: return ORT_INVALID_PROTOBUF;
    case GRADLOOM_E_SCHEMA:
    case GRADLOOM_E_NAME:
    case GRADLOOM_E_GRAPH:
    case GRADLOOM_E_ARITY:
    case GRADLOOM_E_ATTR: return ORT_INVALID_GRAPH;
    case GRADLOOM_E_TYPE:
    case GRADLOOM_E_SHAPE:
    case GRADLOOM_E_CONFIG:
    case GRADLOOM_E_DATA: return ORT_INVALID_ARGUMENT;
    case GRADLOOM_E_UNSUPPORTED: return ORT_NOT_IMPLEMENTED;
    case GRADLOOM_E_DEVICE: return ORT_EP_FAIL;
    default: return ORT_FAIL;
  }
}
/* Takes ownership of a status of Gradloom's table; the text has class, place and help. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtTake(GradloomStatus* given) {
  const GradloomApi* api = GradloomOrtTable();
  const char *where, *help;
  size_t bytes;
  char* text;
  OrtStatus* status;
  if (given == NULL) return NULL;
  where = api->GetErrorWhere(given);
  help = api->GetErrorHelp(given);
  bytes = strlen(api->GetErrorName(given)) + strlen(api->GetErrorMessage(given)) + strlen(where) + strlen(help) + 32;
  text = (char*)malloc(bytes);
  if (text == NULL) {
    status = GradloomOrtNoMemory();
  } else {
    snprintf(text, bytes, "%s: %s%s%s%s%s", api->GetErrorName(given), api->GetErrorMessage(given), *where != '\0' ? "\n  --> " : "", where,
             *help != '\0' ? "\n  help: " : "", help);
    status = GradloomOrtCreateStatus(GradloomOrtCodeOf(api->GetErrorCode(given)), text);
  }
  free(text);
  api->ReleaseStatus(given);
  return status;
}

/* ---- Environments and options ---- */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateEnv(OrtLoggingLevel level, const char* id, OrtEnv** out) {
  (void)level, (void)id;
  if (out == NULL) return GradloomOrtWrong("the output pointer for the environment is null");
  *out = (OrtEnv*)calloc(1, sizeof **out);
  return *out == NULL ? GradloomOrtNoMemory() : NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateSessionOptions(OrtSessionOptions** out) {
  if (out == NULL) return GradloomOrtWrong("the output pointer for the options is null");
  *out = (OrtSessionOptions*)calloc(1, sizeof **out);
  return *out == NULL ? GradloomOrtNoMemory() : NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSetIntraOpNumThreads(OrtSessionOptions* options, int threads) {
  if (options == NULL || threads < 0) return GradloomOrtWrong("the options are null, or the number of threads is negative");
  options->intra_op_threads = threads;
  return NULL;
}
/* Operators run one after the other on each device. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSetInterOpNumThreads(OrtSessionOptions* options, int threads) {
  return options == NULL || threads < 0 ? GradloomOrtWrong("the options are null, or the number of threads is negative") : NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateRunOptions(OrtRunOptions** out) {
  if (out == NULL) return GradloomOrtWrong("the output pointer for the options is null");
  *out = (OrtRunOptions*)calloc(1, sizeof **out);
  return *out == NULL ? GradloomOrtNoMemory() : NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateCpuMemoryInfo(OrtAllocatorType type, OrtMemType mem_type, OrtMemoryInfo** out) {
  (void)type, (void)mem_type;
  if (out == NULL) return GradloomOrtWrong("the output pointer for the result is null");
  *out = (OrtMemoryInfo*)calloc(1, sizeof **out);
  return *out == NULL ? GradloomOrtNoMemory() : NULL;
}
GRADLOOM_ORT_INLINE void GradloomOrtReleaseEnv(OrtEnv* env) { free(env); }
GRADLOOM_ORT_INLINE void GradloomOrtReleaseSessionOptions(OrtSessionOptions* options) { free(options); }
GRADLOOM_ORT_INLINE void GradloomOrtReleaseRunOptions(OrtRunOptions* options) { free(options); }
GRADLOOM_ORT_INLINE void GradloomOrtReleaseMemoryInfo(OrtMemoryInfo* info) { free(info); }

/* ---- Memory ---- */
GRADLOOM_ORT_INLINE void* GradloomOrtDefaultAlloc(OrtAllocator* allocator, size_t bytes) {
  (void)allocator;
  return malloc(bytes > 0 ? bytes : 1);
}
GRADLOOM_ORT_INLINE void GradloomOrtDefaultFree(OrtAllocator* allocator, void* memory) {
  (void)allocator;
  free(memory);
}
GRADLOOM_ORT_INLINE const OrtMemoryInfo* GradloomOrtDefaultInfo(const OrtAllocator* allocator) {
  static const OrtMemoryInfo info = {1};
  (void)allocator;
  return &info;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetAllocator(OrtAllocator** out) {
  static OrtAllocator allocator = {ORT_API_VERSION, GradloomOrtDefaultAlloc, GradloomOrtDefaultFree, GradloomOrtDefaultInfo};
  if (out == NULL) return GradloomOrtWrong("the output pointer for the allocator is null");
  *out = &allocator;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtAllocatorAlloc(OrtAllocator* allocator, size_t bytes, void** out) {
  if (allocator == NULL || out == NULL) return GradloomOrtWrong("the allocator or the output pointer for the memory is null");
  *out = allocator->Alloc(allocator, bytes);
  return *out == NULL ? GradloomOrtNoMemory() : NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtAllocatorFree(OrtAllocator* allocator, void* memory) {
  if (allocator == NULL) return GradloomOrtWrong("the allocator is null");
  if (memory != NULL) allocator->Free(allocator, memory);
  return NULL;
}
/* Memory that the caller frees with the allocator. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCopyOf(OrtAllocator* allocator, const void* from, size_t bytes, void** out) {
  OrtStatus* status = GradloomOrtAllocatorAlloc(allocator, bytes, out);
  if (status == NULL) memcpy(*out, from, bytes);
  return status;
}

/* ---- Tensors ---- */
GRADLOOM_ORT_INLINE void GradloomOrtReleaseValue(OrtValue* value) {
  if (value == NULL) return;
  free((void*)value->tensor.shape);
  free(value->owned);
  free(value);
}
/* Bytes of these elements; `ok` is 0 if the type or shape is not supported. */
GRADLOOM_ORT_INLINE size_t GradloomOrtBytes(const int64_t* shape, size_t rank, ONNXTensorElementDataType type, int* ok) {
  size_t bytes = GradloomOrtTable()->GetDTypeBytes((GradloomDType)type), i;
  *ok = bytes > 0 && rank <= 32 && (shape != NULL || rank == 0);
  for (i = 0; *ok && i < rank; ++i) {
    if (shape[i] < 0 || (bytes > 0 && (uint64_t)shape[i] > (SIZE_MAX / 2) / bytes)) *ok = 0;
    bytes *= (size_t)shape[i];
  }
  return bytes;
}
/* Makes a tensor over these elements; `data` null: zeros of its own. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtNewValue(void* data, const int64_t* shape, size_t rank, ONNXTensorElementDataType type,
                                                   size_t bytes, OrtValue** out) {
  OrtValue* value = (OrtValue*)calloc(1, sizeof(OrtValue));
  int64_t* own_shape = (int64_t*)malloc((rank + 1) * sizeof(int64_t));
  void* owned = data == NULL ? calloc(bytes + 1, 1) : NULL;
  if (value == NULL || own_shape == NULL || (data == NULL && owned == NULL)) {
    free(value), free(own_shape), free(owned);
    return GradloomOrtNoMemory();
  }
  if (rank > 0) memcpy(own_shape, shape, rank * sizeof(int64_t));
  value->tensor.data = data == NULL ? owned : data;
  value->tensor.shape = own_shape;
  value->tensor.rank = (int32_t)rank;
  value->tensor.dtype = (GradloomDType)type;
  value->owned = owned;
  *out = value;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateTensorWithData(const OrtMemoryInfo* info, void* data, size_t num_bytes,
                                                               const int64_t* shape, size_t rank, ONNXTensorElementDataType type,
                                                               OrtValue** out) {
  int ok;
  const size_t bytes = GradloomOrtBytes(shape, rank, type, &ok);
  (void)info;
  /* The buffer of an empty std::vector has no address. */
  if (out == NULL || !ok || (data == NULL && bytes > 0))
    return GradloomOrtWrong("an argument is null, or the type or shape is not supported");
  *out = NULL;
  if (bytes > num_bytes) return GradloomOrtWrong("the tensor's buffer is smaller than its shape requires");
  return GradloomOrtNewValue(data, shape, rank, type, bytes, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateTensor(OrtAllocator* allocator, const int64_t* shape, size_t rank,
                                                       ONNXTensorElementDataType type, OrtValue** out) {
  int ok;
  const size_t bytes = GradloomOrtBytes(shape, rank, type, &ok);
  if (allocator == NULL || out == NULL || !ok) return GradloomOrtWrong("an argument is null, or the type or shape is not supported");
  *out = NULL;
  return GradloomOrtNewValue(NULL, shape, rank, type, bytes, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtIsTensor(const OrtValue* value, int* out) {
  if (value == NULL || out == NULL) return GradloomOrtWrong("the value or the output pointer for the result is null");
  *out = 1;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetTensorMutableData(OrtValue* value, void** out) {
  if (value == NULL || out == NULL) return GradloomOrtWrong("the value or the output pointer for the result is null");
  *out = value->tensor.data;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtNewInfo(GradloomDType dtype, const int64_t* shape, size_t rank, OrtTensorTypeAndShapeInfo** out) {
  OrtTensorTypeAndShapeInfo* info = (OrtTensorTypeAndShapeInfo*)malloc(sizeof(OrtTensorTypeAndShapeInfo) + rank * sizeof(int64_t));
  *out = info;
  if (info == NULL) return GradloomOrtNoMemory();
  info->type = (ONNXTensorElementDataType)dtype;
  info->rank = rank;
  info->shape = (int64_t*)(info + 1);
  if (rank > 0) memcpy(info->shape, shape, rank * sizeof(int64_t));
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetTypeAndShape(const OrtValue* value, OrtTensorTypeAndShapeInfo** out) {
  if (value == NULL || out == NULL) return GradloomOrtWrong("the value or the output pointer for the result is null");
  return GradloomOrtNewInfo(value->tensor.dtype, value->tensor.shape, (size_t)value->tensor.rank, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetElementType(const OrtTensorTypeAndShapeInfo* info, ONNXTensorElementDataType* out) {
  if (info == NULL || out == NULL) return GradloomOrtWrong("the type or the output pointer for the result is null");
  *out = info->type;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetDimensionsCount(const OrtTensorTypeAndShapeInfo* info, size_t* out) {
  if (info == NULL || out == NULL) return GradloomOrtWrong("the type or the output pointer for the result is null");
  *out = info->rank;
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetDimensions(const OrtTensorTypeAndShapeInfo* info, int64_t* dimensions, size_t count) {
  size_t i;
  if (info == NULL || (dimensions == NULL && count > 0)) return GradloomOrtWrong("the type or the output pointer for the result is null");
  for (i = 0; i < count && i < info->rank; ++i) dimensions[i] = info->shape[i];
  return NULL;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetElementCount(const OrtTensorTypeAndShapeInfo* info, size_t* out) {
  size_t i;
  if (info == NULL || out == NULL) return GradloomOrtWrong("the type or the output pointer for the result is null");
  *out = 1;
  for (i = 0; i < info->rank; ++i) *out *= (size_t)info->shape[i];
  return NULL;
}
GRADLOOM_ORT_INLINE void GradloomOrtReleaseInfo(OrtTensorTypeAndShapeInfo* info) { free(info); }

#endif /* GRADLOOM_GRADLOOM_ORT_API_C_H_ */
