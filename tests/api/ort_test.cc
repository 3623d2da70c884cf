// A training program for onnxruntime's on-device training, written as in its documentation, and ported to Gradloom by changing its first
// include.
// argv: the model, and a model with running statistics. Files go to TEST_TMPDIR.
#include <gradloom/gradloom_ort_compat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

constexpr int64_t kBatch = 16, kFeatures = 13;

// y is the sum of x, which a small network learns quickly.
struct Batch {
  std::vector<float> x, y;
};

Batch MakeBatch(int index) {
  Batch batch;
  for (int64_t i = 0; i < kBatch; ++i) {
    float sum = 0;
    for (int64_t j = 0; j < kFeatures; ++j) {
      batch.x.push_back(std::sin(static_cast<float>(index * 1000 + i * kFeatures + j)));
      sum += batch.x.back();
    }
    batch.y.push_back(sum);
  }
  return batch;
}

std::vector<Ort::Value> ValuesOf(Batch& batch) {
  const Ort::MemoryInfo memory_info = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const std::vector<int64_t> x_shape{kBatch, kFeatures}, y_shape{kBatch, 1};
  std::vector<Ort::Value> values;
  values.emplace_back(Ort::Value::CreateTensor<float>(memory_info, batch.x.data(), batch.x.size(), x_shape.data(), x_shape.size()));
  values.emplace_back(Ort::Value::CreateTensor<float>(memory_info, batch.y.data(), batch.y.size(), y_shape.data(), y_shape.size()));
  return values;
}

std::vector<uint8_t> BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// For a model with running statistics, the vector of all state is longer than that of the trainable parameters. Both round-trip.
void CheckStatistics(const Ort::Env& env, const std::string& model, const std::string& folder) {
  std::ofstream(folder + "/digits.toml") << "version = 1\n[data]\nbatch = 4\n[loss]\nname = 'cross_entropy(logits, label)'\n";
  Ort::CheckpointState state = Ort::CheckpointState::LoadCheckpoint(model);
  Ort::TrainingSession session(env, Ort::SessionOptions(), state, model, std::nullopt, folder + "/digits.toml");
  Ort::Value trained = session.ToBuffer(true), all = session.ToBuffer(false);
  const size_t count = all.GetTensorTypeAndShapeInfo().GetElementCount();
  CHECK(count > trained.GetTensorTypeAndShapeInfo().GetElementCount());
  float& last = all.GetTensorMutableData<float>()[count - 1];
  last += 1;
  session.FromBuffer(all);
  CHECK(session.ToBuffer(false).GetTensorData<float>()[count - 1] == last);
  trained.GetTensorMutableData<float>()[0] += 1;
  session.FromBuffer(trained);
  const Ort::Value now = session.ToBuffer(false);
  CHECK(now.GetTensorData<float>()[0] == trained.GetTensorData<float>()[0] && now.GetTensorData<float>()[count - 1] == last);
  const int64_t other = 3;
  Ort::Value wrong = Ort::Value::CreateTensor<float>(Ort::AllocatorWithDefaultOptions(), &other, 1);
  try {
    session.FromBuffer(wrong);
    CHECK(false);
  } catch (const Ort::Exception& error) {
    CHECK(error.GetOrtErrorCode() == ORT_INVALID_ARGUMENT);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CHECK(argc == 3);
  const std::string folder = std::getenv("TEST_TMPDIR"), model = argv[1];
  const std::string artifacts = folder + "/training.toml";
  std::ofstream(artifacts)
      << "version = 1\n[data]\nbatch = 16\n[loss]\nname = 'mse(value, target)'\n[optimizer]\nname = 'adamw'\nlr = 1e-3\n";

  // The program: env, options, checkpoint, session, and the training loop.
  Ort::Env env(ORT_LOGGING_LEVEL_WARNING, "training");
  Ort::SessionOptions session_options;
  Ort::SetSeed(8);
  Ort::CheckpointState state = Ort::CheckpointState::LoadCheckpoint(model);
  Ort::TrainingSession session(env, session_options, state, model, folder + "/eval_model.onnx", artifacts);
  CHECK(session.InputNames(true) == (std::vector<std::string>{"features", "target"}));
  CHECK(session.OutputNames(true) == std::vector<std::string>{"loss"});
  CHECK(session.OutputNames(false) == (std::vector<std::string>{"loss", "value"}));
  session.SetLearningRate(0.01f);
  CHECK(session.GetLearningRate() == 0.01f);

  float first = 0, last = 0;
  for (int epoch = 0; epoch < 30; ++epoch) {
    for (int index = 0; index < 4; ++index) {
      Batch batch = MakeBatch(index);
      const std::vector<Ort::Value> inputs = ValuesOf(batch);
      std::vector<Ort::Value> outputs = session.TrainStep(inputs);
      last = *outputs.front().GetTensorMutableData<float>();
      if (epoch == 0 && index == 0) first = last;
      session.OptimizerStep();
      session.LazyResetGrad();
    }
  }
  std::printf("loss %.4f -> %.4f\n", first, last);
  CHECK(last < 0.1f * first);

  // Two batches per update.
  {
    Batch a = MakeBatch(1), b = MakeBatch(2);
    session.TrainStep(ValuesOf(a));
    session.TrainStep(ValuesOf(b));
    session.OptimizerStep();
  }
  Batch batch = MakeBatch(0);
  const std::vector<Ort::Value> outputs = session.EvalStep(ValuesOf(batch));
  CHECK(outputs.size() == 2);
  CHECK(outputs[1].GetTensorTypeAndShapeInfo().GetShape() == (std::vector<int64_t>{kBatch, 1}));
  CHECK(outputs[1].GetTensorTypeAndShapeInfo().GetElementType() == ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT);
  double loss = 0;
  for (size_t i = 0; i < batch.y.size(); ++i) loss += std::pow(outputs[1].GetTensorData<float>()[i] - batch.y[i], 2) / kBatch;
  CHECK(std::abs(loss - *outputs[0].GetTensorData<float>()) <= 1e-4 * loss + 1e-6);

  session.RegisterLinearLRScheduler(0, 10, 0.02f);
  CHECK(std::abs(session.GetLearningRate() - 0.02f) < 1e-7f);
  session.TrainStep(ValuesOf(batch));
  session.OptimizerStep();
  session.SchedulerStep();
  CHECK(std::abs(session.GetLearningRate() - 0.018f) < 1e-7f);

  // Parameters as one vector, out and back in; by name; properties; a checkpoint with all of them.
  Ort::Value parameters = session.ToBuffer(true);
  CHECK(parameters.GetTensorTypeAndShapeInfo().GetElementCount() == 13 * 16 + 16 + 16 * 32 + 32 + 32 + 1);
  session.FromBuffer(parameters);
  const Ort::Value bias = state.GetParameter("layer1.bias");
  state.UpdateParameter("layer1.bias", bias);
  state.AddProperty("epoch", int64_t{30});
  state.AddProperty("loss", 0.25f);
  state.AddProperty("name", std::string("sums"));
  Ort::CheckpointState::SaveCheckpoint(state, folder + "/checkpoint", true);
  session.ExportModelForInferencing(folder + "/inference.onnx", {"value"});

  Ort::CheckpointState saved = Ort::CheckpointState::LoadCheckpoint(folder + "/checkpoint");
  // A program reads its progress from the properties.
  CHECK(std::get<int64_t>(saved.GetProperty("epoch")) == 30);
  Ort::TrainingSession resumed(env, session_options, saved, model, std::nullopt, artifacts);
  CHECK(std::get<int64_t>(saved.GetProperty("epoch")) == 30);
  CHECK(std::get<float>(saved.GetProperty("loss")) == 0.25f);
  CHECK(std::get<std::string>(saved.GetProperty("name")) == "sums");
  const std::vector<Ort::Value> a = session.TrainStep(ValuesOf(batch)), b = resumed.TrainStep(ValuesOf(batch));
  CHECK(*a[0].GetTensorData<float>() == *b[0].GetTensorData<float>());

  // The same from memory. The input buffers are copied, and the session outlives the scope that created it.
  Ort::CheckpointState in_memory = Ort::CheckpointState::LoadCheckpointFromBuffer(BytesOf(folder + "/checkpoint"));
  {
    Ort::TrainingSession of_buffers(env, session_options.SetIntraOpNumThreads(1), in_memory, BytesOf(model), {}, BytesOf(artifacts));
    const Ort::AllocatorWithDefaultOptions allocator;
    const std::vector<int64_t> x_shape{kBatch, kFeatures}, y_shape{kBatch, 1};
    std::vector<Ort::Value> own;
    own.push_back(Ort::Value::CreateTensor<float>(allocator, x_shape.data(), x_shape.size()));
    own.push_back(Ort::Value::CreateTensor<float>(allocator, y_shape.data(), y_shape.size()));
    std::copy(batch.x.begin(), batch.x.end(), own[0].GetTensorMutableData<float>());
    std::copy(batch.y.begin(), batch.y.end(), own[1].GetTensorMutableData<float>());
    CHECK(*of_buffers.TrainStep(own)[0].GetTensorData<float>() == *a[0].GetTensorData<float>());
  }
  CHECK(in_memory.GetParameter("layer1.bias").GetTensorTypeAndShapeInfo().GetShape() == std::vector<int64_t>{16});

  CheckStatistics(env, argv[2], folder);

  // The buffer of an empty vector has no address.
  const Ort::MemoryInfo memory_info = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
  const std::vector<int64_t> no_rows{0, kFeatures};
  std::vector<float> nothing;
  const Ort::Value empty = Ort::Value::CreateTensor<float>(memory_info, nothing.data(), nothing.size(), no_rows.data(), no_rows.size());
  CHECK(empty.GetTensorTypeAndShapeInfo().GetShape() == no_rows && empty.GetTensorTypeAndShapeInfo().GetElementCount() == 0);

  // The C functions accept the handles that the classes hold.
  size_t count = 0;
  Ort::ThrowOnError(Ort::GetTrainingApi().GetParametersSize(session, &count, false));
  CHECK(count == parameters.GetTensorTypeAndShapeInfo().GetElementCount());

  // Errors are exceptions with a code and a message.
  try {
    Ort::CheckpointState::LoadCheckpoint(folder + "/no such checkpoint");
    CHECK(false);
  } catch (const Ort::Exception& error) {
    CHECK(std::string(error.what()).find("E-IO") != std::string::npos);
    CHECK(error.GetOrtErrorCode() == ORT_NO_SUCHFILE);
  }
  // The weights of another model, or of none, are not silently those of the training model.
  try {
    Ort::CheckpointState::LoadCheckpoint(folder + "/no such model.onnx");
    CHECK(false);
  } catch (const Ort::Exception& error) {
    CHECK(std::string(error.what()).find("cannot be found") != std::string::npos);
  }
  try {
    Ort::CheckpointState other = Ort::CheckpointState::LoadCheckpoint(std::string(argv[2]));
    Ort::TrainingSession wrong(env, Ort::SessionOptions(), other, model, std::nullopt, artifacts);
    CHECK(false);
  } catch (const Ort::Exception& error) {
    CHECK(std::string(error.what()).find("another one than the training model") != std::string::npos);
  }
  try {
    outputs[1].GetTensorData<int64_t>();
    CHECK(false);
  } catch (const Ort::Exception& error) {
    CHECK(error.GetOrtErrorCode() == ORT_INVALID_ARGUMENT);
  }
  return 0;
}
