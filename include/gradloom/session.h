// Sessions: a plan with its state, on its devices.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradloom/dataset.h"
#include "gradloom/error.h"
#include "gradloom/plan.h"
#include "gradloom/tensor.h"

namespace gradloom {
inline namespace v1 {

struct SessionOptions {
  int64_t seed = 0;                 // of all that is random; a checkpoint with a position has its own
  std::vector<int32_t> ordinals{};  // CUDA devices by rank; empty: 0, 1, 2 ...
  bool any_plan = false;            // take a checkpoint of a plan with other options, too
};

struct StepResult {
  double loss = 0;        // of this batch, before the update
  double lr = 0;          // of this update
  double grad_norm = -1;  // before clipping; -1 where the plan does not compute it
  int64_t step = 0;       // updates done so far
  int64_t batch = 0;      // batches trained on so far
  bool updated = false;
};

// Where a tensor lives.
struct Location {
  std::string device;             // of the first device that has it: "cpu", "cpu:1", "cuda:0"
  int num_devices = 0;            // that hold a copy; 0: parts of it lie on several
  bool row_major = false;         // else its elements lie in the order that kernels want
  const void* address = nullptr;  // of that device; null for what is in no fixed place
  int64_t bytes = 0;
};

struct DeviceMemory {
  std::string device;
  int64_t allocated_bytes = 0, cached_bytes = 0, free_bytes = 0;
};

// A checkpoint in memory.
class Checkpoint {
 public:
  // What SaveCheckpoint wrote, a safetensors file of weights, or the folder of a run.
  static Checkpoint Load(const std::string& path) {
    GradloomCheckpoint* handle = nullptr;
    internal::Check(internal::Api().LoadCheckpoint(path.c_str(), &handle));
    return Checkpoint(handle);
  }
  // Copies the bytes of such a file.
  static Checkpoint FromBytes(std::span<const std::byte> bytes) {
    GradloomCheckpoint* handle = nullptr;
    internal::Check(internal::Api().LoadCheckpointFromBuffer(bytes.data(), bytes.size(), &handle));
    return Checkpoint(handle);
  }
  // One that a session added; nothing where there is none.
  std::optional<std::string> Property(const std::string& name) const {
    const char* value = nullptr;
    internal::Check(internal::Api().GetCheckpointProperty(c(), name.c_str(), &value));
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  GradloomCheckpoint* c() const { return handle_.get(); }

 private:
  explicit Checkpoint(GradloomCheckpoint* handle) : handle_(internal::Shared(handle, internal::Api().ReleaseCheckpoint)) {}
  std::shared_ptr<GradloomCheckpoint> handle_;
};

namespace internal {

inline StepResult ResultOf(const GradloomStepResult& r) { return {r.loss, r.lr, r.grad_norm, r.step, r.batch, r.updated != 0}; }

}  // namespace internal

// Any number of sessions may live in a process. Calls on one happen one after the other, from whichever threads.
class Session {
 public:
  explicit Session(const Plan& plan, const SessionOptions& options = {}) : Session(plan, options, nullptr) {}
  Session(const Plan& plan, const Checkpoint& checkpoint, const SessionOptions& options = {}) : Session(plan, options, checkpoint.c()) {}

  // Borrows the tensor for the next Step, Backward, Evaluate or Predict without feeds of its own.
  void Feed(const std::string& name, TensorView view) {
    for (auto& [known, fed] : fed_) {
      if (known == name) return void(fed = std::move(view));
    }
    fed_.emplace_back(name, std::move(view));
  }

  // Forward, backward and update of one batch as one program. Borrows the feeds until it returns, and alters none.
  StepResult Step(const Feeds& feeds) { return Run(internal::Api().Step, feeds); }
  StepResult Step(const Batch& batch) { return Run(internal::Api().Step, batch); }
  StepResult Step() { return Run(internal::Api().Step, fed_); }

  // The same on a thread of the session's: the feeds are borrowed until Wait returns.
  void StepAsync(const Feeds& feeds) {
    const internal::FeedArrays arrays(feeds);
    internal::Check(internal::Api().StepAsync(c(), arrays.names.data(), arrays.tensors.data(), arrays.names.size()));
  }
  StepResult Wait() {
    auto result = internal::Sized<GradloomStepResult>();
    internal::Check(internal::Api().Wait(c(), &result));
    return internal::ResultOf(result);
  }

  // Forward and backward: the gradients are added to those that wait for Update. Borrows the feeds. The plan needs `gradients`.
  StepResult Backward(const Feeds& feeds) { return Run(internal::Api().TrainStep, feeds); }
  StepResult Backward(const Batch& batch) { return Run(internal::Api().TrainStep, batch); }
  StepResult Backward() { return Run(internal::Api().TrainStep, fed_); }
  // The update with the sum of the gradients, which are zero after it.
  StepResult Update() {
    auto result = internal::Sized<GradloomStepResult>();
    internal::Check(internal::Api().OptimizerStep(c(), &result));
    return internal::ResultOf(result);
  }
  void ResetGradients() { internal::Check(internal::Api().LazyResetGrad(c())); }

  // Loss and outputs without training. Borrows the feeds.
  StepResult Evaluate(const Feeds& feeds) { return Run(internal::Api().EvalStep, feeds); }
  StepResult Evaluate(const Batch& batch) { return Run(internal::Api().EvalStep, batch); }
  StepResult Evaluate() { return Run(internal::Api().EvalStep, fed_); }
  // Outputs alone. Borrows the feeds.
  void Predict(const Feeds& feeds) {
    const internal::FeedArrays arrays(feeds);
    internal::Check(internal::Api().Predict(c(), arrays.names.data(), arrays.tensors.data(), arrays.names.size()));
  }
  void Predict() { Predict(fed_); }

  // An output of the run before, "loss" among them. Borrows: it is there until the next run.
  TensorView Output(const std::string& name) const {
    GradloomTensor tensor{};
    internal::Check(internal::Api().GetOutput(c(), name.c_str(), &tensor));
    return TensorView(tensor);
  }

  // What is trained, and without `trainable_only` the running statistics, too.
  std::vector<TensorInfo> Parameters(bool trainable_only = true) const {
    size_t count = 0;
    internal::Check(internal::Api().GetParameterCount(c(), trainable_only ? 1 : 0, &count));
    std::vector<TensorInfo> list;
    for (size_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      internal::Check(internal::Api().GetParameterName(c(), i, &name));
      list.push_back(Info(name));
    }
    return list;
  }
  // Copies.
  Tensor Parameter(const std::string& name) const {
    Tensor tensor = Like(Info(name));
    internal::Check(internal::Api().GetParameter(c(), name.c_str(), tensor.data(), static_cast<size_t>(tensor.bytes())));
    return tensor;
  }
  // Copies.
  void SetParameter(const std::string& name, const TensorView& value) {
    const GradloomTensor tensor = value.c();
    internal::Check(internal::Api().UpdateParameter(c(), name.c_str(), &tensor));
  }
  // Copies the sum that waits for Update.
  Tensor Gradient(const std::string& parameter) const {
    Tensor tensor = Like(Info(parameter));
    internal::Check(internal::Api().GetGradient(c(), parameter.c_str(), tensor.data(), static_cast<size_t>(tensor.bytes())));
    return tensor;
  }
  // All parameters as one vector, in the order of Parameters(). Copies.
  std::vector<float> FlatParameters(bool trainable_only = true) const {
    size_t count = 0;
    internal::Check(internal::Api().GetParametersSize(c(), trainable_only ? 1 : 0, &count));
    std::vector<float> values(count);
    if (count > 0) internal::Check(internal::Api().CopyParametersToBuffer(c(), trainable_only ? 1 : 0, values.data(), count));
    return values;
  }
  void SetFlatParameters(std::span<const float> values, bool trainable_only = true) {
    internal::Check(internal::Api().CopyBufferToParameters(c(), trainable_only ? 1 : 0, values.data(), values.size()));
  }

  Location ParameterLocation(const std::string& name) const { return Where(GRADLOOM_STATE, name); }
  Location GradientLocation(const std::string& parameter) const { return Where(GRADLOOM_GRADIENT, parameter); }
  Location OutputLocation(const std::string& name) const { return Where(GRADLOOM_OUTPUT, name); }

  // Copies on the device where it lies, without the host, that their deleters free: of a GPU whole tensors that lie there as they are
  // known.
  DLManagedTensor* ParameterToDLPack(const std::string& name) const { return ToDLPack(GRADLOOM_STATE, name); }
  DLManagedTensor* GradientToDLPack(const std::string& parameter) const { return ToDLPack(GRADLOOM_GRADIENT, parameter); }
  DLManagedTensor* OutputToDLPack(const std::string& name) const { return ToDLPack(GRADLOOM_OUTPUT, name); }

  // The plan's devices by rank ("cuda:0", "cuda:1"). The first is what DLPack's inputs of a session on one GPU are expected on, and what
  // outputs that all have are copied from.
  std::vector<std::string> Devices() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < plan_.device_count(); ++i) names.push_back(Memory(i).device);
    return names;
  }
  std::string DefaultDevice() const { return Memory(0).device; }

  double learning_rate() const {
    double lr = 0;
    internal::Check(internal::Api().GetLearningRate(c(), &lr));
    return lr;
  }
  // In place of the plan's schedule; below 0: the schedule again.
  void set_learning_rate(double lr) { internal::Check(internal::Api().SetLearningRate(c(), lr)); }
  void set_seed(int64_t seed) { internal::Check(internal::Api().SetSeed(c(), seed)); }
  int64_t step() const { return Position().first; }
  int64_t batch() const { return Position().second; }
  DeviceMemory Memory(size_t device = 0) const {
    auto memory = internal::Sized<GradloomDeviceMemory>();
    internal::Check(internal::Api().GetDeviceMemory(c(), device, &memory));
    return {memory.device, memory.allocated_bytes, memory.cached_bytes, memory.free_bytes};
  }
  // Gives back what only a running step needs.
  void ReleaseMemory() { internal::Check(internal::Api().ReleaseMemory(c())); }

  // One safetensors file, complete or not at all. Without the optimizer's state: weights alone.
  void SaveCheckpoint(const std::string& path, bool with_optimizer = true) const {
    internal::Check(internal::Api().SaveCheckpoint(c(), path.c_str(), with_optimizer ? 1 : 0));
  }
  std::string CheckpointBytes(bool with_optimizer = true) const {
    GradloomText* text = nullptr;
    internal::Check(internal::Api().SaveCheckpointToBuffer(c(), with_optimizer ? 1 : 0, &text));
    return internal::Take(text);
  }
  // Texts that go with the checkpoints; nothing where there is none.
  void AddProperty(const std::string& name, const std::string& value) {
    internal::Check(internal::Api().AddProperty(c(), name.c_str(), value.c_str()));
  }
  std::optional<std::string> Property(const std::string& name) const {
    const char* value = nullptr;
    internal::Check(internal::Api().GetProperty(c(), name.c_str(), &value));
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  // The model's own file with the trained weights, for inference; `outputs`: those to keep, none: all.
  void ExportOnnx(const std::string& path, const std::vector<std::string>& outputs = {}) const {
    std::vector<const char*> names;
    for (const std::string& output : outputs) names.push_back(output.c_str());
    internal::Check(internal::Api().ExportModelForInferencing(c(), path.c_str(), names.data(), names.size()));
  }

  // Until the session ends or another name is given, other processes of this user on this host can attach its parameters under `name`
  // (AttachedParameters) and see them change. Of one CPU device.
  void ShareParameters(const std::string& name) { internal::Check(internal::Api().ShareParameters(c(), name.c_str())); }
  void StopSharing() { internal::Check(internal::Api().ShareParameters(c(), nullptr)); }

  const Plan& plan() const { return plan_; }
  GradloomSession* c() const { return handle_.get(); }

 private:
  using RunFunction = GradloomStatus* (*)(GradloomSession*, const char* const*, const GradloomTensor*, size_t, GradloomStepResult*);

  Session(const Plan& plan, const SessionOptions& options, GradloomCheckpoint* checkpoint) : plan_(plan), handle_(nullptr, nullptr) {
    auto given = internal::Sized<GradloomSessionOptions>();
    given.seed = options.seed;
    given.ordinals = options.ordinals.data();
    given.num_ordinals = options.ordinals.size();
    given.any_plan = options.any_plan ? 1 : 0;
    GradloomSession* handle = nullptr;
    internal::Check(internal::Api().CreateTrainingSession(plan.c(), &given, checkpoint, &handle));
    handle_ = {handle, internal::Api().ReleaseTrainingSession};
  }

  StepResult Run(RunFunction run, const Feeds& feeds) {
    const internal::FeedArrays arrays(feeds);
    return Run(run, arrays.names.data(), arrays.tensors.data(), arrays.names.size());
  }
  StepResult Run(RunFunction run, const Batch& batch) {
    const internal::BatchArrays arrays = batch.Get(plan_);
    return Run(run, arrays.names, arrays.tensors, arrays.count);
  }
  StepResult Run(RunFunction run, const char* const* names, const GradloomTensor* tensors, size_t count) {
    auto result = internal::Sized<GradloomStepResult>();
    internal::Check(run(c(), names, tensors, count, &result));
    return internal::ResultOf(result);
  }
  TensorInfo Info(const std::string& name) const {
    auto info = internal::Sized<GradloomTensorInfo>();
    internal::Check(internal::Api().GetParameterTypeAndShape(c(), name.c_str(), &info));
    return internal::InfoOf(info);
  }
  static Tensor Like(const TensorInfo& info) { return Tensor(info.shape, info.dtype); }
  DLManagedTensor* ToDLPack(GradloomTensorKind kind, const std::string& name) const {
    DLManagedTensor* managed = nullptr;
    internal::Check(internal::Api().CopyToDLPack(c(), kind, name.c_str(), &managed));
    return managed;
  }
  Location Where(GradloomTensorKind kind, const std::string& name) const {
    auto place = internal::Sized<GradloomLocation>();
    internal::Check(internal::Api().GetLocation(c(), kind, name.c_str(), &place));
    return {place.device, place.num_devices, place.row_major != 0, place.address, place.bytes};
  }
  std::pair<int64_t, int64_t> Position() const {
    std::pair<int64_t, int64_t> position;
    internal::Check(internal::Api().GetPosition(c(), &position.first, &position.second));
    return position;
  }

  Plan plan_;
  std::unique_ptr<GradloomSession, void (*)(GradloomSession*)> handle_;
  Feeds fed_;
};

// Parameters and running statistics of a session that shares them, in this or another process: read-only, without a copy, and there as
// long as this object, whatever becomes of the session.
class AttachedParameters {
 public:
  explicit AttachedParameters(const std::string& name) {
    GradloomAttached* handle = nullptr;
    internal::Check(internal::Api().AttachParameters(name.c_str(), &handle));
    handle_ = internal::Shared(handle, internal::Api().ReleaseAttached);
    size_t count = 0;
    internal::Check(internal::Api().GetAttachedCount(c(), &count));
    for (size_t i = 0; i < count; ++i) {
      const char* known = nullptr;
      GradloomTensor tensor{};
      internal::Check(internal::Api().GetAttached(c(), i, &known, &tensor));
      views_.emplace_back(known, TensorView(tensor));
    }
  }

  // By name, in the session's order. The elements change as the session trains; data() is null where they lie in the order that kernels
  // want, and Copy has them.
  const std::vector<std::pair<std::string, TensorView>>& views() const { return views_; }
  // A copy of one in row-major order. Throws Error where there is none of this name.
  Tensor Copy(const std::string& name) const {
    for (size_t i = 0; i < views_.size(); ++i) {
      if (views_[i].first != name) continue;
      Tensor tensor(views_[i].second.shape(), views_[i].second.dtype());
      internal::Check(internal::Api().CopyAttached(c(), i, tensor.data(), static_cast<size_t>(tensor.bytes())));
      return tensor;
    }
    throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "nothing is shared under the name of '" + name + "'");
  }

  GradloomAttached* c() const { return handle_.get(); }

 private:
  std::shared_ptr<GradloomAttached> handle_;
  std::vector<std::pair<std::string, TensorView>> views_;
};

}  // namespace v1
}  // namespace gradloom
