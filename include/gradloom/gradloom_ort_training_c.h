/* Training sessions of gradloom_ort_compat_c.h, which includes this file: creation, inputs and outputs, and steps. */
#ifndef GRADLOOM_GRADLOOM_ORT_TRAINING_C_H_
#define GRADLOOM_GRADLOOM_ORT_TRAINING_C_H_

#include <stdbool.h>
#include <sys/stat.h>

#include "gradloom/gradloom_ort_api_c.h"

/* A session and the state that it was made from. Queries of a state go to the session. Freed with the last of the two. */
typedef struct OrtTrainingSession {
  GradloomPlan* plan;
  GradloomSession* session;
  int owners;
} OrtTrainingSession;

typedef struct GradloomOrtProperty {
  struct GradloomOrtProperty* next;
  const char *name, *text; /* stored after the struct */
} GradloomOrtProperty;

typedef struct OrtCheckpointState {
  GradloomCheckpoint* checkpoint;  /* null: the model's initial weights */
  struct stat* model;              /* the file of that model; null: unknown */
  OrtTrainingSession* training;    /* the last session that was made from it; null: none */
  GradloomOrtProperty* properties; /* properties added before there was a session */
} OrtCheckpointState;

GRADLOOM_ORT_INLINE int GradloomOrtEndsWith(const char* text, const char* end) {
  const size_t n = text == NULL ? 0 : strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- Sessions and states: made and released ---- */
GRADLOOM_ORT_INLINE void GradloomOrtReleaseSession(OrtTrainingSession* session) {
  if (session == NULL || --session->owners > 0) return;
  GradloomOrtTable()->ReleaseTrainingSession(session->session);
  GradloomOrtTable()->ReleasePlan(session->plan);
  free(session);
}
GRADLOOM_ORT_INLINE void GradloomOrtReleaseState(OrtCheckpointState* state) {
  if (state == NULL) return;
  GradloomOrtReleaseSession(state->training);
  GradloomOrtTable()->ReleaseCheckpoint(state->checkpoint);
  while (state->properties != NULL) {
    GradloomOrtProperty* property = state->properties;
    state->properties = property->next;
    free(property);
  }
  free(state->model);
  free(state);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtLoadCheckpoint(const char* path, OrtCheckpointState** out) {
  OrtCheckpointState* state;
  OrtStatus* status = NULL;
  if (out != NULL) *out = NULL;
  if (path == NULL || out == NULL) return GradloomOrtWrong("the path or the output pointer for the state is null");
  state = (OrtCheckpointState*)calloc(1, sizeof(OrtCheckpointState));
  if (state == NULL) return GradloomOrtNoMemory();
  if (!GradloomOrtEndsWith(path, ".onnx") && !GradloomOrtEndsWith(path, ".plan")) {
    status = GradloomOrtTake(GradloomOrtTable()->LoadCheckpoint(path, &state->checkpoint));
  } else {
    state->model = (struct stat*)calloc(1, sizeof(struct stat));
    if (state->model == NULL)
      status = GradloomOrtNoMemory();
    else if (stat(path, state->model) != 0)
      status = GradloomOrtWrong("the model whose weights are the first checkpoint cannot be found");
  }
  if (status == NULL) {
    *out = state;
  } else {
    free(state->model);
    free(state);
  }
  return status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtLoadCheckpointFromBuffer(const void* bytes, const size_t num_bytes, OrtCheckpointState** out) {
  OrtCheckpointState* state;
  OrtStatus* status;
  if (out == NULL) return GradloomOrtWrong("the output pointer for the state is null");
  *out = NULL;
  state = (OrtCheckpointState*)calloc(1, sizeof(OrtCheckpointState));
  if (state == NULL) return GradloomOrtNoMemory();
  status = GradloomOrtTake(GradloomOrtTable()->LoadCheckpointFromBuffer(bytes, num_bytes, &state->checkpoint));
  if (status == NULL)
    *out = state;
  else
    free(state);
  return status;
}

/* The seed of sessions that are made from now on; one for the program. */
__attribute__((weak)) int64_t gradloom_ort_seed = 0;
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSetSeed(const int64_t seed) {
  gradloom_ort_seed = seed;
  return NULL;
}

/* Takes ownership of the plan. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtBegin(GradloomPlan* plan, OrtCheckpointState* state, OrtTrainingSession** out) {
  const GradloomApi* api = GradloomOrtTable();
  GradloomSessionOptions options;
  GradloomStatus* status;
  const GradloomOrtProperty* property;
  OrtTrainingSession* made = (OrtTrainingSession*)calloc(1, sizeof(OrtTrainingSession));
  if (made == NULL) {
    api->ReleasePlan(plan);
    return GradloomOrtNoMemory();
  }
  made->plan = plan;
  made->owners = 1;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.seed = gradloom_ort_seed;
  options.any_plan = 1; /* as in onnxruntime: another number of threads, or another learning rate */
  status = api->CreateTrainingSession(plan, &options, state->checkpoint, &made->session);
  for (property = state->properties; property != NULL && status == NULL; property = property->next)
    status = api->AddProperty(made->session, property->name, property->text);
  if (status != NULL) {
    GradloomOrtReleaseSession(made);
    return GradloomOrtTake(status);
  }
  GradloomOrtReleaseSession(state->training);
  state->training = made;
  made->owners = 2;
  *out = made;
  return NULL;
}
/* Takes ownership of the model. The configuration is a path, or a text in memory, or neither. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCompile(GradloomModel* model, const OrtSessionOptions* session_options, const char* config_path,
                                                  const char* config_text, GradloomPlan** out) {
  GradloomCompileOptions options;
  GradloomSetting threads;
  GradloomStatus* status;
  char number[16];
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.config_path = config_path;
  options.config_text = config_text;
  options.with = GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT | GRADLOOM_WITH_GRADIENTS;
  if (session_options != NULL && session_options->intra_op_threads > 0) {
    snprintf(number, sizeof number, "%d", session_options->intra_op_threads);
    threads.key = "devices.threads";
    threads.value = number;
    options.settings = &threads;
    options.num_settings = 1;
  }
  status = GradloomOrtTable()->Compile(model, &options, out);
  GradloomOrtTable()->ReleaseModel(model);
  return GradloomOrtTake(status);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateSession(const OrtEnv* env, const OrtSessionOptions* options, OrtCheckpointState* state,
                                                        const char* train_path, const char* eval_path, const char* optimizer_path,
                                                        OrtTrainingSession** out) {
  GradloomModel* model = NULL;
  GradloomPlan* plan = NULL;
  OrtStatus* status;
  struct stat train;
  (void)env, (void)eval_path;
  if (out != NULL) *out = NULL;
  if (state == NULL || train_path == NULL || out == NULL)
    return GradloomOrtWrong("the state, the training model or the output pointer for the session is null");
  /* The weights of another model would not be those that are trained. */
  if (state->model != NULL && stat(train_path, &train) == 0 &&
      (train.st_dev != state->model->st_dev || train.st_ino != state->model->st_ino))
    return GradloomOrtWrong(
        "the checkpoint is a model, but another one than the training model: load a checkpoint of it, or the training model itself");
  /* Otherwise a program that still names the optimizer model of onnxruntime-training would train with other settings than that. */
  if (!GradloomOrtEndsWith(train_path, ".plan") && optimizer_path != NULL && optimizer_path[0] != '\0' &&
      !GradloomOrtEndsWith(optimizer_path, ".toml"))
    return GradloomOrtWrong(
        "the optimizer model must be a configuration (.toml) with loss, optimizer and batch: docs/embedding.md has one");
  if (GradloomOrtEndsWith(train_path, ".plan")) {
    status = GradloomOrtTake(GradloomOrtTable()->LoadPlan(train_path, &plan));
  } else {
    status = GradloomOrtTake(GradloomOrtTable()->LoadModel(train_path, NULL, &model));
    if (status == NULL)
      status = GradloomOrtCompile(model, options, optimizer_path != NULL && optimizer_path[0] != '\0' ? optimizer_path : NULL, NULL, &plan);
  }
  return status == NULL ? GradloomOrtBegin(plan, state, out) : status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCreateSessionFromBuffer(const OrtEnv* env, const OrtSessionOptions* options,
                                                                  OrtCheckpointState* state, const void* train_data, size_t train_bytes,
                                                                  const void* eval_data, size_t eval_bytes, const void* optimizer_data,
                                                                  size_t optimizer_bytes, OrtTrainingSession** out) {
  /* The beginning of a plan file (docs/plan-format.md); no ONNX model begins so. */
  static const char kPlan[] = "\x8bGLP\r\n\x1a\n";
  GradloomModel* model = NULL;
  GradloomPlan* plan = NULL;
  OrtStatus* status;
  char* config = NULL;
  (void)env, (void)eval_data, (void)eval_bytes;
  if (out != NULL) *out = NULL;
  if (state == NULL || train_data == NULL || out == NULL)
    return GradloomOrtWrong("the state, the training model or the output pointer for the session is null");
  if (train_bytes >= sizeof kPlan - 1 && memcmp(train_data, kPlan, sizeof kPlan - 1) == 0) {
    status = GradloomOrtTake(GradloomOrtTable()->LoadPlanFromBuffer(train_data, train_bytes, &plan));
    return status == NULL ? GradloomOrtBegin(plan, state, out) : status;
  }
  if (optimizer_data != NULL && optimizer_bytes > 0) {
    config = (char*)malloc(optimizer_bytes + 1);
    if (config == NULL) return GradloomOrtNoMemory();
    memcpy(config, optimizer_data, optimizer_bytes);
    config[optimizer_bytes] = '\0';
  }
  status = GradloomOrtTake(GradloomOrtTable()->LoadModelFromBuffer(train_data, train_bytes, NULL, &model));
  if (status == NULL) status = GradloomOrtCompile(model, options, NULL, config, &plan);
  free(config);
  return status == NULL ? GradloomOrtBegin(plan, state, out) : status;
}

/* ---- Inputs and outputs ---- */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCount(const OrtTrainingSession* session, GradloomEntry entry, bool inputs, size_t* out) {
  const GradloomPlan* plan = session == NULL ? NULL : session->plan;
  return GradloomOrtTake(inputs ? GradloomOrtTable()->GetInputCount(plan, entry, out)
                                : GradloomOrtTable()->GetOutputCount(plan, entry, out));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtName(const OrtTrainingSession* session, GradloomEntry entry, bool inputs, size_t index,
                                               OrtAllocator* allocator, char** out) {
  const GradloomApi* api = GradloomOrtTable();
  const GradloomPlan* plan = session == NULL ? NULL : session->plan;
  GradloomTensorInfo info;
  GradloomStatus* failed;
  OrtStatus* status;
  void* copy = NULL;
  if (out == NULL) return GradloomOrtWrong("the output pointer for the name is null");
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  failed = inputs ? api->GetInputInfo(plan, entry, index, &info) : api->GetOutputInfo(plan, entry, index, &info);
  status = failed != NULL ? GradloomOrtTake(failed) : GradloomOrtCopyOf(allocator, info.name, strlen(info.name) + 1, &copy);
  *out = (char*)copy;
  return status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtTrainInputCount(const OrtTrainingSession* session, size_t* out) {
  return GradloomOrtCount(session, GRADLOOM_TRAIN, true, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtTrainOutputCount(const OrtTrainingSession* session, size_t* out) {
  return GradloomOrtCount(session, GRADLOOM_TRAIN, false, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtEvalInputCount(const OrtTrainingSession* session, size_t* out) {
  return GradloomOrtCount(session, GRADLOOM_EVAL, true, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtEvalOutputCount(const OrtTrainingSession* session, size_t* out) {
  return GradloomOrtCount(session, GRADLOOM_EVAL, false, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtTrainInputName(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator,
                                                         char** out) {
  return GradloomOrtName(session, GRADLOOM_TRAIN, true, index, allocator, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtTrainOutputName(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator,
                                                          char** out) {
  return GradloomOrtName(session, GRADLOOM_TRAIN, false, index, allocator, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtEvalInputName(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator,
                                                        char** out) {
  return GradloomOrtName(session, GRADLOOM_EVAL, true, index, allocator, out);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtEvalOutputName(const OrtTrainingSession* session, size_t index, OrtAllocator* allocator,
                                                         char** out) {
  return GradloomOrtName(session, GRADLOOM_EVAL, false, index, allocator, out);
}

/* ---- Steps ---- */
/* Returns null for null, which the table refuses. */
GRADLOOM_ORT_INLINE GradloomSession* GradloomOrtHandle(const OrtTrainingSession* session) {
  return session == NULL ? NULL : session->session;
}

/* Runs a step and copies its first outputs, in the plan's order: the loss, then the others. */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtRun(const OrtTrainingSession* session, GradloomEntry entry, size_t inputs_len,
                                              const OrtValue* const* inputs, size_t outputs_len, OrtValue** outputs) {
  const GradloomApi* api = GradloomOrtTable();
  GradloomTensor* tensors;
  OrtStatus* status;
  size_t i, known = 0;
  if (session == NULL || (inputs == NULL && inputs_len > 0) || (outputs == NULL && outputs_len > 0))
    return GradloomOrtWrong("the session, its inputs or outputs are null");
  status = GradloomOrtCount(session, entry, false, &known);
  if (status != NULL) return status;
  if (outputs_len > known) return GradloomOrtWrong("more outputs are requested than the model has");
  for (i = 0; i < outputs_len; ++i) outputs[i] = NULL;
  tensors = (GradloomTensor*)calloc(inputs_len + 1, sizeof(GradloomTensor));
  if (tensors == NULL) return GradloomOrtNoMemory();
  for (i = 0; i < inputs_len; ++i) {
    if (inputs[i] != NULL) tensors[i] = inputs[i]->tensor; /* otherwise a tensor without a type, which is refused */
  }
  status = GradloomOrtTake(entry == GRADLOOM_TRAIN ? api->TrainStep(session->session, NULL, tensors, inputs_len, NULL)
                                                   : api->EvalStep(session->session, NULL, tensors, inputs_len, NULL));
  free(tensors);
  for (i = 0; i < outputs_len && status == NULL; ++i) {
    GradloomTensorInfo info;
    GradloomTensor tensor;
    int ok;
    size_t bytes;
    memset(&info, 0, sizeof info);
    info.size = sizeof info;
    status = GradloomOrtTake(api->GetOutputInfo(session->plan, entry, i, &info));
    if (status == NULL) status = GradloomOrtTake(api->GetOutput(session->session, info.name, &tensor));
    if (status != NULL) break;
    bytes = GradloomOrtBytes(tensor.shape, (size_t)tensor.rank, (ONNXTensorElementDataType)tensor.dtype, &ok);
    status = GradloomOrtNewValue(NULL, tensor.shape, (size_t)tensor.rank, (ONNXTensorElementDataType)tensor.dtype, bytes, &outputs[i]);
    if (status == NULL && bytes > 0) memcpy(outputs[i]->owned, tensor.data, bytes);
  }
  return status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtTrainStep(OrtTrainingSession* session, const OrtRunOptions* options, size_t inputs_len,
                                                    const OrtValue* const* inputs, size_t outputs_len, OrtValue** outputs) {
  (void)options;
  return GradloomOrtRun(session, GRADLOOM_TRAIN, inputs_len, inputs, outputs_len, outputs);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtEvalStep(const OrtTrainingSession* session, const OrtRunOptions* options, size_t inputs_len,
                                                   const OrtValue* const* inputs, size_t outputs_len, OrtValue** outputs) {
  (void)options;
  return GradloomOrtRun(session, GRADLOOM_EVAL, inputs_len, inputs, outputs_len, outputs);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtOptimizerStep(OrtTrainingSession* session, const OrtRunOptions* options) {
  (void)options;
  return GradloomOrtTake(GradloomOrtTable()->OptimizerStep(GradloomOrtHandle(session), NULL));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtLazyResetGrad(OrtTrainingSession* session) {
  return GradloomOrtTake(GradloomOrtTable()->LazyResetGrad(GradloomOrtHandle(session)));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSetLearningRate(OrtTrainingSession* session, float lr) {
  return GradloomOrtTake(GradloomOrtTable()->SetLearningRate(GradloomOrtHandle(session), (double)lr));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtGetLearningRate(OrtTrainingSession* session, float* lr) {
  double value = 0;
  OrtStatus* status = GradloomOrtTake(GradloomOrtTable()->GetLearningRate(GradloomOrtHandle(session), lr == NULL ? NULL : &value));
  if (status == NULL) *lr = (float)value;
  return status;
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtRegisterLinear(OrtTrainingSession* session, const int64_t warmup_steps, const int64_t total_steps,
                                                         const float initial_lr) {
  return GradloomOrtTake(
      GradloomOrtTable()->RegisterLinearLRScheduler(GradloomOrtHandle(session), warmup_steps, total_steps, (double)initial_lr));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtSchedulerStep(OrtTrainingSession* session) {
  return GradloomOrtTake(GradloomOrtTable()->SchedulerStep(GradloomOrtHandle(session)));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtExport(OrtTrainingSession* session, const char* path, size_t count, const char* const* names) {
  return GradloomOrtTake(GradloomOrtTable()->ExportModelForInferencing(GradloomOrtHandle(session), path, names, count));
}

/* ---- All parameters as one vector ---- */
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtParametersSize(OrtTrainingSession* session, size_t* out, bool trainable_only) {
  return GradloomOrtTake(GradloomOrtTable()->GetParametersSize(GradloomOrtHandle(session), trainable_only ? 1 : 0, out));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCopyAll(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only, bool out) {
  const GradloomApi* api = GradloomOrtTable();
  float* data;
  size_t count;
  if (buffer == NULL || buffer->tensor.rank != 1 || buffer->tensor.dtype != GRADLOOM_FLOAT32)
    return GradloomOrtWrong("the buffer for all parameters must be a vector of float");
  data = (float*)buffer->tensor.data;
  count = (size_t)buffer->tensor.shape[0];
  return GradloomOrtTake(out ? api->CopyParametersToBuffer(GradloomOrtHandle(session), trainable_only ? 1 : 0, data, count)
                             : api->CopyBufferToParameters(GradloomOrtHandle(session), trainable_only ? 1 : 0, data, count));
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCopyOut(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only) {
  return GradloomOrtCopyAll(session, buffer, trainable_only, true);
}
GRADLOOM_ORT_INLINE OrtStatus* GradloomOrtCopyIn(OrtTrainingSession* session, OrtValue* buffer, bool trainable_only) {
  return GradloomOrtCopyAll(session, buffer, trainable_only, false);
}

#endif /* GRADLOOM_GRADLOOM_ORT_TRAINING_C_H_ */
