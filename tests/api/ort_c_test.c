/* A C program for onnxruntime's on-device training, moved to Gradloom by its first include. argv: the model; its folder is TEST_TMPDIR. */
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
  CHECK(status != NULL && ort->GetErrorCode(status) != 0);
  ort->ReleaseStatus(status);
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
  OrtValue *inputs[2], *outputs[2] = {NULL, NULL}, *parameters = NULL;
  const char* const kept[] = {"value"};
  char path[4096], config[4096];
  size_t count = 0;
  int64_t flat_shape[1];
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
  Good(ort->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  Good(training->SetSeed(5));
  Fails(training->LoadCheckpoint("no such checkpoint", &state));
  CHECK(state == NULL);
  Good(training->LoadCheckpoint(argv[1], &state));
  Fails(training->CreateTrainingSession(env, options, state, "no such model.onnx", NULL, config, &session));
  Good(training->CreateTrainingSession(env, options, state, argv[1], "eval_model.onnx", config, &session));

  for (i = 0; i < 16; ++i) {
    y[i][0] = 0;
    for (j = 0; j < 13; ++j) y[i][0] += x[i][j] = (float)sin(i * 13 + j);
  }
  Good(ort->CreateTensorWithDataAsOrtValue(memory, x, sizeof x, x_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &inputs[0]));
  Good(ort->CreateTensorWithDataAsOrtValue(memory, y, sizeof y, y_shape, 2, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &inputs[1]));
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
  ort->ReleaseValue(outputs[0]);
  Fails(training->TrainStep(session, NULL, 1, (const OrtValue* const*)inputs, 0, NULL));
  Fails(training->TrainStep(NULL, NULL, 2, (const OrtValue* const*)inputs, 0, NULL));
  Good(training->LazyResetGrad(session));

  Good(training->EvalStep(session, NULL, 2, (const OrtValue* const*)inputs, 2, outputs));
  Good(ort->GetTensorMutableData(outputs[0], (void**)&data));
  CHECK(isfinite(*data) && outputs[1]->tensor.rank == 2 && outputs[1]->tensor.shape[0] == 16);
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

  snprintf(path, sizeof path, "%s/ort_c.ckpt", getenv("TEST_TMPDIR"));
  Good(training->SaveCheckpoint(state, path, true));
  Good(training->LoadCheckpoint(path, &saved));
  Good(training->CreateTrainingSession(env, options, saved, argv[1], NULL, config, &resumed));
  Good(training->TrainStep(session, NULL, 2, (const OrtValue* const*)inputs, 1, &outputs[0]));
  Good(training->TrainStep(resumed, NULL, 2, (const OrtValue* const*)inputs, 1, &outputs[1]));
  CHECK(*(float*)outputs[0]->tensor.data == *(float*)outputs[1]->tensor.data);
  snprintf(path, sizeof path, "%s/ort_c.onnx", getenv("TEST_TMPDIR"));
  Good(training->ExportModelForInferencing(session, path, 1, kept));

  ort->ReleaseValue(outputs[0]);
  ort->ReleaseValue(outputs[1]);
  ort->ReleaseValue(inputs[0]);
  ort->ReleaseValue(inputs[1]);
  ort->ReleaseValue(parameters);
  free(flat);
  training->ReleaseTrainingSession(session);
  training->ReleaseTrainingSession(resumed);
  training->ReleaseCheckpointState(state);
  training->ReleaseCheckpointState(saved);
  ort->ReleaseMemoryInfo(memory);
  ort->ReleaseSessionOptions(options);
  ort->ReleaseEnv(env);
  return 0;
}
