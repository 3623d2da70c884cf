/* The names of onnxruntime's C API for on-device training (onnxruntime_training_c_api.h) on top of Gradloom: what gradloom_ort_compat.h is
 * for C++, with the same meaning of the four artifact paths. C99, header-only; include gradloom_ort_compat.h, which takes this one for C.
 *
 * There is what a training program needs of OrtApi, and of OrtTrainingApi all but the names of inputs and outputs, single parameters,
 * properties and loading from buffers, for which there is gradloom_c.h. A program that uses another one does not compile. A status is
 * Gradloom's.
 */
#ifndef GRADLOOM_GRADLOOM_ORT_COMPAT_C_H_
#define GRADLOOM_GRADLOOM_ORT_COMPAT_C_H_

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gradloom/gradloom_c.h"

#define ORT_API_VERSION 19
#define ORTCHAR_T char
#define ORT_TSTR(text) text

typedef GradloomStatus OrtStatus;
typedef GradloomStatus* OrtStatusPtr;
typedef int32_t OrtErrorCode;
typedef enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE,
  ORT_LOGGING_LEVEL_INFO,
  ORT_LOGGING_LEVEL_WARNING,
  ORT_LOGGING_LEVEL_ERROR,
  ORT_LOGGING_LEVEL_FATAL
} OrtLoggingLevel;
typedef enum OrtAllocatorType { OrtDeviceAllocator = 0, OrtArenaAllocator = 1 } OrtAllocatorType;
typedef enum OrtMemType { OrtMemTypeCPU = -1, OrtMemTypeDefault = 0 } OrtMemType;
typedef enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = GRADLOOM_FLOAT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = GRADLOOM_UINT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = GRADLOOM_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = GRADLOOM_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = GRADLOOM_INT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = GRADLOOM_BOOL,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = GRADLOOM_FLOAT64
} ONNXTensorElementDataType;

/* Of these only that they were made is known. */
typedef struct OrtEnv {
  int made;
} OrtEnv;
typedef OrtEnv OrtSessionOptions;
typedef OrtEnv OrtMemoryInfo;
typedef OrtEnv OrtRunOptions;

/* A tensor: of the caller's buffer, or with its own behind the shape. */
typedef struct OrtValue {
  GradloomTensor tensor;
  int64_t* shape;
  void* owned;
} OrtValue;

typedef struct OrtCheckpointState {
  GradloomCheckpoint* checkpoint; /* null: the weights that the model begins with */
  GradloomSession* session;       /* of the last session that was made of it; borrowed */
} OrtCheckpointState;

typedef struct OrtTrainingSession {
  GradloomPlan* plan;
  GradloomSession* session;
} OrtTrainingSession;

static inline const GradloomApi* GradloomOrtTable(void) { return GradloomGetApi(GRADLOOM_API_VERSION); }

/* The status of a null handle: what Gradloom says of one. */
static inline OrtStatus* GradloomOrtNull(void) { return GradloomOrtTable()->GetPosition(NULL, NULL, NULL); }

static inline int GradloomOrtEndsWith(const char* text, const char* end) {
  const size_t n = text == NULL ? 0 : strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- OrtApi ---- */
static inline OrtStatus* GradloomOrtMake(OrtEnv** out) {
  if (out == NULL || (*out = (OrtEnv*)calloc(1, sizeof(OrtEnv))) == NULL) return GradloomOrtNull();
  return NULL;
}
static inline OrtStatus* GradloomOrtCreateEnv(OrtLoggingLevel level, const char* id, OrtEnv** out) {
  (void)level, (void)id;
  return GradloomOrtMake(out);
}
static inline OrtStatus* GradloomOrtCreateSessionOptions(OrtSessionOptions** out) { return GradloomOrtMake(out); }
static inline OrtStatus* GradloomOrtCreateCpuMemoryInfo(OrtAllocatorType type, OrtMemType mem_type, OrtMemoryInfo** out) {
  (void)type, (void)mem_type;
  return GradloomOrtMake(out);
}
static inline void GradloomOrtFree(OrtEnv* made) { free(made); }
static inline const char* GradloomOrtMessage(const OrtStatus* status) { return GradloomOrtTable()->GetErrorMessage(status); }
static inline OrtErrorCode GradloomOrtCode(const OrtStatus* status) { return GradloomOrtTable()->GetErrorCode(status); }
static inline void GradloomOrtReleaseStatus(OrtStatus* status) { GradloomOrtTable()->ReleaseStatus(status); }

static inline void GradloomOrtReleaseValue(OrtValue* value) {
  if (value == NULL) return;
  free(value->shape);
  free(value->owned);
  free(value);
}
/* With a copy of the shape, and of the elements where `copies` says so. */
static inline OrtValue* GradloomOrtValueOf(const GradloomTensor* tensor, int copies) {
  OrtValue* value = (OrtValue*)calloc(1, sizeof(OrtValue));
  size_t bytes = GradloomOrtTable()->GetDTypeBytes(tensor->dtype);
  int32_t i;
  if (value == NULL) return NULL;
  value->tensor = *tensor;
  value->shape = (int64_t*)malloc(((size_t)tensor->rank + 1) * sizeof(int64_t));
  for (i = 0; value->shape != NULL && i < tensor->rank; ++i) bytes *= (size_t)(value->shape[i] = tensor->shape[i]);
  value->tensor.shape = value->shape;
  if (copies) value->owned = value->tensor.data = malloc(bytes + 1);
  if (value->shape == NULL || (copies && value->owned == NULL)) {
    GradloomOrtReleaseValue(value);
    return NULL;
  }
  if (copies && bytes > 0) memcpy(value->owned, tensor->data, bytes);
  return value;
}
static inline OrtStatus* GradloomOrtCreateTensor(const OrtMemoryInfo* info, void* data, size_t num_bytes, const int64_t* shape, size_t rank,
                                                 ONNXTensorElementDataType type, OrtValue** out) {
  GradloomTensor tensor;
  (void)info, (void)num_bytes;
  if (out == NULL || (shape == NULL && rank > 0) || rank > 32) return GradloomOrtNull();
  tensor.data = data;
  tensor.shape = shape;
  tensor.rank = (int32_t)rank;
  tensor.dtype = (GradloomDType)type;
  *out = GradloomOrtValueOf(&tensor, 0);
  return *out == NULL ? GradloomOrtNull() : NULL;
}
static inline OrtStatus* GradloomOrtTensorData(OrtValue* value, void** out) {
  if (value == NULL || out == NULL) return GradloomOrtNull();
  *out = value->tensor.data;
  return NULL;
}

/* ---- OrtTrainingApi ---- */
static inline OrtStatus* GradloomOrtLoadCheckpoint(const char* path, OrtCheckpointState** out) {
  OrtStatus* status = NULL;
  if (path == NULL || out == NULL || (*out = (OrtCheckpointState*)calloc(1, sizeof(OrtCheckpointState))) == NULL) return GradloomOrtNull();
  if (!GradloomOrtEndsWith(path, ".onnx") && !GradloomOrtEndsWith(path, ".plan"))
    status = GradloomOrtTable()->LoadCheckpoint(path, &(*out)->checkpoint);
  if (status != NULL) {
    free(*out);
    *out = NULL;
  }
  return status;
}
static inline void GradloomOrtReleaseCheckpoint(OrtCheckpointState* state) {
  if (state == NULL) return;
  GradloomOrtTable()->ReleaseCheckpoint(state->checkpoint);
  free(state);
}
static inline OrtStatus* GradloomOrtSaveCheckpoint(OrtCheckpointState* state, const char* path, bool include_optimizer_state) {
  return GradloomOrtTable()->SaveCheckpoint(state == NULL ? NULL : state->session, path, include_optimizer_state ? 1 : 0);
}

static inline OrtStatus* GradloomOrtPlan(const char* model_path, const char* config_path, GradloomPlan** out) {
  const GradloomApi* api = GradloomOrtTable();
  GradloomCompileOptions options;
  GradloomModel* model = NULL;
  OrtStatus* status;
  if (GradloomOrtEndsWith(model_path, ".plan")) return api->LoadPlan(model_path, out);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.config_path = GradloomOrtEndsWith(config_path, ".toml") ? config_path : NULL;
  options.with = GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT | GRADLOOM_WITH_GRADIENTS;
  status = api->LoadModel(model_path, NULL, &model);
  if (status == NULL) status = api->Compile(model, &options, out);
  api->ReleaseModel(model);
  return status;
}
static inline void GradloomOrtReleaseSession(OrtTrainingSession* session) {
  if (session == NULL) return;
  GradloomOrtTable()->ReleaseTrainingSession(session->session);
  GradloomOrtTable()->ReleasePlan(session->plan);
  free(session);
}
static inline int64_t* GradloomOrtSeed(void) {
  static int64_t seed;
  return &seed;
}
static inline OrtStatus* GradloomOrtSetSeed(int64_t seed) {
  *GradloomOrtSeed() = seed;
  return NULL;
}
static inline OrtStatus* GradloomOrtCreateSession(const OrtEnv* env, const OrtSessionOptions* options, OrtCheckpointState* state,
                                                  const char* train_path, const char* eval_path, const char* optimizer_path,
                                                  OrtTrainingSession** out) {
  GradloomSessionOptions given;
  OrtTrainingSession* made;
  OrtStatus* status;
  (void)env, (void)options, (void)eval_path;
  if (state == NULL || out == NULL || (made = (OrtTrainingSession*)calloc(1, sizeof(OrtTrainingSession))) == NULL) return GradloomOrtNull();
  memset(&given, 0, sizeof given);
  given.size = sizeof given;
  given.seed = *GradloomOrtSeed();
  status = GradloomOrtPlan(train_path, optimizer_path, &made->plan);
  if (status == NULL) status = GradloomOrtTable()->CreateTrainingSession(made->plan, &given, state->checkpoint, &made->session);
  if (status != NULL) {
    GradloomOrtReleaseSession(made);
    return status;
  }
  state->session = made->session;
  *out = made;
  return NULL;
}

/* Runs a step and copies its first outputs, in the plan's order: the loss, then the others. */
static inline OrtStatus* GradloomOrtRun(OrtTrainingSession* session, GradloomEntry entry, size_t inputs_len, const OrtValue* const* inputs,
                                        size_t outputs_len, OrtValue** outputs) {
  const GradloomApi* api = GradloomOrtTable();
  GradloomTensor* tensors;
  OrtStatus* status;
  size_t i;
  if (session == NULL || (inputs == NULL && inputs_len > 0) || (outputs == NULL && outputs_len > 0)) return GradloomOrtNull();
  tensors = (GradloomTensor*)calloc(inputs_len + 1, sizeof(GradloomTensor));
  if (tensors == NULL) return GradloomOrtNull();
  for (i = 0; i < inputs_len; ++i) {
    if (inputs[i] != NULL) tensors[i] = inputs[i]->tensor; /* else a tensor of no type, which is refused */
  }
  status = entry == GRADLOOM_TRAIN ? api->TrainStep(session->session, NULL, tensors, inputs_len, NULL)
                                   : api->EvalStep(session->session, NULL, tensors, inputs_len, NULL);
  free(tensors);
  for (i = 0; i < outputs_len && status == NULL; ++i) {
    GradloomTensorInfo info;
    GradloomTensor tensor;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    status = api->GetOutputInfo(session->plan, entry, i, &info);
    if (status == NULL) status = api->GetOutput(session->session, info.name, &tensor);
    if (status == NULL && (outputs[i] = GradloomOrtValueOf(&tensor, 1)) == NULL) status = GradloomOrtNull();
  }
  return status;
}
static inline OrtStatus* GradloomOrtTrainStep(OrtTrainingSession* session, const OrtRunOptions* options, size_t inputs_len,
                                              const OrtValue* const* inputs, size_t outputs_len, OrtValue** outputs) {
  (void)options;
  return GradloomOrtRun(session, GRADLOOM_TRAIN, inputs_len, inputs, outputs_len, outputs);
}
static inline OrtStatus* GradloomOrtEvalStep(const OrtTrainingSession* session, const OrtRunOptions* options, size_t inputs_len,
                                             const OrtValue* const* inputs, size_t outputs_len, OrtValue** outputs) {
  (void)options;
  return GradloomOrtRun((OrtTrainingSession*)session, GRADLOOM_EVAL, inputs_len, inputs, outputs_len, outputs);
}
static inline OrtStatus* GradloomOrtOptimizerStep(OrtTrainingSession* session, const OrtRunOptions* options) {
  (void)options;
  return GradloomOrtTable()->OptimizerStep(session == NULL ? NULL : session->session, NULL);
}
static inline OrtStatus* GradloomOrtLazyResetGrad(OrtTrainingSession* session) {
  return GradloomOrtTable()->LazyResetGrad(session == NULL ? NULL : session->session);
}
static inline OrtStatus* GradloomOrtSetLearningRate(OrtTrainingSession* session, float lr) {
  return GradloomOrtTable()->SetLearningRate(session == NULL ? NULL : session->session, (double)lr);
}
static inline OrtStatus* GradloomOrtGetLearningRate(OrtTrainingSession* session, float* lr) {
  double value = 0;
  OrtStatus* status = GradloomOrtTable()->GetLearningRate(session == NULL ? NULL : session->session, &value);
  if (status == NULL && lr == NULL) return GradloomOrtNull();
  if (status == NULL) *lr = (float)value;
  return status;
}
static inline OrtStatus* GradloomOrtRegisterLinear(OrtTrainingSession* session, int64_t warmup, int64_t total, float initial_lr) {
  return GradloomOrtTable()->RegisterLinearLRScheduler(session == NULL ? NULL : session->session, warmup, total, (double)initial_lr);
}
static inline OrtStatus* GradloomOrtSchedulerStep(OrtTrainingSession* session) {
  return GradloomOrtTable()->SchedulerStep(session == NULL ? NULL : session->session);
}
static inline OrtStatus* GradloomOrtParametersSize(OrtTrainingSession* session, size_t* out, bool trainable_only) {
  return GradloomOrtTable()->GetParametersSize(session == NULL ? NULL : session->session, trainable_only ? 1 : 0, out);
}
static inline OrtStatus* GradloomOrtCopyOut(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only) {
  if (session == NULL || buffer == NULL || buffer->tensor.rank != 1 || buffer->tensor.dtype != GRADLOOM_FLOAT32) return GradloomOrtNull();
  return GradloomOrtTable()->CopyParametersToBuffer(session->session, trainable_only ? 1 : 0, (float*)buffer->tensor.data,
                                                    (size_t)buffer->tensor.shape[0]);
}
static inline OrtStatus* GradloomOrtCopyIn(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only) {
  if (session == NULL || buffer == NULL || buffer->tensor.rank != 1 || buffer->tensor.dtype != GRADLOOM_FLOAT32) return GradloomOrtNull();
  return GradloomOrtTable()->CopyBufferToParameters(session->session, trainable_only ? 1 : 0, (const float*)buffer->tensor.data,
                                                    (size_t)buffer->tensor.shape[0]);
}
static inline OrtStatus* GradloomOrtExport(OrtTrainingSession* session, const char* path, size_t count, const char* const* names) {
  return GradloomOrtTable()->ExportModelForInferencing(session == NULL ? NULL : session->session, path, names, count);
}

/* The table of the calls above by onnxruntime's names; those of OrtApi that a training program needs, and no others. */
typedef struct OrtTrainingApi {
  OrtStatus* (*LoadCheckpoint)(const char*, OrtCheckpointState**);
  OrtStatus* (*SaveCheckpoint)(OrtCheckpointState*, const char*, bool);
  OrtStatus* (*CreateTrainingSession)(const OrtEnv*, const OrtSessionOptions*, OrtCheckpointState*, const char*, const char*, const char*,
                                      OrtTrainingSession**);
  OrtStatus* (*TrainStep)(OrtTrainingSession*, const OrtRunOptions*, size_t, const OrtValue* const*, size_t, OrtValue**);
  OrtStatus* (*EvalStep)(const OrtTrainingSession*, const OrtRunOptions*, size_t, const OrtValue* const*, size_t, OrtValue**);
  OrtStatus* (*OptimizerStep)(OrtTrainingSession*, const OrtRunOptions*);
  OrtStatus* (*LazyResetGrad)(OrtTrainingSession*);
  OrtStatus* (*SetLearningRate)(OrtTrainingSession*, float);
  OrtStatus* (*GetLearningRate)(OrtTrainingSession*, float*);
  OrtStatus* (*RegisterLinearLRScheduler)(OrtTrainingSession*, int64_t, int64_t, float);
  OrtStatus* (*SchedulerStep)(OrtTrainingSession*);
  OrtStatus* (*GetParametersSize)(OrtTrainingSession*, size_t*, bool);
  OrtStatus* (*CopyParametersToBuffer)(OrtTrainingSession*, OrtValue*, bool);
  OrtStatus* (*CopyBufferToParameters)(OrtTrainingSession*, OrtValue*, bool);
  OrtStatus* (*ExportModelForInferencing)(OrtTrainingSession*, const char*, size_t, const char* const*);
  OrtStatus* (*SetSeed)(int64_t);
  void (*ReleaseTrainingSession)(OrtTrainingSession*);
  void (*ReleaseCheckpointState)(OrtCheckpointState*);
} OrtTrainingApi;

static inline const OrtTrainingApi* GradloomOrtTrainingApi(uint32_t version) {
  static const OrtTrainingApi api = {GradloomOrtLoadCheckpoint, GradloomOrtSaveCheckpoint,  GradloomOrtCreateSession,
                                     GradloomOrtTrainStep,      GradloomOrtEvalStep,        GradloomOrtOptimizerStep,
                                     GradloomOrtLazyResetGrad,  GradloomOrtSetLearningRate, GradloomOrtGetLearningRate,
                                     GradloomOrtRegisterLinear, GradloomOrtSchedulerStep,   GradloomOrtParametersSize,
                                     GradloomOrtCopyOut,        GradloomOrtCopyIn,          GradloomOrtExport,
                                     GradloomOrtSetSeed,        GradloomOrtReleaseSession,  GradloomOrtReleaseCheckpoint};
  return version <= ORT_API_VERSION && GradloomOrtTable() != NULL ? &api : NULL;
}

typedef struct OrtApi {
  OrtErrorCode (*GetErrorCode)(const OrtStatus*);
  const char* (*GetErrorMessage)(const OrtStatus*);
  void (*ReleaseStatus)(OrtStatus*);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel, const char*, OrtEnv**);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions**);
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo**);
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t, ONNXTensorElementDataType,
                                               OrtValue**);
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  void (*ReleaseEnv)(OrtEnv*);
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseValue)(OrtValue*);
  const OrtTrainingApi* (*GetTrainingApi)(uint32_t version);
} OrtApi;

static inline const OrtApi* GradloomOrtApi(uint32_t version) {
  static const OrtApi api = {GradloomOrtCode,
                             GradloomOrtMessage,
                             GradloomOrtReleaseStatus,
                             GradloomOrtCreateEnv,
                             GradloomOrtCreateSessionOptions,
                             GradloomOrtCreateCpuMemoryInfo,
                             GradloomOrtCreateTensor,
                             GradloomOrtTensorData,
                             GradloomOrtFree,
                             GradloomOrtFree,
                             GradloomOrtFree,
                             GradloomOrtReleaseValue,
                             GradloomOrtTrainingApi};
  return version <= ORT_API_VERSION ? &api : NULL;
}

typedef struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version);
} OrtApiBase;
static inline const OrtApiBase* OrtGetApiBase(void) {
  static const OrtApiBase base = {GradloomOrtApi};
  return &base;
}

#endif /* GRADLOOM_GRADLOOM_ORT_COMPAT_C_H_ */
