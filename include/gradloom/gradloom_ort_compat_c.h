/* onnxruntime's C API for on-device training (OrtTrainingApi of onnxruntime_training_c_api.h, last in 1.19) on top of Gradloom: all of its
 * functions under their names. gradloom_ort_compat.h says what the four artifact paths mean. C99 and C++, header-only. Include
 * gradloom_ort_compat.h, which includes this file. Any thread may call functions; only one thread may use a handle at a time.
 */
#ifndef GRADLOOM_GRADLOOM_ORT_COMPAT_C_H_
#define GRADLOOM_GRADLOOM_ORT_COMPAT_C_H_

#include "gradloom/gradloom_ort_api_c.h"
#include "gradloom/gradloom_ort_state_c.h"
#include "gradloom/gradloom_ort_training_c.h"

typedef struct OrtTrainingApi {
  OrtStatus* (*LoadCheckpoint)(const char* path, OrtCheckpointState** state);
  OrtStatus* (*SaveCheckpoint)(OrtCheckpointState* state, const char* path, const bool include_optimizer_state);
  OrtStatus* (*CreateTrainingSession)(const OrtEnv* env, const OrtSessionOptions* options, OrtCheckpointState* state,
                                      const char* train_path, const char* eval_path, const char* optimizer_path, OrtTrainingSession** out);
  OrtStatus* (*CreateTrainingSessionFromBuffer)(const OrtEnv* env, const OrtSessionOptions* options, OrtCheckpointState* state,
                                                const void* train_data, size_t train_bytes, const void* eval_data, size_t eval_bytes,
                                                const void* optimizer_data, size_t optimizer_bytes, OrtTrainingSession** out);
  OrtStatus* (*TrainingSessionGetTrainingModelOutputCount)(const OrtTrainingSession* session, size_t* out);
  OrtStatus* (*TrainingSessionGetEvalModelOutputCount)(const OrtTrainingSession* session, size_t* out);
  OrtStatus* (*TrainingSessionGetTrainingModelOutputName)(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator,
                                                          char** out);
  OrtStatus* (*TrainingSessionGetEvalModelOutputName)(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator, char** out);
  OrtStatus* (*LazyResetGrad)(OrtTrainingSession* session);
  OrtStatus* (*TrainStep)(OrtTrainingSession* session, const OrtRunOptions* options, size_t inputs_len, const OrtValue* const* inputs,
                          size_t outputs_len, OrtValue** outputs);
  OrtStatus* (*EvalStep)(const OrtTrainingSession* session, const OrtRunOptions* options, size_t inputs_len, const OrtValue* const* inputs,
                         size_t outputs_len, OrtValue** outputs);
  OrtStatus* (*SetLearningRate)(OrtTrainingSession* session, float lr);
  OrtStatus* (*GetLearningRate)(OrtTrainingSession* session, float* lr);
  OrtStatus* (*OptimizerStep)(OrtTrainingSession* session, const OrtRunOptions* options);
  OrtStatus* (*RegisterLinearLRScheduler)(OrtTrainingSession* session, const int64_t warmup_steps, const int64_t total_steps,
                                          const float initial_lr);
  OrtStatus* (*SchedulerStep)(OrtTrainingSession* session);
  OrtStatus* (*GetParametersSize)(OrtTrainingSession* session, size_t* out, bool trainable_only);
  OrtStatus* (*CopyParametersToBuffer)(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only);
  OrtStatus* (*CopyBufferToParameters)(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only);
  void (*ReleaseTrainingSession)(OrtTrainingSession* session);
  void (*ReleaseCheckpointState)(OrtCheckpointState* state);
  OrtStatus* (*ExportModelForInferencing)(OrtTrainingSession* session, const char* path, size_t count, const char* const* names);
  OrtStatus* (*SetSeed)(const int64_t seed);
  OrtStatus* (*TrainingSessionGetTrainingModelInputCount)(const OrtTrainingSession* session, size_t* out);
  OrtStatus* (*TrainingSessionGetEvalModelInputCount)(const OrtTrainingSession* session, size_t* out);
  OrtStatus* (*TrainingSessionGetTrainingModelInputName)(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator,
                                                         char** out);
  OrtStatus* (*TrainingSessionGetEvalModelInputName)(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator, char** out);
  OrtStatus* (*AddProperty)(OrtCheckpointState* state, const char* name, enum OrtPropertyType type, void* value);
  OrtStatus* (*GetProperty)(const OrtCheckpointState* state, const char* name, OrtAllocator* allocator, enum OrtPropertyType* type,
                            void** value);
  OrtStatus* (*LoadCheckpointFromBuffer)(const void* bytes, const size_t num_bytes, OrtCheckpointState** state);
  OrtStatus* (*GetParameterTypeAndShape)(const OrtCheckpointState* state, const char* name, OrtTensorTypeAndShapeInfo** out);
  OrtStatus* (*UpdateParameter)(OrtCheckpointState* state, const char* name, OrtValue* value);
  OrtStatus* (*GetParameter)(const OrtCheckpointState* state, const char* name, OrtAllocator* allocator, OrtValue** out);
} OrtTrainingApi;

typedef struct OrtApi {
  OrtStatus* (*CreateStatus)(OrtErrorCode code, const char* message);
  OrtErrorCode (*GetErrorCode)(const OrtStatus* status);
  const char* (*GetErrorMessage)(const OrtStatus* status);
  void (*ReleaseStatus)(OrtStatus* status);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel level, const char* id, OrtEnv** out);
  void (*ReleaseEnv)(OrtEnv* env);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions** out);
  OrtStatus* (*SetIntraOpNumThreads)(OrtSessionOptions* options, int threads);
  OrtStatus* (*SetInterOpNumThreads)(OrtSessionOptions* options, int threads);
  void (*ReleaseSessionOptions)(OrtSessionOptions* options);
  OrtStatus* (*CreateRunOptions)(OrtRunOptions** out);
  void (*ReleaseRunOptions)(OrtRunOptions* options);
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType type, OrtMemType mem_type, OrtMemoryInfo** out);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo* info);
  OrtStatus* (*GetAllocatorWithDefaultOptions)(OrtAllocator** out);
  OrtStatus* (*AllocatorAlloc)(OrtAllocator* allocator, size_t bytes, void** out);
  OrtStatus* (*AllocatorFree)(OrtAllocator* allocator, void* memory);
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo* info, void* data, size_t num_bytes, const int64_t* shape, size_t rank,
                                               ONNXTensorElementDataType type, OrtValue** out);
  OrtStatus* (*CreateTensorAsOrtValue)(OrtAllocator* allocator, const int64_t* shape, size_t rank, ONNXTensorElementDataType type,
                                       OrtValue** out);
  OrtStatus* (*IsTensor)(const OrtValue* value, int* out);
  OrtStatus* (*GetTensorMutableData)(OrtValue* value, void** out);
  OrtStatus* (*GetTensorTypeAndShape)(const OrtValue* value, OrtTensorTypeAndShapeInfo** out);
  void (*ReleaseValue)(OrtValue* value);
  OrtStatus* (*GetTensorElementType)(const OrtTensorTypeAndShapeInfo* info, ONNXTensorElementDataType* out);
  OrtStatus* (*GetDimensionsCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out);
  OrtStatus* (*GetDimensions)(const OrtTensorTypeAndShapeInfo* info, int64_t* dimensions, size_t count);
  OrtStatus* (*GetTensorShapeElementCount)(const OrtTensorTypeAndShapeInfo* info, size_t* out);
  void (*ReleaseTensorTypeAndShapeInfo)(OrtTensorTypeAndShapeInfo* info);
  const OrtTrainingApi* (*GetTrainingApi)(uint32_t version);
} OrtApi;

typedef struct OrtApiBase {
  const OrtApi* (*GetApi)(uint32_t version); /* null for a version after 1.19's */
  const char* (*GetVersionString)(void);     /* Gradloom's */
} OrtApiBase;

GRADLOOM_ORT_INLINE const OrtTrainingApi* GradloomOrtTrainingApi(uint32_t version) {
  static const OrtTrainingApi api = {GradloomOrtLoadCheckpoint,   GradloomOrtSaveCheckpoint,
                                     GradloomOrtCreateSession,    GradloomOrtCreateSessionFromBuffer,
                                     GradloomOrtTrainOutputCount, GradloomOrtEvalOutputCount,
                                     GradloomOrtTrainOutputName,  GradloomOrtEvalOutputName,
                                     GradloomOrtLazyResetGrad,    GradloomOrtTrainStep,
                                     GradloomOrtEvalStep,         GradloomOrtSetLearningRate,
                                     GradloomOrtGetLearningRate,  GradloomOrtOptimizerStep,
                                     GradloomOrtRegisterLinear,   GradloomOrtSchedulerStep,
                                     GradloomOrtParametersSize,   GradloomOrtCopyOut,
                                     GradloomOrtCopyIn,           GradloomOrtReleaseSession,
                                     GradloomOrtReleaseState,     GradloomOrtExport,
                                     GradloomOrtSetSeed,          GradloomOrtTrainInputCount,
                                     GradloomOrtEvalInputCount,   GradloomOrtTrainInputName,
                                     GradloomOrtEvalInputName,    GradloomOrtAddProperty,
                                     GradloomOrtGetProperty,      GradloomOrtLoadCheckpointFromBuffer,
                                     GradloomOrtParameterType,    GradloomOrtUpdateParameter,
                                     GradloomOrtGetParameter};
  return version <= ORT_API_VERSION && GradloomOrtTable() != NULL ? &api : NULL;
}
GRADLOOM_ORT_INLINE const OrtApi* GradloomOrtApi(uint32_t version) {
  static const OrtApi api = {GradloomOrtCreateStatus,
                             GradloomOrtGetErrorCode,
                             GradloomOrtGetErrorMessage,
                             GradloomOrtReleaseStatus,
                             GradloomOrtCreateEnv,
                             GradloomOrtReleaseEnv,
                             GradloomOrtCreateSessionOptions,
                             GradloomOrtSetIntraOpNumThreads,
                             GradloomOrtSetInterOpNumThreads,
                             GradloomOrtReleaseSessionOptions,
                             GradloomOrtCreateRunOptions,
                             GradloomOrtReleaseRunOptions,
                             GradloomOrtCreateCpuMemoryInfo,
                             GradloomOrtReleaseMemoryInfo,
                             GradloomOrtGetAllocator,
                             GradloomOrtAllocatorAlloc,
                             GradloomOrtAllocatorFree,
                             GradloomOrtCreateTensorWithData,
                             GradloomOrtCreateTensor,
                             GradloomOrtIsTensor,
                             GradloomOrtGetTensorMutableData,
                             GradloomOrtGetTypeAndShape,
                             GradloomOrtReleaseValue,
                             GradloomOrtGetElementType,
                             GradloomOrtGetDimensionsCount,
                             GradloomOrtGetDimensions,
                             GradloomOrtGetElementCount,
                             GradloomOrtReleaseInfo,
                             GradloomOrtTrainingApi};
  return version <= ORT_API_VERSION && GradloomOrtTable() != NULL ? &api : NULL;
}
GRADLOOM_ORT_INLINE const char* GradloomOrtVersion(void) { return GradloomOrtTable()->GetLibraryVersion(); }
GRADLOOM_ORT_INLINE const OrtApiBase* OrtGetApiBase(void) {
  static const OrtApiBase base = {GradloomOrtApi, GradloomOrtVersion};
  return &base;
}

#endif /* GRADLOOM_GRADLOOM_ORT_COMPAT_C_H_ */
