/* The C interface from C99: training with fused steps and with separate gradients and updates, gradients compared with finite
 * differences, checkpoints, and parameters as one vector. argv: the model, its table. */
#include <gradloom/gradloom_c.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const GradloomApi* api;

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

/* Ends the test if a call failed. */
static void Good(GradloomStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n  --> %s\n  help: %s\n", api->GetErrorName(status), api->GetErrorMessage(status), api->GetErrorWhere(status),
          api->GetErrorHelp(status));
  exit(1);
}

static void Fails(GradloomStatus* status, GradloomErrorCode code) {
  CHECK(status != NULL);
  if (api->GetErrorCode(status) != code) fprintf(stderr, "%s: %s\n", api->GetErrorName(status), api->GetErrorMessage(status));
  CHECK(api->GetErrorCode(status) == code);
  CHECK(strlen(api->GetErrorMessage(status)) > 0);
  api->ReleaseStatus(status);
}

static GradloomPlan* Compile(const GradloomModel* model, const char* loss, uint32_t with) {
  const GradloomSetting settings[] = {{"loss.name", loss}, {"optimizer.name", "adam"}, {"optimizer.lr", "0.01"}, {"devices.use", "cpu"}};
  const int64_t batches[] = {128};
  GradloomCompileOptions options;
  GradloomPlan* plan = NULL;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.settings = settings;
  options.num_settings = sizeof settings / sizeof settings[0];
  options.batches = batches;
  options.num_batches = 1;
  options.with = with;
  Good(api->Compile(model, &options, &plan));
  return plan;
}

static GradloomSession* Start(const GradloomPlan* plan, const GradloomCheckpoint* checkpoint) {
  GradloomSession* session = NULL;
  Good(api->CreateTrainingSession(plan, NULL, checkpoint, &session));
  return session;
}

/* All parameters of a session; the caller frees them. */
static float* Parameters(GradloomSession* session, size_t* count) {
  float* values;
  Good(api->GetParametersSize(session, 1, count));
  values = (float*)malloc(*count * sizeof(float));
  CHECK(values != NULL);
  Good(api->CopyParametersToBuffer(session, 1, values, *count));
  return values;
}

/* The largest difference between two sessions' parameters, relative to the largest parameter. */
static double Difference(GradloomSession* a, GradloomSession* b) {
  size_t n, m, i;
  float *x = Parameters(a, &n), *y = Parameters(b, &m);
  double most = 0, largest = 1e-30;
  CHECK(n == m && n > 0);
  for (i = 0; i < n; ++i) {
    most = fmax(most, fabs((double)x[i] - y[i]));
    largest = fmax(largest, fabs((double)x[i]));
  }
  free(x);
  free(y);
  return most / largest;
}

typedef struct Data {
  GradloomDataset* set;
  GradloomBatches* batches;
  const char* const* names;
  const GradloomTensor* columns;
  size_t count;
} Data;

static void Get(Data* data, int64_t index) { Good(api->GetBatch(data->batches, index, &data->names, &data->columns, &data->count)); }

static Data Open(const GradloomPlan* plan, const char* path, int64_t batch) {
  const GradloomSetting columns[] = {{"features", "CRIM..LSTAT"}, {"target", "MEDV"}};
  const GradloomSetting transforms[] = {{"features", "standardize"}};
  GradloomDataOptions options;
  GradloomBatchOptions batches;
  Data data;
  memset(&data, 0, sizeof data);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.columns = columns;
  options.num_columns = 2;
  options.transforms = transforms;
  options.num_transforms = 1;
  Good(api->LoadDataset(path, plan, &options, &data.set, NULL));
  memset(&batches, 0, sizeof batches);
  batches.size = sizeof batches;
  batches.batch = batch;
  Good(api->CreateBatches(data.set, &batches, &data.batches));
  return data;
}

static void Close(Data* data) {
  api->ReleaseBatches(data->batches);
  api->ReleaseDataset(data->set);
}

static void TestNames(const GradloomModel* model, const GradloomPlan* plan) {
  size_t count = 0;
  const char* name = NULL;
  GradloomTensorInfo info;
  GradloomText* text = NULL;
  Good(api->GetModelInputCount(model, &count));
  CHECK(count == 1);
  Good(api->GetModelInputName(model, 0, &name));
  CHECK(strcmp(name, "features") == 0);
  Fails(api->GetModelInputName(model, 1, &name), GRADLOOM_E_CONFIG);
  CHECK(name == NULL);

  Good(api->GetInputCount(plan, GRADLOOM_TRAIN, &count));
  CHECK(count == 2);
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  Good(api->GetInputInfo(plan, GRADLOOM_TRAIN, 0, &info));
  CHECK(strcmp(info.name, "features") == 0 && info.dtype == GRADLOOM_FLOAT32 && info.rank == 2 && info.batch_axis == 0);
  CHECK(info.shape[0] == 128 && info.shape[1] == 13);
  Good(api->GetInputCount(plan, GRADLOOM_PREDICT, &count));
  CHECK(count == 1);
  Good(api->GetOutputCount(plan, GRADLOOM_EVAL, &count));
  CHECK(count == 2);
  Good(api->GetOutputInfo(plan, GRADLOOM_EVAL, 0, &info));
  CHECK(strcmp(info.name, "loss") == 0 && info.rank == 0);
  Good(api->GetOutputInfo(plan, GRADLOOM_EVAL, 1, &info));
  CHECK(strcmp(info.name, "value") == 0 && info.shape[0] == 128 && info.shape[1] == 1);
  Fails(api->GetOutputInfo(plan, GRADLOOM_EVAL, 2, &info), GRADLOOM_E_CONFIG);
  Fails(api->GetInputCount(plan, 7, &count), GRADLOOM_E_CONFIG);

  Good(api->DescribePlan(plan, GRADLOOM_PLAN_TEXT, &text));
  CHECK(strstr(api->GetTextData(text), "layer1.weight") != NULL && api->GetTextBytes(text) == strlen(api->GetTextData(text)));
  api->ReleaseText(text);
  Good(api->GetPlanProperty(plan, "loss", &name));
  CHECK(name != NULL && strcmp(name, "mse(value, target)") == 0);
  Good(api->GetPlanProperty(plan, "no such thing", &name));
  CHECK(name == NULL);
}

/* Takes steps on the same batches in both ways. The sum of a single gradient is that gradient, so the results are equal. */
static void TestApart(const GradloomPlan* plan, const char* table) {
  GradloomSession *fused = Start(plan, NULL), *apart = Start(plan, NULL);
  Data data = Open(plan, table, 128);
  GradloomStepResult a, b;
  double first = 0;
  int64_t i, count = 0;
  memset(&a, 0, sizeof a);
  memset(&b, 0, sizeof b);
  a.size = b.size = sizeof a;
  Good(api->GetBatchCount(data.batches, &count));
  CHECK(count == 4); /* 506 rows */
  Fails(api->OptimizerStep(apart, NULL), GRADLOOM_E_CONFIG);
  for (i = 0; i < 40; ++i) {
    Get(&data, i % count); /* the last batch has 122 rows, for which the plan has no entry until it arrives */
    Good(api->Step(fused, data.names, data.columns, data.count, &a));
    Good(api->TrainStep(apart, data.names, data.columns, data.count, &b));
    CHECK(fabs(a.loss - b.loss) <= 1e-5 * fabs(a.loss) && !b.updated && b.step == i && b.batch == i + 1);
    Fails(api->Step(apart, data.names, data.columns, data.count, NULL), GRADLOOM_E_CONFIG);
    Good(api->OptimizerStep(apart, &b));
    CHECK(b.updated && b.step == i + 1 && a.step == i + 1);
    Good(api->LazyResetGrad(apart));
    if (i == 0) first = a.loss;
  }
  CHECK(a.loss < first / 2);
  CHECK(Difference(fused, apart) <= 1e-5);
  Close(&data);
  api->ReleaseTrainingSession(fused);
  api->ReleaseTrainingSession(apart);
}

/* The mean over two halves of a batch is the mean over the batch. */
static void TestAccumulation(const GradloomModel* model, const GradloomPlan* plan, const char* table) {
  GradloomPlan* half = Compile(model, "mse(value, target)*0.5", GRADLOOM_WITH_GRADIENTS);
  GradloomSession *whole = Start(plan, NULL), *halves = Start(half, NULL);
  Data data = Open(plan, table, 128);
  int64_t i;
  for (i = 0; i < 3; ++i) {
    int part;
    size_t c;
    Get(&data, i);
    Good(api->Step(whole, data.names, data.columns, data.count, NULL));
    for (part = 0; part < 2; ++part) {
      GradloomTensor columns[2];
      int64_t shapes[2][2];
      CHECK(data.count == 2);
      for (c = 0; c < 2; ++c) {
        columns[c] = data.columns[c];
        shapes[c][0] = 64;
        shapes[c][1] = data.columns[c].shape[1];
        columns[c].shape = shapes[c];
        columns[c].data = (float*)data.columns[c].data + part * 64 * shapes[c][1];
      }
      Good(api->TrainStep(halves, data.names, columns, 2, NULL));
    }
    Good(api->OptimizerStep(halves, NULL));
  }
  CHECK(Difference(whole, halves) <= 1e-4);
  Close(&data);
  api->ReleaseTrainingSession(whole);
  api->ReleaseTrainingSession(halves);
  api->ReleasePlan(half);
}

static double Loss(GradloomSession* session, const Data* data) {
  GradloomStepResult result;
  memset(&result, 0, sizeof result);
  result.size = sizeof result;
  Good(api->EvalStep(session, data->names, data->columns, data->count, &result));
  return result.loss;
}

/* Gradients by name, compared with finite differences of the loss along each bias: sums of 128 float32 losses, accurate to about 1e-3 of
 * the largest. */
static void TestGradients(const GradloomPlan* plan, const char* table) {
  GradloomSession* session = Start(plan, NULL);
  Data data = Open(plan, table, 128);
  float bias[16], gradient[16], moved[16], zero[16];
  double largest = 0, worst = 0;
  GradloomTensorInfo info;
  GradloomLocation place;
  GradloomTensor value;
  int i;
  memset(zero, 0, sizeof zero);
  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  Good(api->GetParameterTypeAndShape(session, "layer1.bias", &info));
  CHECK(info.rank == 1 && info.shape[0] == 16 && info.dtype == GRADLOOM_FLOAT32);
  Good(api->GetParameter(session, "layer1.bias", bias, sizeof bias));
  Get(&data, 0);
  Good(api->TrainStep(session, data.names, data.columns, data.count, NULL));
  Good(api->GetGradient(session, "layer1.bias", gradient, sizeof gradient));
  Fails(api->GetGradient(session, "layer1.bias", gradient, sizeof gradient - 4), GRADLOOM_E_CONFIG);
  Fails(api->GetGradient(session, "no such thing", gradient, sizeof gradient), GRADLOOM_E_CONFIG);
  for (i = 0; i < 16; ++i) largest = fmax(largest, fabs((double)gradient[i]));
  CHECK(largest > 0);
  value.data = moved;
  value.shape = info.shape;
  value.rank = 1;
  value.dtype = GRADLOOM_FLOAT32;
  for (i = 0; i < 16; ++i) {
    const double h = 1e-2;
    double up, down;
    memcpy(moved, bias, sizeof bias);
    moved[i] = (float)(bias[i] + h);
    Good(api->UpdateParameter(session, "layer1.bias", &value));
    up = Loss(session, &data);
    moved[i] = (float)(bias[i] - h);
    Good(api->UpdateParameter(session, "layer1.bias", &value));
    down = Loss(session, &data);
    worst = fmax(worst, fabs((up - down) / (2 * h) - gradient[i]));
  }
  CHECK(worst <= 0.02 * largest);
  memset(&place, 0, sizeof place);
  place.size = sizeof place;
  Good(api->GetLocation(session, GRADLOOM_STATE, "layer1.bias", &place));
  CHECK(strcmp(place.device, "cpu") == 0 && place.num_devices == 1 && place.address != NULL && place.bytes >= 64);
  if (place.row_major) CHECK(memcmp(place.address, moved, sizeof moved) == 0);
  Good(api->GetLocation(session, GRADLOOM_GRADIENT, "layer1.bias", &place));
  if (place.row_major) CHECK(memcmp(place.address, gradient, sizeof gradient) == 0);
  Good(api->GetLocation(session, GRADLOOM_OUTPUT, "value", &place));
  CHECK(place.bytes == 128 * 4);
  Good(api->LazyResetGrad(session));
  Good(api->GetGradient(session, "layer1.bias", gradient, sizeof gradient));
  CHECK(memcmp(gradient, zero, sizeof zero) == 0);
  Fails(api->OptimizerStep(session, NULL), GRADLOOM_E_CONFIG);
  Close(&data);
  api->ReleaseTrainingSession(session);
}

/* A checkpoint with one flipped bit at this offset is refused. */
static void Damaged(const GradloomText* bytes, char* copy, size_t at) {
  const size_t size = api->GetTextBytes(bytes);
  GradloomCheckpoint* checkpoint = NULL;
  GradloomStatus* status;
  memcpy(copy, api->GetTextData(bytes), size);
  copy[at] ^= 1;
  status = api->LoadCheckpointFromBuffer(copy, size, &checkpoint);
  if (status == NULL) fprintf(stderr, "damage at %lu of %lu is not seen\n", (unsigned long)at, (unsigned long)size);
  Fails(status, GRADLOOM_E_CHECKPOINT);
  CHECK(checkpoint == NULL);
}

/* A session resumed from a checkpoint has the same bits as one that was never interrupted. */
static void TestCheckpoints(const GradloomPlan* plan, const char* table, const char* folder) {
  GradloomSession *session = Start(plan, NULL), *resumed;
  GradloomCheckpoint* checkpoint = NULL;
  GradloomText* bytes = NULL;
  Data data = Open(plan, table, 128);
  char path[4096];
  const char* text = NULL;
  int64_t i, step = 0, batch = 0;
  int way;
  for (i = 0; i < 3; ++i) {
    Get(&data, i);
    Good(api->Step(session, data.names, data.columns, data.count, NULL));
  }
  /* In the middle of an accumulation. */
  Good(api->TrainStep(session, data.names, data.columns, data.count, NULL));
  Good(api->AddProperty(session, "author", "c_test"));
  snprintf(path, sizeof path, "%s/all.safetensors", folder);
  Good(api->SaveCheckpoint(session, path, 1));
  Good(api->SaveCheckpointToBuffer(session, 1, &bytes));
  Good(api->OptimizerStep(session, NULL));
  Good(api->Step(session, data.names, data.columns, data.count, NULL));
  for (way = 0; way < 2; ++way) {
    if (way == 0) {
      Good(api->LoadCheckpoint(path, &checkpoint));
    } else {
      Good(api->LoadCheckpointFromBuffer(api->GetTextData(bytes), api->GetTextBytes(bytes), &checkpoint));
    }
    Good(api->GetCheckpointProperty(checkpoint, "author", &text));
    CHECK(text != NULL && strcmp(text, "c_test") == 0);
    Good(api->GetCheckpointProperty(checkpoint, "editor", &text));
    CHECK(text == NULL);
    resumed = Start(plan, checkpoint);
    api->ReleaseCheckpoint(checkpoint);
    Good(api->GetPosition(resumed, &step, &batch));
    CHECK(step == 3 && batch == 4);
    Good(api->GetProperty(resumed, "author", &text));
    CHECK(text != NULL && strcmp(text, "c_test") == 0);
    Good(api->OptimizerStep(resumed, NULL));
    Good(api->Step(resumed, data.names, data.columns, data.count, NULL));
    CHECK(Difference(session, resumed) == 0);
    api->ReleaseTrainingSession(resumed);
  }
  /* Damage is detected, both in tensor elements and in the manifest. */
  {
    const size_t size = api->GetTextBytes(bytes);
    const char* const manifest = strstr(api->GetTextData(bytes) + 8, "gradloom.manifest");
    char* damaged = (char*)malloc(size);
    size_t at, begin;
    CHECK(damaged != NULL && manifest != NULL);
    begin = (size_t)(manifest - api->GetTextData(bytes)) + sizeof "gradloom.manifest\":\"";
    for (at = begin; at < begin + 200; at += 7) Damaged(bytes, damaged, at);
    for (at = size - 1; at > size / 2; at -= size / 37 + 1) Damaged(bytes, damaged, at);
    free(damaged);
  }
  api->ReleaseText(bytes);

  /* Weights alone. */
  Good(api->SaveCheckpoint(session, path, 0));
  Good(api->LoadCheckpoint(path, &checkpoint));
  resumed = Start(plan, checkpoint);
  api->ReleaseCheckpoint(checkpoint);
  CHECK(Difference(session, resumed) == 0);
  Good(api->GetPosition(resumed, &step, &batch));
  CHECK(step == 0 && batch == 0);
  api->ReleaseTrainingSession(resumed);

  snprintf(path, sizeof path, "%s/no such file", folder);
  Fails(api->LoadCheckpoint(path, &checkpoint), GRADLOOM_E_IO);
  Close(&data);
  api->ReleaseTrainingSession(session);
}

static void TestLearningRate(const GradloomPlan* plan, const char* table) {
  GradloomSession* session = Start(plan, NULL);
  Data data = Open(plan, table, 128);
  double lr = 0;
  int i;
  Good(api->GetLearningRate(session, &lr));
  CHECK(lr == 0.01);
  Good(api->SetLearningRate(session, 0.5));
  Good(api->GetLearningRate(session, &lr));
  CHECK(lr == 0.5);
  Good(api->SetLearningRate(session, -1));
  Good(api->GetLearningRate(session, &lr));
  CHECK(lr == 0.01);
  Fails(api->SetLearningRate(session, NAN), GRADLOOM_E_CONFIG);
  Fails(api->SchedulerStep(session), GRADLOOM_E_CONFIG);
  Fails(api->RegisterLinearLRScheduler(session, 5, 4, 0.1), GRADLOOM_E_CONFIG);
  Good(api->RegisterLinearLRScheduler(session, 2, 6, 0.1));
  for (i = 0; i < 8; ++i) {
    const double expected = i < 2 ? 0.1 * i / 2 : i < 6 ? 0.1 * (6 - i) / 4 : 0;
    Good(api->GetLearningRate(session, &lr));
    CHECK(fabs(lr - expected) < 1e-12);
    Get(&data, 0);
    Good(api->Step(session, data.names, data.columns, data.count, NULL));
    Good(api->SchedulerStep(session));
  }
  Close(&data);
  api->ReleaseTrainingSession(session);
}

/* A saved plan runs like the one that was compiled, whatever was released in the meantime. */
static void TestPlanFiles(const GradloomModel* model, const char* table, const char* folder) {
  GradloomPlan *plan = Compile(model, "mse(value, target)", 0), *loaded = NULL;
  GradloomSession *first = Start(plan, NULL), *second;
  Data data = Open(plan, table, 128);
  char path[4096], *bytes;
  size_t size;
  FILE* file;
  snprintf(path, sizeof path, "%s/m.plan", folder);
  Good(api->SavePlan(plan, path));
  api->ReleasePlan(plan);
  Good(api->LoadPlan(path, &loaded));
  second = Start(loaded, NULL);
  Get(&data, 0);
  Fails(api->TrainStep(second, data.names, data.columns, data.count, NULL), GRADLOOM_E_CONFIG);
  Good(api->Step(first, data.names, data.columns, data.count, NULL));
  Good(api->Step(second, data.names, data.columns, data.count, NULL));
  CHECK(Difference(first, second) == 0);
  /* Another batch size needs the compiler, which a loaded plan does not have. */
  Get(&data, 3);
  Good(api->Step(first, data.names, data.columns, data.count, NULL));
  Fails(api->Step(second, data.names, data.columns, data.count, NULL), GRADLOOM_E_DATA);
  api->ReleaseTrainingSession(second);
  api->ReleasePlan(loaded);

  file = fopen(path, "rb");
  CHECK(file != NULL && fseek(file, 0, SEEK_END) == 0);
  size = (size_t)ftell(file);
  bytes = (char*)malloc(size);
  CHECK(bytes != NULL && fseek(file, 0, SEEK_SET) == 0 && fread(bytes, 1, size, file) == size);
  fclose(file);
  Good(api->LoadPlanFromBuffer(bytes, size, &loaded));
  api->ReleasePlan(loaded);
  bytes[size / 2] ^= 1;
  Fails(api->LoadPlanFromBuffer(bytes, size, &loaded), GRADLOOM_E_PLAN);
  CHECK(loaded == NULL);
  free(bytes);
  snprintf(path, sizeof path, "%s/trained.onnx", folder);
  Good(api->ExportModelForInferencing(first, path, NULL, 0));
  Close(&data);
  api->ReleaseTrainingSession(first);
}

/* Zero is the default for the fields of every struct. */
static void TestDefaultBatch(const GradloomPlan* plan, const char* table) {
  Data data = Open(plan, table, 0);
  GradloomBatchOptions options;
  GradloomBatches* batches = NULL;
  int64_t count = 0;
  Good(api->GetBatchCount(data.batches, &count));
  CHECK(count == 16); /* of 506 rows */
  Get(&data, 0);
  CHECK(data.count > 0 && data.columns[0].shape[0] == 32);
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.batch = -1;
  Fails(api->CreateBatches(data.set, &options, &batches), GRADLOOM_E_CONFIG);
  Close(&data);
}

/* The classes of errors that the header names for tensors, and what an evaluation fills in. */
static void TestTensors(const GradloomPlan* plan, const char* table) {
  Data data = Open(plan, table, 8);
  GradloomSession* session = Start(plan, NULL);
  GradloomStepResult result;
  GradloomTensorInfo info;
  GradloomDeviceMemory memory;
  GradloomTensor tensor;
  double doubles[64] = {0};
  Get(&data, 0);
  tensor = data.columns[0];
  tensor.dtype = 99;
  Fails(api->Step(session, NULL, &tensor, 1, NULL), GRADLOOM_E_DATA); /* the plan has two inputs */
  Fails(api->Step(session, data.names, &tensor, 1, NULL), GRADLOOM_E_TYPE);
  Fails(api->Step(session, data.names, data.columns, 1, NULL), GRADLOOM_E_DATA);

  memset(&info, 0, sizeof info);
  info.size = sizeof info;
  Good(api->GetParameterTypeAndShape(session, "layer1.bias", &info));
  CHECK(info.dtype == GRADLOOM_FLOAT32 && info.rank == 1 && info.shape[0] <= 64 && info.batch_axis == -1);
  Fails(api->GetParameterTypeAndShape(session, "no such thing", &info), GRADLOOM_E_CONFIG);
  tensor.data = doubles;
  tensor.shape = info.shape;
  tensor.rank = 1;
  tensor.dtype = GRADLOOM_FLOAT64;
  Fails(api->SetGradient(session, "layer1.bias", &tensor), GRADLOOM_E_SHAPE);
  Fails(api->UpdateParameter(session, "layer1.bias", &tensor), GRADLOOM_E_SHAPE);
  Fails(api->GetParameter(session, "layer1.bias", doubles, 1), GRADLOOM_E_CONFIG);

  memset(&result, 0, sizeof result);
  result.size = sizeof result;
  Good(api->TrainStep(session, data.names, data.columns, data.count, NULL));
  Good(api->EvalStep(session, data.names, data.columns, data.count, &result));
  CHECK(result.loss > 0 && result.lr == 0.01 && result.grad_norm == -1 && result.updated == 0 && result.step == 0 && result.batch == 1);

  memset(&memory, 0, sizeof memory);
  memory.size = sizeof memory;
  Good(api->GetDeviceMemory(session, 0, &memory));
  CHECK(strcmp(memory.device, "cpu") == 0 && memory.allocated_bytes > 0);
  Fails(api->GetDeviceMemory(session, 1, &memory), GRADLOOM_E_CONFIG);
  api->ReleaseTrainingSession(session);
  Close(&data);
}

int main(int argc, char** argv) {
  GradloomModel* model = NULL;
  GradloomPlan* plan;
  const char* folder = getenv("TEST_TMPDIR");
  CHECK(argc == 3 && folder != NULL);
  CHECK(GradloomGetApi(0) == NULL && GradloomGetApi(GRADLOOM_API_VERSION + 1) == NULL);
  api = GradloomGetApi(GRADLOOM_API_VERSION);
  CHECK(api != NULL && api->version == GRADLOOM_API_VERSION);
  Fails(api->LoadModel("no such file.onnx", NULL, &model), GRADLOOM_E_IO);
  CHECK(model == NULL);
  Good(api->LoadModel(argv[1], NULL, &model));
  plan = Compile(model, "mse(value, target)", GRADLOOM_WITH_EVAL | GRADLOOM_WITH_PREDICT | GRADLOOM_WITH_GRADIENTS);
  TestNames(model, plan);
  TestApart(plan, argv[2]);
  TestAccumulation(model, plan, argv[2]);
  TestGradients(plan, argv[2]);
  TestCheckpoints(plan, argv[2], folder);
  TestLearningRate(plan, argv[2]);
  TestDefaultBatch(plan, argv[2]);
  TestTensors(plan, argv[2]);
  TestPlanFiles(model, argv[2], folder);
  api->ReleasePlan(plan);
  api->ReleaseModel(model);
  return 0;
}
