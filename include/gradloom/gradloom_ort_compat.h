// The names of onnxruntime's on-device training in C++ (onnxruntime_training_cxx_api.h, which ended at 1.19) on top of Gradloom: a simple
// program moves by including this header in place of that one and linking libgradloom.so. docs/embedding.md has an example.
//
// What stands for the four artifacts that onnxruntime-training made ahead of time with Python:
//
//   training model   the ONNX model itself, as its exporter wrote it; or a plan that was compiled before (*.plan, `gradloom compile
//                    --gradients`), which needs no compiling at the start
//   eval model       nothing: the plan evaluates, too. Any path may stand there, and is not looked at
//   optimizer model  a configuration (*.toml) with loss, optimizer and batch: what generate_artifacts was told. With a plan it is not
//   looked at checkpoint       what CheckpointState::SaveCheckpoint wrote, or a safetensors file of weights; or a path that ends in .onnx
//   or .plan, which
//                    stands for the weights that the model begins with
//
// What differs: OptimizerStep takes the gradients with it, so that LazyResetGrad behind it changes nothing, and without it gradients do not
// add up over updates. Properties are kept with their type as text. Values are tensors in host memory.
#pragma once

#ifndef __cplusplus
#include "gradloom/gradloom_ort_compat_c.h"
#else

#include <charconv>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gradloom/gradloom.h"

using ORTCHAR_T = char;
#define ORT_TSTR(text) text

enum OrtLoggingLevel {
  ORT_LOGGING_LEVEL_VERBOSE,
  ORT_LOGGING_LEVEL_INFO,
  ORT_LOGGING_LEVEL_WARNING,
  ORT_LOGGING_LEVEL_ERROR,
  ORT_LOGGING_LEVEL_FATAL
};
enum OrtAllocatorType { OrtDeviceAllocator = 0, OrtArenaAllocator = 1 };
enum OrtMemType { OrtMemTypeCPU = -1, OrtMemTypeDefault = 0 };
enum ONNXTensorElementDataType {
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED = 0,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = GRADLOOM_FLOAT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8 = GRADLOOM_UINT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8 = GRADLOOM_INT8,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 = GRADLOOM_INT32,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64 = GRADLOOM_INT64,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL = GRADLOOM_BOOL,
  ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE = GRADLOOM_FLOAT64
};

namespace Ort {

// Everything throws Gradloom's error, which is a std::exception as onnxruntime's was.
using Exception = gradloom::Error;

struct Env {
  explicit Env(OrtLoggingLevel = ORT_LOGGING_LEVEL_WARNING, const char* = "") {}
};

// Threads are the configuration's (devices.threads); what is said here is taken and changes nothing.
struct SessionOptions {
  SessionOptions& SetIntraOpNumThreads(int) { return *this; }
  SessionOptions& SetInterOpNumThreads(int) { return *this; }
};

struct MemoryInfo {
  static MemoryInfo CreateCpu(OrtAllocatorType, OrtMemType) { return {}; }
};

struct TensorTypeAndShapeInfo {
  std::vector<int64_t> shape;
  ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;

  std::vector<int64_t> GetShape() const { return shape; }
  ONNXTensorElementDataType GetElementType() const { return type; }
  size_t GetElementCount() const {
    size_t count = 1;
    for (const int64_t extent : shape) count *= static_cast<size_t>(extent);
    return count;
  }
};

// A tensor: borrowed from the caller where it is made of a buffer of his, else its own.
class Value {
 public:
  explicit Value(std::nullptr_t) {}
  explicit Value(gradloom::Tensor owned) : owned_(std::move(owned)), view_(owned_.view()) {}
  Value(Value&&) = default;
  Value& operator=(Value&&) = default;

  template <typename T>
  static Value CreateTensor(const MemoryInfo&, T* data, size_t count, const int64_t* shape, size_t rank) {
    Value made{nullptr};
    made.view_ = gradloom::TensorView(data, std::vector<int64_t>(shape, shape + rank));
    if (static_cast<int64_t>(count) < made.view_.elements())
      throw gradloom::Error(GRADLOOM_E_SHAPE, "E-SHAPE",
                            "the buffer of a tensor has " + std::to_string(count) + " elements, its shape more");
    return made;
  }

  bool IsTensor() const { return view_.data() != nullptr; }
  template <typename T>
  const T* GetTensorData() const {
    return view_.as<T>().data();
  }
  template <typename T>
  T* GetTensorMutableData() {
    return const_cast<T*>(view_.as<T>().data());
  }
  TensorTypeAndShapeInfo GetTensorTypeAndShapeInfo() const {
    return {view_.shape(), static_cast<ONNXTensorElementDataType>(view_.dtype())};
  }

  const gradloom::TensorView& view() const { return view_; }

 private:
  gradloom::Tensor owned_;
  gradloom::TensorView view_;
};

using Property = std::variant<int64_t, float, std::string>;

namespace internal {

inline bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// The type before the text: a checkpoint keeps texts alone.
inline std::string Encoded(const Property& property) {
  if (const auto* number = std::get_if<int64_t>(&property)) return "int64:" + std::to_string(*number);
  if (const auto* number = std::get_if<float>(&property)) return "float:" + gradloom::internal::TextOf(static_cast<double>(*number));
  return "string:" + std::get<std::string>(property);
}

inline Property Decoded(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string type = text.substr(0, colon), rest = text.substr(colon == std::string::npos ? text.size() : colon + 1);
  if (type == "int64") {
    int64_t number = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), number);
    return number;
  }
  if (type == "float") {
    double number = 0;
    std::from_chars(rest.data(), rest.data() + rest.size(), number);
    return static_cast<float>(number);
  }
  return type == "string" ? rest : text;
}

inline int64_t& Seed() {
  static int64_t seed = 0;
  return seed;
}

// What a checkpoint's state is of: a file, and from then on the session that was made of it.
struct State {
  std::optional<gradloom::Checkpoint> checkpoint;
  std::shared_ptr<gradloom::Session> session;

  gradloom::Session& Session() const {
    if (session == nullptr)
      throw gradloom::Error(GRADLOOM_E_CONFIG, "E-CONFIG", "no training session was made of this checkpoint yet", "",
                            "make the session first");
    return *session;
  }
};

}  // namespace internal

// Of the sessions that are made from here on.
inline void SetSeed(int64_t seed) { internal::Seed() = seed; }

class CheckpointState {
 public:
  static CheckpointState LoadCheckpoint(const std::string& path) {
    auto state = std::make_shared<internal::State>();
    if (!internal::EndsWith(path, ".onnx") && !internal::EndsWith(path, ".plan")) state->checkpoint = gradloom::Checkpoint::Load(path);
    return CheckpointState(std::move(state));
  }
  static CheckpointState LoadCheckpointFromBuffer(const std::vector<uint8_t>& buffer) {
    auto state = std::make_shared<internal::State>();
    state->checkpoint = gradloom::Checkpoint::FromBytes(std::as_bytes(std::span(buffer)));
    return CheckpointState(std::move(state));
  }
  static void SaveCheckpoint(const CheckpointState& state, const std::string& path, const bool include_optimizer_state = false) {
    state.state_->Session().SaveCheckpoint(path, include_optimizer_state);
  }

  void AddProperty(const std::string& name, const Property& value) { state_->Session().AddProperty(name, internal::Encoded(value)); }
  Property GetProperty(const std::string& name) {
    const auto text = state_->Session().Property(name);
    if (!text) throw gradloom::Error(GRADLOOM_E_CONFIG, "E-CONFIG", "the checkpoint has no property '" + name + "'");
    return internal::Decoded(*text);
  }
  void UpdateParameter(const std::string& name, const Value& value) { state_->Session().SetParameter(name, value.view()); }
  Value GetParameter(const std::string& name) { return Value(state_->Session().Parameter(name)); }

 private:
  friend class TrainingSession;
  explicit CheckpointState(std::shared_ptr<internal::State> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::State> state_;
};

class TrainingSession {
 public:
  TrainingSession(const Env&, const SessionOptions&, CheckpointState& state, const std::string& training_model,
                  const std::optional<std::string>& = std::nullopt, const std::optional<std::string>& optimizer_model = std::nullopt) {
    const gradloom::Plan plan = PlanOf(training_model, optimizer_model.value_or(""));
    const gradloom::SessionOptions options{.seed = internal::Seed()};
    session_ = state.state_->checkpoint ? std::make_shared<gradloom::Session>(plan, *state.state_->checkpoint, options)
                                        : std::make_shared<gradloom::Session>(plan, options);
    state.state_->session = session_;
  }

  // The loss, and what else the plan's training gives. Gradients add up until OptimizerStep.
  std::vector<Value> TrainStep(const std::vector<Value>& inputs) {
    session_->Backward(Named(inputs, gradloom::EntryKind::kTrain));
    return Outputs(gradloom::EntryKind::kTrain);
  }
  // The loss and the model's outputs.
  std::vector<Value> EvalStep(const std::vector<Value>& inputs) {
    session_->Evaluate(Named(inputs, gradloom::EntryKind::kEval));
    return Outputs(gradloom::EntryKind::kEval);
  }
  void OptimizerStep() { session_->Update(); }
  void LazyResetGrad() { session_->ResetGradients(); }

  void SetLearningRate(float lr) { session_->set_learning_rate(static_cast<double>(lr)); }
  float GetLearningRate() const { return static_cast<float>(session_->learning_rate()); }
  void RegisterLinearLRScheduler(int64_t warmup_steps, int64_t total_steps, float initial_lr) {
    gradloom::internal::Check(gradloom::internal::Api().RegisterLinearLRScheduler(session_->c(), warmup_steps, total_steps, initial_lr));
  }
  void SchedulerStep() { gradloom::internal::Check(gradloom::internal::Api().SchedulerStep(session_->c())); }

  void ExportModelForInferencing(const std::string& path, const std::vector<std::string>& outputs) { session_->ExportOnnx(path, outputs); }

  std::vector<std::string> InputNames(bool training) const { return Names(session_->plan().Inputs(KindOf(training))); }
  std::vector<std::string> OutputNames(bool training) const { return Names(session_->plan().Outputs(KindOf(training))); }

  // All parameters as one vector.
  Value ToBuffer(bool only_trainable) const {
    const std::vector<float> values = session_->FlatParameters(only_trainable);
    gradloom::Tensor tensor({static_cast<int64_t>(values.size())}, gradloom::kFloat32);
    if (!values.empty()) std::memcpy(tensor.data(), values.data(), values.size() * sizeof(float));
    return Value(std::move(tensor));
  }
  void FromBuffer(Value& buffer) { session_->SetFlatParameters(buffer.view().as<float>()); }

 private:
  static gradloom::Plan PlanOf(const std::string& model, const std::string& config) {
    if (internal::EndsWith(model, ".plan")) return gradloom::Plan::Load(model);
    gradloom::CompileOptions options;
    if (internal::EndsWith(config, ".toml")) options.config = config;
    options.gradients = true;
    return gradloom::Compile(gradloom::Model(model), options);
  }
  static gradloom::EntryKind KindOf(bool training) { return training ? gradloom::EntryKind::kTrain : gradloom::EntryKind::kEval; }
  static std::vector<std::string> Names(const std::vector<gradloom::TensorInfo>& infos) {
    std::vector<std::string> names;
    for (const gradloom::TensorInfo& info : infos) names.push_back(info.name);
    return names;
  }
  gradloom::Feeds Named(const std::vector<Value>& inputs, gradloom::EntryKind kind) const {
    const std::vector<gradloom::TensorInfo> infos = session_->plan().Inputs(kind);
    if (inputs.size() != infos.size()) {
      throw gradloom::Error(GRADLOOM_E_DATA, "E-DATA",
                            std::to_string(inputs.size()) + " inputs are given, the model takes " + std::to_string(infos.size()));
    }
    gradloom::Feeds feeds;
    for (size_t i = 0; i < inputs.size(); ++i) feeds.emplace_back(infos[i].name, inputs[i].view());
    return feeds;
  }
  // Copies: a value outlives the next step.
  std::vector<Value> Outputs(gradloom::EntryKind kind) const {
    std::vector<Value> values;
    for (const gradloom::TensorInfo& info : session_->plan().Outputs(kind)) {
      const gradloom::TensorView view = session_->Output(info.name);
      gradloom::Tensor copy(view.shape(), view.dtype());
      if (view.bytes() > 0) std::memcpy(copy.data(), view.data(), static_cast<size_t>(view.bytes()));
      values.emplace_back(std::move(copy));
    }
    return values;
  }

  std::shared_ptr<gradloom::Session> session_;
};

}  // namespace Ort

#endif  // __cplusplus
