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
  int64_t seed = 0;                 // seed of everything random; a checkpoint with a position uses its own seed
  std::vector<int32_t> ordinals{};  // CUDA devices by rank; empty: 0, 1, 2 ...
  bool any_plan = false;            // also accept a checkpoint of a plan that was compiled with other options
  bool check_numerics = false;      // look at the numbers of every instruction (NonFiniteOrigin): the same bits, but far slower
};

struct StepResult {
  double loss = 0;        // of this batch, before the update
  double lr = 0;          // of this update
  double grad_norm = -1;  // before clipping; -1 if the plan does not compute it
  int64_t step = 0;       // updates done so far
  int64_t batch = 0;      // batches trained on so far
  bool updated = false;
};

// Where a tensor lives.
struct Location {
  std::string device;             // the first device that has it: "cpu", "cpu:1", "cuda:0"
  int num_devices = 0;            // number of devices with a copy; 0: several devices hold parts of it
  bool row_major = false;         // false: the elements are in a kernel's layout
  const void* address = nullptr;  // on that device; null if it has no fixed address
  int64_t bytes = 0;
};

struct DeviceMemory {
  std::string device;
  int64_t allocated_bytes = 0, cached_bytes = 0, free_bytes = 0;
};

// A checkpoint in memory.
class Checkpoint {
 public:
  // A file that SaveCheckpoint wrote, a safetensors file of weights, the index of several, or the folder of a checkpoint or of a run.
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
  // A property that a session added; nullopt if there is none.
  std::optional<std::string> Property(const std::string& name) const {
    const char* value = nullptr;
    internal::Check(internal::Api().GetCheckpointProperty(c(), name.c_str(), &value));
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  // What Load of a run's folder skipped because it could not be loaded: a line for each, "FOLDER: reason".
  std::string Skipped() const {
    GradloomText* text = nullptr;
    internal::Check(internal::Api().GetSkippedCheckpoints(c(), &text));
    return internal::Take(text);
  }
  GradloomCheckpoint* c() const { return handle_.get(); }

 private:
  explicit Checkpoint(GradloomCheckpoint* handle) : handle_(internal::Shared(handle, internal::Api().ReleaseCheckpoint)) {}
  std::shared_ptr<GradloomCheckpoint> handle_;
};

namespace internal {

inline StepResult ResultOf(const GradloomStepResult& r) { return {r.loss, r.lr, r.grad_norm, r.step, r.batch, r.updated != 0}; }

}  // namespace internal

// A process may have any number of sessions. Calls on one session run one after the other, from any threads.
class Session {
 public:
  explicit Session(const Plan& plan, const SessionOptions& options = {}) : Session(plan, options, nullptr) {}
  Session(const Plan& plan, const Checkpoint& checkpoint, const SessionOptions& options = {}) : Session(plan, options, checkpoint.c()) {}

  // Borrows the tensor for the next Step, Backward, Evaluate or Predict that is called without feeds. Throws Error(E-CONFIG) for a name
  // that none of them takes.
  void Feed(const std::string& name, TensorView view) {
    for (auto& [known, fed] : fed_) {
      if (known == name) return void(fed = std::move(view));
    }
    CheckInput(name);
    fed_.emplace_back(name, std::move(view));
  }

  // Trains on one batch: forward, backward and update as one program. Borrows the feeds until it returns, and does not alter them.
  StepResult Step(const Feeds& feeds) { return Run(internal::Api().Step, feeds); }
  StepResult Step(const Batch& batch) { return Run(internal::Api().Step, batch); }
  StepResult Step() { return Run(internal::Api().Step, fed_); }

  // The same on a thread of the session. The feeds are borrowed until Wait returns.
  void StepAsync(const Feeds& feeds) {
    const internal::FeedArrays arrays(feeds);
    internal::Check(internal::Api().StepAsync(c(), arrays.names.data(), arrays.tensors.data(), arrays.names.size()));
  }
  StepResult Wait() {
    auto result = internal::Sized<GradloomStepResult>();
    internal::Check(internal::Api().Wait(c(), &result));
    return internal::ResultOf(result);
  }

  // Forward and backward: adds the gradients to those accumulated for Update. Borrows the feeds. The plan needs `gradients`.
  StepResult Backward(const Feeds& feeds) { return Run(internal::Api().TrainStep, feeds); }
  StepResult Backward(const Batch& batch) { return Run(internal::Api().TrainStep, batch); }
  StepResult Backward() { return Run(internal::Api().TrainStep, fed_); }
  // Updates with the accumulated gradients, and sets them to zero.
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
  // Computes outputs only. Borrows the feeds.
  void Predict(const Feeds& feeds) {
    const internal::FeedArrays arrays(feeds);
    internal::Check(internal::Api().Predict(c(), arrays.names.data(), arrays.tensors.data(), arrays.names.size()));
  }
  void Predict() { Predict(fed_); }

  // An output of the last run, including "loss". Borrowed: valid until the next run.
  TensorView Output(const std::string& name) const {
    GradloomTensor tensor{};
    internal::Check(internal::Api().GetOutput(c(), name.c_str(), &tensor));
    return TensorView(tensor);
  }

  // The trained parameters; without `trainable_only` also the running statistics.
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
  // Copies the accumulated gradient.
  Tensor Gradient(const std::string& parameter) const {
    Tensor tensor = Like(Info(parameter));
    internal::Check(internal::Api().GetGradient(c(), parameter.c_str(), tensor.data(), static_cast<size_t>(tensor.bytes())));
    return tensor;
  }
  // Replaces it by a copy: clipped, summed over machines, computed by other means. Update uses it, even if no Backward came before;
  // gradients that were neither set nor accumulated are zero.
  void SetGradient(const std::string& parameter, const TensorView& value) {
    const GradloomTensor tensor = value.c();
    internal::Check(internal::Api().SetGradient(c(), parameter.c_str(), &tensor));
  }
  // Copies all parameters as one vector, in the order of Parameters().
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

  // Copies on the device that holds the tensor, without going through the host; their deleters free them. On a GPU this works for whole
  // tensors in row-major order.
  DLManagedTensor* ParameterToDLPack(const std::string& name) const { return ToDLPack(GRADLOOM_STATE, name); }
  DLManagedTensor* GradientToDLPack(const std::string& parameter) const { return ToDLPack(GRADLOOM_GRADIENT, parameter); }
  DLManagedTensor* OutputToDLPack(const std::string& name) const { return ToDLPack(GRADLOOM_OUTPUT, name); }

  // The plan's devices by rank ("cuda:0", "cuda:1"). A session on one GPU expects DLPack inputs on the first one, and outputs that all
  // devices have are copied from it.
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
  // Overrides the plan's schedule; a negative value restores it.
  void set_learning_rate(double lr) { internal::Check(internal::Api().SetLearningRate(c(), lr)); }
  void set_seed(int64_t seed) { internal::Check(internal::Api().SetSeed(c(), seed)); }
  int64_t step() const { return Position().first; }
  int64_t batch() const { return Position().second; }
  DeviceMemory Memory(size_t device = 0) const {
    auto memory = internal::Sized<GradloomDeviceMemory>();
    internal::Check(internal::Api().GetDeviceMemory(c(), device, &memory));
    return {memory.device, memory.allocated_bytes, memory.cached_bytes, memory.free_bytes};
  }
  // Frees memory that is needed only while a step runs.
  void ReleaseMemory() { internal::Check(internal::Api().ReleaseMemory(c())); }

  // Writes one safetensors file, complete or not at all. Without the optimizer's state it has only weights. Between two batches of an
  // update, a save may change the last bits of later results if several devices accumulate (gradloom_c.h).
  void SaveCheckpoint(const std::string& path, bool with_optimizer = true) const {
    internal::Check(internal::Api().SaveCheckpoint(c(), path.c_str(), with_optimizer ? 1 : 0));
  }
  std::string CheckpointBytes(bool with_optimizer = true) const {
    GradloomText* text = nullptr;
    internal::Check(internal::Api().SaveCheckpointToBuffer(c(), with_optimizer ? 1 : 0, &text));
    return internal::Take(text);
  }
  // Texts that are stored in checkpoints. Property returns nullopt if there is none.
  void AddProperty(const std::string& name, const std::string& value) {
    internal::Check(internal::Api().AddProperty(c(), name.c_str(), value.c_str()));
  }
  std::optional<std::string> Property(const std::string& name) const {
    const char* value = nullptr;
    internal::Check(internal::Api().GetProperty(c(), name.c_str(), &value));
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  // Writes the model's own file with the trained weights, for inference. `outputs`: those to keep; none: all.
  void ExportOnnx(const std::string& path, const std::vector<std::string>& outputs = {}) const {
    std::vector<const char*> names;
    for (const std::string& output : outputs) names.push_back(output.c_str());
    internal::Check(internal::Api().ExportModelForInferencing(c(), path.c_str(), names.data(), names.size()));
  }

  // Where the NaN or infinity of the last step's loss came from or, if the loss is finite, that of a parameter, optimizer state or
  // accumulated gradient: "Log '/log' in the forward pass of step 3: ...". "" if all are finite. Throws Error E-CONFIG without
  // SessionOptions::check_numerics.
  std::string NonFiniteOrigin() const {
    GradloomText* text = nullptr;
    internal::Check(internal::Api().GetNonFiniteOrigin(c(), &text));
    return internal::Take(text);
  }

  // Until the session ends or is shared under another name, other processes of this user on this host can attach its parameters under
  // `name` (AttachedParameters) and see them change. For sessions on one CPU device.
  void ShareParameters(const std::string& name) { internal::Check(internal::Api().ShareParameters(c(), name.c_str())); }
  void StopSharing() { internal::Check(internal::Api().ShareParameters(c(), nullptr)); }

  // For other threads while a Trainer fits the session: ends the run as a callback would, and also between two batches of an evaluation.
  // Returns at once. Does nothing if no run is under way.
  void StopFit() { internal::Check(internal::Api().StopFit(c())); }

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
    given.check_numerics = options.check_numerics ? 1 : 0;
    GradloomSession* handle = nullptr;
    internal::Check(internal::Api().CreateTrainingSession(plan.c(), &given, checkpoint, &handle));
    handle_ = {handle, internal::Api().ReleaseTrainingSession};
  }

  void CheckInput(const std::string& name) const {
    std::string known;
    for (const EntryKind kind : {EntryKind::kTrain, EntryKind::kEval, EntryKind::kPredict}) {
      for (const TensorInfo& info : plan_.Inputs(kind)) {
        if (info.name == name) return;
        if (kind == EntryKind::kTrain) known += (known.empty() ? "it has: " : ", ") + info.name;
      }
    }
    throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "the plan has no input '" + name + "'", {}, known);
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

// Parameters and running statistics of a session that shares them, in this or another process. They are read-only, not copied, and valid as
// long as this object, even after the session has ended.
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

  // By name, in the session's order. The elements change as the session trains. data() is null if they are in a kernel's layout; Copy reads
  // those.
  const std::vector<std::pair<std::string, TensorView>>& views() const { return views_; }
  // A copy of one parameter in row-major order. Throws Error if there is none of this name.
  Tensor Copy(const std::string& name) const {
    for (size_t i = 0; i < views_.size(); ++i) {
      if (views_[i].first != name) continue;
      Tensor tensor(views_[i].second.shape(), views_[i].second.dtype());
      internal::Check(internal::Api().CopyAttached(c(), i, tensor.data(), static_cast<size_t>(tensor.bytes())));
      return tensor;
    }
    throw Error(GRADLOOM_E_CONFIG, "E-CONFIG", "no parameter '" + name + "' is shared");
  }

  GradloomAttached* c() const { return handle_.get(); }

 private:
  std::shared_ptr<GradloomAttached> handle_;
  std::vector<std::pair<std::string, TensorView>> views_;
};

}  // namespace v1
}  // namespace gradloom
