/* A C program for onnxruntime's on-device training, ported to Gradloom by changing its first include. argv: the model; its folder is
 * TEST_TMPDIR. */
#include <gradloom/gradloom_ort_compat.h>
#include <math.h>
#include <stdio.h>

static const OrtApi* ort;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

static void Good(OrtStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
  exit(1);
}

static void Fails(OrtStatus* status) {
  CHECK(status != NULL && ort->GetErrorCode(status) != ORT_OK && *ort->GetErrorMessage(status) != '\0');
  ort->ReleaseStatus(status);
}

/* Checks the shape of a parameter, and that its type is float. */
static void CheckParameter(const OrtTrainingApi* training, const OrtCheckpointState* state, const char* name, size_t rank, int64_t first) {
  OrtTensorTypeAndShapeInfo* info = NULL;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
  int64_t shape[2] = {0, 0};
  size_t count = 0;
  Good(training->GetParameterTypeAndShape(state, name, &info));
  Good(ort->GetTensorElementType(info, &type));
  Good(ort->GetDimensionsCount(info, &count));
  Good(ort->GetDimensions(info, shape, count));
  CHECK(type == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT && count == rank && shape[0] == first);
  Good(ort->GetTensorShapeElementCount(info, &count));
  CHECK(count == (size_t)(shape[0] * (rank == 2 ? shape[1] : 1)));
  ort->ReleaseTensorTypeAndShapeInfo(info);
}

typedef OrtStatus* (*CountOf)(const OrtTrainingSession*, size_t*);
typedef OrtStatus* (*NameOf)(const OrtTrainingSession*, size_t, OrtAllocator*, char**);
static void CheckNames(const OrtTrainingSession* session, CountOf count_of, NameOf name_of, const char* first, const char* second) {
  OrtAllocator* allocator = NULL;
  const char* const expected[] = {first, second};
  size_t count = 0, i;
  char* name = NULL;
  Good(ort->GetAllocatorWithDefaultOptions(&allocator));
  Good(count_of(session, &count));
  CHECK(count == (second == NULL ? 1u : 2u));
  for (i = 0; i < count; ++i) {
    Good(name_of(session, i, allocator, &name));
    CHECK(strcmp(name, expected[i]) == 0);
    Good(ort->AllocatorFree(allocator, name));
  }
  Fails(name_of(session, count, allocator, &name));
  Fails(name_of(NULL, 0, allocator, &name));
  Fails(name_of(session, 0, NULL, &name));
  Fails(name_of(session, 0, allocator, NULL));
  Fails(count_of(NULL, &count));
  Fails(count_of(session, NULL));
}

/* An allocator of the program's own, which counts its allocations. */
typedef struct Counting {
  OrtAllocator base;
  int held;
} Counting;
static void* Take(OrtAllocator* allocator, size_t bytes) {
  ++((Counting*)allocator)->held;
  return malloc(bytes);
}
static void Give(OrtAllocator* allocator, void* memory) {
  --((Counting*)allocator)->held;
  free(memory);
}

static void CheckProperties(const OrtTrainingApi* training, const OrtCheckpointState* state) {
  Counting own;
  OrtPropertyType type = OrtStringProperty;
  void* value = NULL;
  memset(&own, 0, sizeof own);
  own.base.version = ORT_API_VERSION;
  own.base.Alloc = Take;
  own.base.Free = Give;
  Good(training->GetProperty(state, "epoch", &own.base, &type, &value));
  CHECK(type == OrtIntProperty && *(int64_t*)value == INT64_MIN && own.held == 1);
  Good(ort->AllocatorFree(&own.base, value));
  Good(training->GetProperty(state, "loss", &own.base, &type, &value));
  CHECK(type == OrtFloatProperty && *(float*)value == 1.0f / 3);
  Good(ort->AllocatorFree(&own.base, value));
  Good(training->GetProperty(state, "name", &own.base, &type, &value));
  CHECK(type == OrtStringProperty && strcmp((char*)value, "sums: a, b") == 0);
  Good(ort->AllocatorFree(&own.base, value));
  Fails(training->GetProperty(state, "no such property", &own.base, &type, &value));
  CHECK(value == NULL && own.held == 0);
  Fails(training->GetProperty(NULL, "epoch", &own.base, &type, &value));
  Fails(training->GetProperty(state, NULL, &own.base, &type, &value));
  Fails(training->GetProperty(state, "epoch", NULL, &type, &value));
  Fails(training->GetProperty(state, "epoch", &own.base, NULL, &value));
  Fails(training->GetProperty(state, "epoch", &own.base, &type, NULL));
}

static const float* LossOf(OrtValue* value) {
  void* data = NULL;
  Good(ort->GetTensorMutableData(value, &data));
  return (const float*)data;
}

/* The whole file; the caller frees it. */
static char* BytesOf(const char* path, size_t* count) {
  FILE* file = fopen(path, "rb");
  char* bytes = (char*)malloc(1 << 20);
  CHECK(file != NULL && bytes != NULL);
  *count = fread(bytes, 1, 1 << 20, file);
  CHECK(*count > 0 && *count < 1 << 20);
  fclose(file);
  return bytes;
}

int main(int argc, char** argv) {
  const OrtTrainingApi* training;
  OrtEnv* env = NULL;
  OrtSessionOptions* options = NULL;
  OrtMemoryInfo* memory = NULL;
  OrtCheckpointState *state = NULL, *saved = NULL;
  OrtTrainingSession *session = NULL, *resumed = NULL;
  float x[16][13], y[16][1], first = 0, last = 0, *data, lr = 0, *flat;
  const int64_t x_shape[] = {16, 13}, y_shape[] = {16, 1};
  OrtValue *inputs[2], *outputs[2] = {NULL, NULL}, *parameters = NULL, *bias = NULL;
  OrtAllocator* allocator = NULL;
  OrtStatus* status;
  const char* const kept[] = {"value"};
  char path[4096], config[4096];
  size_t count = 0;
  char *model_bytes, *config_bytes, *checkpoint_bytes;
  size_t model_count, config_count, checkpoint_count;
  int64_t epoch = INT64_MIN, flat_shape[1];
  float third = 1.0f / 3;
  FILE* file;
  int i, j;
  CHECK(argc == 2 && getenv("TEST_TMPDIR") != NULL);
  snprintf(config, sizeof config, "%s/training.toml", getenv("TEST_TMPDIR"));
  file = fopen(config, "w");
  CHECK(file != NULL);
  fputs("version = 1\n[data]\nbatch = 16\n[loss]\nname = 'mse(value, target)'\n[optimizer]\nname = 'adamw'\nlr = 1e-3\n", file);
  fclose(file);

  CHECK(OrtGetApiBase()->GetApi(ORT_API_VERSION + 1) == NULL);
  ort = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  CHECK(ort != NULL);
  training = ort->GetTrainingApi(ORT_API_VERSION);
  CHECK(training != NULL);
  Good(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "training", &env));
  Good(ort->CreateSessionOptions(&options));
  Good(ort->SetIntraOpNumThreads(options, 1));
  Fails(ort->SetIntraOpNumThreads(options, -1));
  Good(ort->GetAllocatorWithDefaultOptions(&allocator));
  Good(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  Good(training->SetSeed(5));
  status = training->LoadCheckpoint("no such checkpoint", &state);
  CHECK(state == NULL && ort->GetErrorCode(status) == ORT_NO_SUCHFILE && strstr(ort->GetErrorMessage(status), "E-IO") != NULL);
  ort->ReleaseStatus(status);
  status = ort->CreateStatus(ORT_ENGINE_ERROR, "of the program");
  CHECK(ort->GetErrorCode(status) == ORT_ENGINE_ERROR && strcmp(ort->GetErrorMessage(status), "of the program") == 0);
  ort->ReleaseStatus(status);
  Good(training->LoadCheckpoint(argv[1], &state));
  Fails(training->CreateTrainingSession(env, options, state, "no such model.onnx", NULL, config, &session));
  Fails(training->CreateTrainingSession(env, options, state, argv[1], NULL, "optimizer_model.onnx", &session));
  CHECK(session == NULL);
  /* Before there is a session, a state has only properties. */
  Good(training->AddProperty(state, "epoch", OrtStringProperty, (void*)"none"));
  Good(training->AddProperty(state, "epoch", OrtIntProperty, &epoch));
  Good(training->AddProperty(state, "loss", OrtFloatProperty, &third));
  Good(training->AddProperty(state, "name", OrtStringProperty, (void*)"sums: a, b"));
  Fails(training->AddProperty(state, "name", (OrtPropertyType)7, (void*)"sums"));
  Fails(training->AddProperty(state, NULL, OrtIntProperty, &epoch));
  Fails(training->AddProperty(state, "epoch", OrtIntProperty, NULL));
  Fails(training->AddProperty(NULL, "epoch", OrtIntProperty, &epoch));
  CheckProperties(training, state);
  Fails(training->SaveCheckpoint(state, "unwritten", true));
  Fails(training->GetParameter(state, "layer1.bias", allocator, &bias));
  Good(training->CreateTrainingSession(env, options, state, argv[1], "eval_model.onnx", config, &session));

  CheckNames(session, training->TrainingSessionGetTrainingModelInputCount, training->TrainingSessionGetTrainingModelInputName, "features",
             "target");
  CheckNames(session, training->TrainingSessionGetEvalModelInputCount, training->TrainingSessionGetEvalModelInputName, "features",
             "target");
  CheckNames(session, training->TrainingSessionGetTrainingModelOutputCount, training->TrainingSessionGetTrainingModelOutputName, "loss",
             NULL);
  CheckNames(session, training->TrainingSessionGetEvalModelOutputCount, training->TrainingSessionGetEvalModelOutputName, "loss", "value");
  CheckProperties(training, state);

  for (i = 0; i < 16; ++i) {
    y[i][0] = 0;
    for (j = 0; j < 13; ++j) y[i][0] += x[i][j] = (float)sin(i * 13 + j);
  }
  Good(ort->CreateTensorWithDataAsOrtValue(memory, x, sizeof x, x_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &inputs[0]));
  Good(ort->CreateTensorWithDataAsOrtValue(memory, y, sizeof y, y_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &inputs[1]));
  Fails(ort->CreateTensorWithDataAsOrtValue(memory, x, sizeof x - 1, x_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &parameters));
  Fails(ort->CreateTensorWithDataAsOrtValue(memory, x, sizeof x, x_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, &parameters));
  Fails(ort->CreateTensorWithDataAsOrtValue(memory, NULL, sizeof x, x_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &parameters));
  Good(training->SetLearningRate(session, 0.01f));
  Good(training->GetLearningRate(session, &lr));
  CHECK(lr == 0.01f);
  for (i = 0; i < 60; ++i) {
    Good(training->TrainStep(session, NULL, 2, (const OrtValue* const*)inputs, 1, outputs));
    Good(ort->GetTensorMutableData(outputs[0], (void**)&data));
    last = *data;
    if (i == 0) first = last;
    ort->ReleaseValue(outputs[0]);
    Good(training->OptimizerStep(session, NULL));
    Good(training->LazyResetGrad(session));
  }
  printf("loss %.4f -> %.4f\n", first, last);
  CHECK(last < 0.2f * first);
  /* Too many outputs, too few inputs, none. */
  Fails(training->TrainStep(session, NULL, 2, (const OrtValue* const*)inputs, 2, outputs));
  Fails(training->TrainStep(session, NULL, 1, (const OrtValue* const*)inputs, 0, NULL));
  Fails(training->TrainStep(NULL, NULL, 2, (const OrtValue* const*)inputs, 0, NULL));
  Good(training->LazyResetGrad(session));

  Good(training->EvalStep(session, NULL, 2, (const OrtValue* const*)inputs, 2, outputs));
  Good(ort->GetTensorMutableData(outputs[0], (void**)&data));
  CHECK(isfinite(*data));
  {
    OrtTensorTypeAndShapeInfo* info = NULL;
    int64_t shape[2] = {0, 0};
    Good(ort->GetTensorTypeAndShape(outputs[1], &info));
    Good(ort->GetDimensionsCount(info, &count));
    Good(ort->GetDimensions(info, shape, 2));
    CHECK(count == 2 && shape[0] == 16 && shape[1] == 1);
    ort->ReleaseTensorTypeAndShapeInfo(info);
  }
  ort->ReleaseValue(outputs[0]);
  ort->ReleaseValue(outputs[1]);
  Good(training->RegisterLinearLRScheduler(session, 0, 10, 0.02f));
  Good(training->SchedulerStep(session));

  Good(training->GetParametersSize(session, &count, true));
  flat = (float*)calloc(count, sizeof(float));
  CHECK(flat != NULL && count == 13 * 16 + 16 + 16 * 32 + 32 + 32 + 1);
  flat_shape[0] = (int64_t)count;
  Good(ort->CreateTensorWithDataAsOrtValue(memory, flat, count * 4, flat_shape, 1, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &parameters));
  Good(training->CopyParametersToBuffer(session, parameters, true));
  CHECK(flat[0] != 0);
  Good(training->CopyBufferToParameters(session, parameters, true));
  Fails(training->CopyBufferToParameters(session, inputs[0], true));

  /* One parameter by name: it reads back as it was set, also within the vector of all parameters. */
  CheckParameter(training, state, "layer1.weight", 2, 16);
  CheckParameter(training, state, "layer1.bias", 1, 16);
  Good(training->GetParameter(state, "layer1.bias", allocator, &bias));
  Good(ort->GetTensorMutableData(bias, (void**)&data));
  for (i = 0; i < 16; ++i) data[i] = (float)(i + 1) / 8;
  Good(training->UpdateParameter(state, "layer1.bias", bias));
  ort->ReleaseValue(bias);
  bias = NULL;
  Good(training->GetParameter(state, "layer1.bias", allocator, &bias));
  Good(ort->GetTensorMutableData(bias, (void**)&data));
  for (i = 0; i < 16; ++i) CHECK(data[i] == (float)(i + 1) / 8);
  Good(training->CopyParametersToBuffer(session, parameters, true));
  for (i = 0, j = 0; i < (int)count; ++i) j += flat[i] == data[15] ? 1 : 0;
  CHECK(j >= 1);
  Fails(training->GetParameter(state, "no such parameter", allocator, &parameters));
  Fails(training->GetParameter(state, "layer1.bias", NULL, &parameters));
  Fails(training->UpdateParameter(state, "layer1.weight", bias));
  Fails(training->UpdateParameter(state, "layer1.bias", NULL));
  Fails(training->UpdateParameter(NULL, "layer1.bias", bias));

  snprintf(path, sizeof path, "%s/ort_c.ckpt", getenv("TEST_TMPDIR"));
  Good(training->SaveCheckpoint(state, path, true));
  Good(training->LoadCheckpoint(path, &saved));
  CheckProperties(training, saved);
  Good(training->CreateTrainingSession(env, options, saved, argv[1], NULL, config, &resumed));
  CheckProperties(training, saved);
  Good(training->TrainStep(session, NULL, 2, (const OrtValue* const*)inputs, 1, &outputs[0]));
  Good(training->TrainStep(resumed, NULL, 2, (const OrtValue* const*)inputs, 1, &outputs[1]));
  last = *LossOf(outputs[0]);
  CHECK(last == *LossOf(outputs[1]));
  ort->ReleaseValue(outputs[1]);
  training->ReleaseTrainingSession(resumed);
  /* The state still has it. */
  Good(training->SaveCheckpoint(saved, path, true));
  training->ReleaseCheckpointState(saved);

  /* Everything from memory, and with a plan instead of the model. */
  model_bytes = BytesOf(argv[1], &model_count);
  config_bytes = BytesOf(config, &config_count);
  checkpoint_bytes = BytesOf(path, &checkpoint_count);
  for (i = 0; i < 2; ++i) {
    Good(training->LoadCheckpointFromBuffer(checkpoint_bytes, checkpoint_count, &saved));
    CheckProperties(training, saved);
    Good(training->CreateTrainingSessionFromBuffer(env, options, saved, model_bytes, model_count, NULL, 0, i == 0 ? config_bytes : NULL,
                                                   i == 0 ? config_count : 0, &resumed));
    Good(training->LazyResetGrad(resumed));
    Good(training->TrainStep(resumed, NULL, 2, (const OrtValue* const*)inputs, 1, &outputs[1]));
    CHECK(last == *LossOf(outputs[1]));
    ort->ReleaseValue(outputs[1]);
    if (i == 0) {
      /* Gradloom's own functions accept the handles that a session wraps. */
      snprintf(path, sizeof path, "%s/ort_c.plan", getenv("TEST_TMPDIR"));
      CHECK(GradloomGetApi(GRADLOOM_API_VERSION)->SavePlan(resumed->plan, path) == NULL);
      free(model_bytes);
      model_bytes = BytesOf(path, &model_count);
    }
    training->ReleaseCheckpointState(saved);
    training->ReleaseTrainingSession(resumed);
  }
  Fails(training->LoadCheckpointFromBuffer(config_bytes, config_count, &saved));
  CHECK(saved == NULL);
  Fails(training->CreateTrainingSessionFromBuffer(env, options, state, config_bytes, config_count, NULL, 0, NULL, 0, &resumed));
  Fails(training->CreateTrainingSessionFromBuffer(env, options, NULL, model_bytes, model_count, NULL, 0, NULL, 0, &resumed));
  CHECK(resumed == NULL);

  snprintf(path, sizeof path, "%s/ort_c.onnx", getenv("TEST_TMPDIR"));
  Good(training->ExportModelForInferencing(session, path, 1, kept));
  Fails(training->ExportModelForInferencing(session, NULL, 1, kept));

  ort->ReleaseValue(outputs[0]);
  ort->ReleaseValue(inputs[0]);
  ort->ReleaseValue(inputs[1]);
  ort->ReleaseValue(parameters);
  ort->ReleaseValue(bias);
  free(flat), free(model_bytes), free(config_bytes), free(checkpoint_bytes);
  training->ReleaseTrainingSession(session);
  training->ReleaseCheckpointState(state);
  ort->ReleaseMemoryInfo(memory);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(env);
  return 0;
}
