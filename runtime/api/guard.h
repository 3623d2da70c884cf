// Helpers for the functions of the C table: no exception leaves such a function, and mistakes of the caller become errors.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "runtime/api/handles.h"
#include "runtime/base/default_floats.h"
#include "runtime/base/error.h"
#include "runtime/exec/step_at_exit.h"

namespace gradloom::api {

// Returns a constant status if there is not enough memory for a new one.
GradloomStatus* StatusOf(const Error& error) noexcept;
// The status of the exception that is being handled.
GradloomStatus* CurrentStatus() noexcept;
// Whether it is the constant status, which is never freed.
bool IsConstant(const GradloomStatus* status);

// At its end, the thread's current GPU is what it was when the caller called.
class CallersDevice {
 public:
  CallersDevice() = default;
  ~CallersDevice();
  CallersDevice(const CallersDevice&) = delete;
  CallersDevice& operator=(const CallersDevice&) = delete;
};

// Runs the body of a function of the table, and turns an exception into a status.
template <typename Body>
GradloomStatus* Guarded(Body&& body) noexcept {
  const CallersDevice keep;
  const DefaultFloats floats;
  try {
    body();
    return nullptr;
  } catch (...) {
    GradloomStatus* const status = CurrentStatus();
    StepAtExit::WaitForEnd();
    return status;
  }
}

// Throws Error(kConfig) if the pointer is null.
template <typename T>
T& NotNull(T* pointer, const char* what) {
  if (pointer == nullptr) throw Error(ErrorCode::kConfig, std::string(what) + " is null", "", "see gradloom_c.h");
  return *pointer;
}

// The place for a result that is returned as a handle. It is null until the result exists.
template <typename T>
T*& Out(T** out) {
  NotNull(out, "the output pointer for the result");
  *out = nullptr;
  return *out;
}

// A text that must not be null.
inline std::string TextOf(const char* text, const char* what) { return std::string(&NotNull(text, what)); }

// An array of `count` elements. It may be null if it is empty.
template <typename T>
const T* Array(const T* array, size_t count, const char* what) {
  if (count > 0) NotNull(array, what);
  return array;
}

// The size that the caller's struct states. Throws Error(kConfig) for one that no struct has: the caller did not initialize the memory.
template <typename Struct>
size_t SizeOf(const Struct& given) {
  if (given.size < sizeof(size_t) || given.size > 4096)
    throw Error(ErrorCode::kConfig, "unsupported struct size " + std::to_string(given.size), "",
                "set the struct's first field to its sizeof");
  return given.size;
}

// The fields of the caller's struct, and zeros for the fields that the caller's version of the struct does not have. Null stands for the
// default of every field. Throws Error(kVersion) if the caller has set fields that are unknown here.
template <typename Options>
Options OptionsOf(const Options* given) {
  Options options{};
  if (given == nullptr) return options;
  const size_t size = SizeOf(*given);
  std::memcpy(&options, given, std::min(size, sizeof options));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof options && std::any_of(bytes + sizeof options, bytes + size, [](unsigned char byte) { return byte != 0; }))
    throw Error(ErrorCode::kVersion, "an option is set that this version of the library does not have", "",
                "use the library of the header's version, or a newer one");
  return options;
}

// Throws Error(kConfig) if results cannot be written to the struct. Null: they are not wanted.
template <typename Result>
void CheckResult(const Result* out) {
  if (out != nullptr) SizeOf(*out);
}

// Copies the fields that the caller's struct has. Does nothing if `out` is null.
template <typename Result>
void WriteResult(Result made, Result* out) {
  if (out == nullptr) return;
  const size_t size = SizeOf(*out);
  made.size = size;
  std::memcpy(out, &made, std::min(size, sizeof made));
}

// The index of a kind of entry in the arrays of GradloomPlan. Throws Error(kConfig).
size_t EntryIndex(GradloomEntry entry);

// Throws Error(kConfig) if it is null, or in a child of the process that made the session.
GradloomSession& InItsProcess(GradloomSession* session);

// A call on a session that has begun. Releasing the session waits for it.
class Begun {
 public:
  explicit Begun(GradloomSession& session) : count_(session.begun) { ++count_; }
  ~Begun() { --count_; }
  Begun(const Begun&) = delete;
  Begun& operator=(const Begun&) = delete;

 private:
  std::atomic<int>& count_;
};

// Allows one call at a time on a session. Waits for a step that is running. Throws Error(kConfig) in a child of the process that made the
// session.
class Call {
 public:
  explicit Call(GradloomSession* session);
  Session& operator*() const { return handle_.session; }
  Session* operator->() const { return &handle_.session; }
  GradloomSession& handle() const { return handle_; }

  // Throws Error(kConfig) within a callback of Fit. For functions that would train at the same time.
  void CheckNotFitting() const;

 private:
  GradloomSession& handle_;
  const Begun begun_;  // before the lock: what the call touches last
  std::unique_lock<std::recursive_mutex> lock_;
};

// ---- Tensors ------------------------------------------------------------------------------------------------------

// Throws Error(kConfig, kType, kShape) if the struct does not describe a tensor that Gradloom supports; `what` names it. If tensors in GPU
// memory have been received by DLPack, throws Error(kDevice) for such a tensor unless `on_device` is set.
TensorView ViewOf(const GradloomTensor& tensor, const std::string& what, bool on_device = false);
// Makes ViewOf check from now on whether tensors are in GPU memory. Throws Error(kDevice) if this process has no CUDA.
void ExpectDeviceTensors();
// `shape` must outlive the result.
GradloomTensor TensorOf(const TensorView& view, const Shape& shape);
GradloomTensorInfo InfoOf(const TensorFacts& facts);
// By name, or in the plan's order.
Feeds FeedsOf(const Call& call, GradloomEntry entry, const char* const* names, const GradloomTensor* inputs, size_t count);
// Throws Error(kConfig) if the buffer has another size.
void CopyOut(const TensorView& view, void* buffer, size_t bytes);
GradloomStepResult ResultOf(const StepResult& result);

// The handle of a plan, including its inputs and outputs.
std::unique_ptr<GradloomPlan> PlanHandle(std::shared_ptr<const Plan> plan);

}  // namespace gradloom::api
