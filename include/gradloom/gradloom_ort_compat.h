// The names of onnxruntime's on-device training (onnxruntime_training_c_api.h and onnxruntime_training_cxx_api.h, last in 1.19) on top of
// Gradloom. A simple program moves by including this header in place of those and linking libgradloom.so. C has all functions of
// OrtTrainingApi and the functions of OrtApi that a training program needs; C++ has the classes below, over those. docs/embedding.md has an
// example.
//
// These replace the four artifacts that onnxruntime-training made ahead of time with Python:
//
// - training model: the ONNX model itself, as its exporter wrote it; or a plan that was compiled before (*.plan,
//   `gradloom compile --gradients`), which starts without compiling.
// - eval model: nothing, since the plan also evaluates. The path is ignored.
// - optimizer model: a configuration (*.toml) with loss, optimizer and batch, which generate_artifacts was told. A plan needs none.
// - checkpoint: a file that CheckpointState::SaveCheckpoint wrote, or a safetensors file of weights; or a path that ends in .onnx or .plan,
//   which means the weights in that file.
//
// From buffers: the bytes of the same files.
//
// Differences: OptimizerStep consumes the gradients, so LazyResetGrad after it changes nothing, and without it gradients do not accumulate
// over updates. A state has its parameters, and can be saved, once a session was made from it; its properties it has before. If two
// sessions are made from one state, each begins with what the checkpoint had, and the state is that of the last one. Properties are stored
// as text, with their type. Values are tensors in host memory. Of the session options, only the number of threads of an operator counts,
// where a model is compiled.
#pragma once

#include "gradloom/gradloom_ort_compat_c.h"

#ifdef __cplusplus

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace Ort {

class Exception : public std::exception {
 public:
  Exception(std::string&& text, OrtErrorCode code) : text_(std::move(text)), code_(code) {}
  OrtErrorCode GetOrtErrorCode() const { return code_; }
  // Class, message, location and help of the error.
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
  OrtErrorCode code_;
};

inline const OrtApi& GetApi() {
  const OrtApi* const api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  if (api == nullptr) throw Exception("the library does not support this version of the C interface", ORT_FAIL);
  return *api;
}
inline const OrtTrainingApi& GetTrainingApi() { return *GetApi().GetTrainingApi(ORT_API_VERSION); }

// Releases the status.
inline void ThrowOnError(OrtStatus* status) {
  if (status == nullptr) return;
  Exception error(GetApi().GetErrorMessage(status), GetApi().GetErrorCode(status));
  GetApi().ReleaseStatus(status);
  throw error;
}

namespace detail {

inline void Release(OrtEnv* handle) { GetApi().ReleaseEnv(handle); }
inline void Release(OrtSessionOptions* handle) { GetApi().ReleaseSessionOptions(handle); }
inline void Release(OrtMemoryInfo* handle) { GetApi().ReleaseMemoryInfo(handle); }
inline void Release(OrtValue* handle) { GetApi().ReleaseValue(handle); }
inline void Release(OrtTensorTypeAndShapeInfo* handle) { GetApi().ReleaseTensorTypeAndShapeInfo(handle); }
inline void Release(OrtTrainingSession* handle) { GetTrainingApi().ReleaseTrainingSession(handle); }
inline void Release(OrtCheckpointState* handle) { GetTrainingApi().ReleaseCheckpointState(handle); }

// Owns a handle, and converts to it for the functions of C.
template <typename T>
class Base {
 public:
  Base() = default;
  explicit Base(T* handle) : p_(handle) {}
  ~Base() {
    if (p_ != nullptr) Release(p_);
  }
  Base(Base&& other) noexcept : p_(other.release()) {}
  Base& operator=(Base&& other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  operator T*() const noexcept { return p_; }  // NOLINT: implicit, as in onnxruntime
  T* release() { return std::exchange(p_, nullptr); }

 protected:
  T* p_ = nullptr;
};

template <typename T>
struct TypeToTensorType;
#define GRADLOOM_ORT_TYPE(type, value) \
  template <>                          \
  struct TypeToTensorType<type> : std::integral_constant<ONNXTensorElementDataType, ONNX_TENSOR_ELEMENT_DATA_TYPE_##value> {}
GRADLOOM_ORT_TYPE(float, FLOAT);
GRADLOOM_ORT_TYPE(double, DOUBLE);
GRADLOOM_ORT_TYPE(int8_t, INT8);
GRADLOOM_ORT_TYPE(int16_t, INT16);
GRADLOOM_ORT_TYPE(int32_t, INT32);
GRADLOOM_ORT_TYPE(int64_t, INT64);
GRADLOOM_ORT_TYPE(uint8_t, UINT8);
GRADLOOM_ORT_TYPE(uint16_t, UINT16);
GRADLOOM_ORT_TYPE(uint32_t, UINT32);
GRADLOOM_ORT_TYPE(uint64_t, UINT64);
GRADLOOM_ORT_TYPE(bool, BOOL);
#undef GRADLOOM_ORT_TYPE

}  // namespace detail

struct Env : detail::Base<OrtEnv> {
  explicit Env(OrtLoggingLevel level = ORT_LOGGING_LEVEL_WARNING, const char* id = "") { ThrowOnError(GetApi().CreateEnv(level, id, &p_)); }
};

struct SessionOptions : detail::Base<OrtSessionOptions> {
  SessionOptions() { ThrowOnError(GetApi().CreateSessionOptions(&p_)); }
  SessionOptions& SetIntraOpNumThreads(int threads) {
    ThrowOnError(GetApi().SetIntraOpNumThreads(p_, threads));
    return *this;
  }
  // No effect: the operators of a device run one after the other.
  SessionOptions& SetInterOpNumThreads(int threads) {
    ThrowOnError(GetApi().SetInterOpNumThreads(p_, threads));
    return *this;
  }
};

struct MemoryInfo : detail::Base<OrtMemoryInfo> {
  static MemoryInfo CreateCpu(OrtAllocatorType type, OrtMemType mem_type) {
    MemoryInfo made;
    ThrowOnError(GetApi().CreateCpuMemoryInfo(type, mem_type, &made.p_));
    return made;
  }
};

struct AllocatorWithDefaultOptions {
  AllocatorWithDefaultOptions() { ThrowOnError(GetApi().GetAllocatorWithDefaultOptions(&p_)); }
  operator OrtAllocator*() const { return p_; }  // NOLINT: implicit, as in onnxruntime
  void* Alloc(size_t bytes) {
    void* memory = nullptr;
    ThrowOnError(GetApi().AllocatorAlloc(p_, bytes, &memory));
    return memory;
  }
  void Free(void* memory) { ThrowOnError(GetApi().AllocatorFree(p_, memory)); }

 private:
  OrtAllocator* p_ = nullptr;
};

struct TensorTypeAndShapeInfo : detail::Base<OrtTensorTypeAndShapeInfo> {
  explicit TensorTypeAndShapeInfo(OrtTensorTypeAndShapeInfo* info) : Base(info) {}
  std::vector<int64_t> GetShape() const {
    std::vector<int64_t> shape(GetDimensionsCount());
    ThrowOnError(GetApi().GetDimensions(p_, shape.data(), shape.size()));
    return shape;
  }
  size_t GetDimensionsCount() const {
    size_t count = 0;
    ThrowOnError(GetApi().GetDimensionsCount(p_, &count));
    return count;
  }
  ONNXTensorElementDataType GetElementType() const {
    ONNXTensorElementDataType type = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    ThrowOnError(GetApi().GetTensorElementType(p_, &type));
    return type;
  }
  size_t GetElementCount() const {
    size_t count = 0;
    ThrowOnError(GetApi().GetTensorShapeElementCount(p_, &count));
    return count;
  }
};

// A tensor: borrowed if it is made from a buffer of the caller, otherwise owned.
struct Value : detail::Base<OrtValue> {
  explicit Value(std::nullptr_t) {}
  explicit Value(OrtValue* value) : Base(value) {}

  template <typename T>
  static Value CreateTensor(const OrtMemoryInfo* info, T* data, size_t count, const int64_t* shape, size_t rank) {
    return CreateTensor(info, data, count * sizeof(T), shape, rank, detail::TypeToTensorType<T>::value);
  }
  static Value CreateTensor(const OrtMemoryInfo* info, void* data, size_t num_bytes, const int64_t* shape, size_t rank,
                            ONNXTensorElementDataType type) {
    Value made{nullptr};
    ThrowOnError(GetApi().CreateTensorWithDataAsOrtValue(info, data, num_bytes, shape, rank, type, &made.p_));
    return made;
  }
  template <typename T>
  static Value CreateTensor(OrtAllocator* allocator, const int64_t* shape, size_t rank) {
    return CreateTensor(allocator, shape, rank, detail::TypeToTensorType<T>::value);
  }
  static Value CreateTensor(OrtAllocator* allocator, const int64_t* shape, size_t rank, ONNXTensorElementDataType type) {
    Value made{nullptr};
    ThrowOnError(GetApi().CreateTensorAsOrtValue(allocator, shape, rank, type, &made.p_));
    return made;
  }

  bool IsTensor() const { return p_ != nullptr; }
  // Throws Exception if the elements have another type.
  template <typename T>
  T* GetTensorMutableData() {
    return static_cast<T*>(Data(detail::TypeToTensorType<T>::value));
  }
  template <typename T>
  const T* GetTensorData() const {
    return static_cast<const T*>(Data(detail::TypeToTensorType<T>::value));
  }
  TensorTypeAndShapeInfo GetTensorTypeAndShapeInfo() const {
    OrtTensorTypeAndShapeInfo* info = nullptr;
    ThrowOnError(GetApi().GetTensorTypeAndShape(p_, &info));
    return TensorTypeAndShapeInfo(info);
  }

 private:
  void* Data(ONNXTensorElementDataType type) const {
    if (GetTensorTypeAndShapeInfo().GetElementType() != type)
      throw Exception("the tensor has a different element type", ORT_INVALID_ARGUMENT);
    void* data = nullptr;
    ThrowOnError(GetApi().GetTensorMutableData(p_, &data));
    return data;
  }
};

using Property = std::variant<int64_t, float, std::string>;

// The seed of sessions that are created from now on.
inline void SetSeed(const int64_t seed) { ThrowOnError(GetTrainingApi().SetSeed(seed)); }

class CheckpointState : public detail::Base<OrtCheckpointState> {
 public:
  static CheckpointState LoadCheckpoint(const std::string& path) {
    CheckpointState state;
    ThrowOnError(GetTrainingApi().LoadCheckpoint(path.c_str(), &state.p_));
    return state;
  }
  static CheckpointState LoadCheckpointFromBuffer(const std::vector<uint8_t>& buffer) {
    CheckpointState state;
    ThrowOnError(GetTrainingApi().LoadCheckpointFromBuffer(buffer.data(), buffer.size(), &state.p_));
    return state;
  }
  static void SaveCheckpoint(const CheckpointState& state, const std::string& path, const bool include_optimizer_state = false) {
    ThrowOnError(GetTrainingApi().SaveCheckpoint(state, path.c_str(), include_optimizer_state));
  }

  void AddProperty(const std::string& name, const Property& value) {
    if (const auto* integer = std::get_if<int64_t>(&value)) return Add(name, OrtIntProperty, integer);
    if (const auto* number = std::get_if<float>(&value)) return Add(name, OrtFloatProperty, number);
    Add(name, OrtStringProperty, std::get<std::string>(value).c_str());
  }
  Property GetProperty(const std::string& name) {
    AllocatorWithDefaultOptions allocator;
    OrtPropertyType type = OrtStringProperty;
    void* given = nullptr;
    ThrowOnError(GetTrainingApi().GetProperty(p_, name.c_str(), allocator, &type, &given));
    Property value;
    if (type == OrtIntProperty) value = *static_cast<int64_t*>(given);
    if (type == OrtFloatProperty) value = *static_cast<float*>(given);
    if (type == OrtStringProperty) value = std::string(static_cast<char*>(given));
    allocator.Free(given);
    return value;
  }
  void UpdateParameter(const std::string& name, const Value& value) {
    ThrowOnError(GetTrainingApi().UpdateParameter(p_, name.c_str(), value));
  }
  Value GetParameter(const std::string& name) {
    OrtValue* value = nullptr;
    ThrowOnError(GetTrainingApi().GetParameter(p_, name.c_str(), AllocatorWithDefaultOptions(), &value));
    return Value(value);
  }

 private:
  CheckpointState() = default;
  // The table takes its inputs without const, but only reads them.
  void Add(const std::string& name, OrtPropertyType type, const void* value) {
    ThrowOnError(GetTrainingApi().AddProperty(p_, name.c_str(), type, const_cast<void*>(value)));
  }
};

class TrainingSession : public detail::Base<OrtTrainingSession> {
 public:
  TrainingSession(const Env& env, const SessionOptions& options, CheckpointState& state, const std::string& train_model_path,
                  const std::optional<std::string>& eval_model_path = std::nullopt,
                  const std::optional<std::string>& optimizer_model_path = std::nullopt) {
    const auto path = [](const std::optional<std::string>& given) { return given ? given->c_str() : nullptr; };
    ThrowOnError(GetTrainingApi().CreateTrainingSession(env, options, state, train_model_path.c_str(), path(eval_model_path),
                                                        path(optimizer_model_path), &p_));
  }
  TrainingSession(const Env& env, const SessionOptions& options, CheckpointState& state, const std::vector<uint8_t>& train_model_data,
                  const std::vector<uint8_t>& eval_model_data = {}, const std::vector<uint8_t>& optim_model_data = {}) {
    ThrowOnError(GetTrainingApi().CreateTrainingSessionFromBuffer(env, options, state, train_model_data.data(), train_model_data.size(),
                                                                  eval_model_data.data(), eval_model_data.size(), optim_model_data.data(),
                                                                  optim_model_data.size(), &p_));
  }

  // Returns the loss, and the other outputs of the plan's training entry. Gradients accumulate until OptimizerStep.
  std::vector<Value> TrainStep(const std::vector<Value>& inputs) {
    std::vector<OrtValue*> outputs(Count(GetTrainingApi().TrainingSessionGetTrainingModelOutputCount));
    const std::vector<const OrtValue*> given = Handles(inputs);
    ThrowOnError(GetTrainingApi().TrainStep(p_, nullptr, given.size(), given.data(), outputs.size(), outputs.data()));
    return Owned(outputs);
  }
  // Returns the loss and the model's outputs.
  std::vector<Value> EvalStep(const std::vector<Value>& inputs) {
    std::vector<OrtValue*> outputs(Count(GetTrainingApi().TrainingSessionGetEvalModelOutputCount));
    const std::vector<const OrtValue*> given = Handles(inputs);
    ThrowOnError(GetTrainingApi().EvalStep(p_, nullptr, given.size(), given.data(), outputs.size(), outputs.data()));
    return Owned(outputs);
  }
  void OptimizerStep() { ThrowOnError(GetTrainingApi().OptimizerStep(p_, nullptr)); }
  void LazyResetGrad() { ThrowOnError(GetTrainingApi().LazyResetGrad(p_)); }

  void SetLearningRate(float lr) { ThrowOnError(GetTrainingApi().SetLearningRate(p_, lr)); }
  float GetLearningRate() const {
    float lr = 0;
    ThrowOnError(GetTrainingApi().GetLearningRate(p_, &lr));
    return lr;
  }
  void RegisterLinearLRScheduler(int64_t warmup_step_count, int64_t total_step_count, float initial_lr) {
    ThrowOnError(GetTrainingApi().RegisterLinearLRScheduler(p_, warmup_step_count, total_step_count, initial_lr));
  }
  void SchedulerStep() { ThrowOnError(GetTrainingApi().SchedulerStep(p_)); }

  void ExportModelForInferencing(const std::string& path, const std::vector<std::string>& outputs) {
    std::vector<const char*> names;
    for (const std::string& output : outputs) names.push_back(output.c_str());
    ThrowOnError(GetTrainingApi().ExportModelForInferencing(p_, path.c_str(), names.size(), names.data()));
  }

  std::vector<std::string> InputNames(const bool training) const {
    const OrtTrainingApi& api = GetTrainingApi();
    return training ? Names(api.TrainingSessionGetTrainingModelInputCount, api.TrainingSessionGetTrainingModelInputName)
                    : Names(api.TrainingSessionGetEvalModelInputCount, api.TrainingSessionGetEvalModelInputName);
  }
  std::vector<std::string> OutputNames(const bool training) const {
    const OrtTrainingApi& api = GetTrainingApi();
    return training ? Names(api.TrainingSessionGetTrainingModelOutputCount, api.TrainingSessionGetTrainingModelOutputName)
                    : Names(api.TrainingSessionGetEvalModelOutputCount, api.TrainingSessionGetEvalModelOutputName);
  }

  // All parameters as one vector; unless only trainable ones are requested, the running statistics follow.
  Value ToBuffer(const bool only_trainable) {
    const auto count = static_cast<int64_t>(ParametersSize(only_trainable));
    Value buffer = Value::CreateTensor<float>(AllocatorWithDefaultOptions(), &count, 1);
    ThrowOnError(GetTrainingApi().CopyParametersToBuffer(p_, buffer, only_trainable));
    return buffer;
  }
  // Accepts either form that ToBuffer returns; the size tells which one it is.
  void FromBuffer(Value& buffer) {
    const bool all = buffer.GetTensorTypeAndShapeInfo().GetElementCount() == ParametersSize(false);
    ThrowOnError(GetTrainingApi().CopyBufferToParameters(p_, buffer, !all));
  }

 private:
  using CountFunction = OrtStatus* (*)(const OrtTrainingSession*, size_t*);
  using NameFunction = OrtStatus* (*)(const OrtTrainingSession*, size_t, OrtAllocator*, char**);

  size_t Count(CountFunction count_of) const {
    size_t count = 0;
    ThrowOnError(count_of(p_, &count));
    return count;
  }
  std::vector<std::string> Names(CountFunction count_of, NameFunction name_of) const {
    AllocatorWithDefaultOptions allocator;
    std::vector<std::string> names(Count(count_of));
    for (size_t i = 0; i < names.size(); ++i) {
      char* name = nullptr;
      ThrowOnError(name_of(p_, i, allocator, &name));
      names[i] = name;
      allocator.Free(name);
    }
    return names;
  }
  size_t ParametersSize(bool only_trainable) const {
    size_t count = 0;
    ThrowOnError(GetTrainingApi().GetParametersSize(p_, &count, only_trainable));
    return count;
  }
  static std::vector<const OrtValue*> Handles(const std::vector<Value>& values) { return {values.begin(), values.end()}; }
  static std::vector<Value> Owned(const std::vector<OrtValue*>& outputs) {
    std::vector<Value> values;
    for (OrtValue* const output : outputs) values.emplace_back(output);
    return values;
  }
};

}  // namespace Ort

#endif  // __cplusplus
