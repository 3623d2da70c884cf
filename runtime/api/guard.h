// What every function of the C table is made with: no exception passes it, and what callers may get wrong is an error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "runtime/api/handles.h"
#include "runtime/base/error.h"

namespace gradloom::api {

// Where no memory is left even for that, a constant one is given.
GradloomStatus* StatusOf(const Error& error) noexcept;
// Of the exception that is being handled.
GradloomStatus* CurrentStatus() noexcept;
// Whether it is that one, which nobody frees.
bool IsConstant(const GradloomStatus* status);

// Runs the body of a function of the table.
template <typename Body>
GradloomStatus* Guarded(Body&& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (...) {
    return CurrentStatus();
  }
}

// Throws Error(kConfig) for null.
template <typename T>
T& Given(T* pointer, const char* what) {
  if (pointer == nullptr) throw Error(ErrorCode::kConfig, std::string(what) + " is null", "", "see gradloom_c.h");
  return *pointer;
}

// A result that is given out by handle: null until it is there.
template <typename T>
T*& Out(T** out) {
  Given(out, "the place for the result");
  *out = nullptr;
  return *out;
}

// A text that must be there.
inline std::string TextOf(const char* text, const char* what) { return std::string(&Given(text, what)); }

// An array of `count` that may be null where it is empty.
template <typename T>
const T* Array(const T* array, size_t count, const char* what) {
  if (count > 0) Given(array, what);
  return array;
}

// The fields that the caller's struct has, and zeros for those it does not know. Null is the default of everything.
template <typename Options>
Options OptionsOf(const Options* given) {
  Options options{};
  if (given == nullptr) return options;
  // A size that is no struct's is memory that was never set.
  if (given->size < sizeof(size_t) || given->size > 4096)
    throw Error(ErrorCode::kConfig, "the size of a struct is " + std::to_string(given->size), "", "set its first field to its sizeof");
  std::memcpy(&options, given, std::min(given->size, sizeof options));
  return options;
}

// The other way: what the caller's struct has room for. Null takes nothing.
template <typename Result>
void Give(Result made, Result* out) {
  if (out == nullptr) return;
  const size_t size = OptionsOf(out).size;
  made.size = size;
  std::memcpy(out, &made, std::min(size, sizeof made));
}

// The index of an entry kind in the arrays of GradloomPlan. Throws Error(kConfig).
size_t EntryIndex(GradloomEntry entry);

// One call at a time on a session; waits for a step that is under way.
class Call {
 public:
  explicit Call(GradloomSession* session);
  Session& operator*() const { return handle_.session; }
  Session* operator->() const { return &handle_.session; }
  GradloomSession& handle() const { return handle_; }

  // Throws Error(kConfig) within a callback of Fit: for what would train beside it.
  void CheckNotFitting() const;

 private:
  GradloomSession& handle_;
  std::unique_lock<std::recursive_mutex> lock_;
};

// ---- Tensors ------------------------------------------------------------------------------------------------------

// Throws Error(kConfig, kType, kShape) for a struct that describes no tensor of ours; `what` names it. Error(kDevice) for one in a GPU's
// memory where DLPack has brought such tensors, unless that may be.
TensorView ViewOf(const GradloomTensor& tensor, const std::string& what, bool on_device = false);
// From now on tensors of GPUs are looked for. Throws Error(kDevice) where this process has no CUDA.
void ExpectDeviceTensors();
// `shape` must stay.
GradloomTensor TensorOf(const TensorView& view, const Shape& shape);
GradloomTensorInfo InfoOf(const TensorFacts& facts);
// By name, or in the plan's order.
Feeds FeedsOf(const Call& call, GradloomEntry entry, const char* const* names, const GradloomTensor* inputs, size_t count);
// Throws Error(kConfig) for a buffer of another size.
void CopyOut(const TensorView& view, void* buffer, size_t bytes);
GradloomStepResult ResultOf(const StepResult& result);

// The handle of a plan, with its inputs and outputs.
std::unique_ptr<GradloomPlan> PlanHandle(std::shared_ptr<const Plan> plan);

}  // namespace gradloom::api
