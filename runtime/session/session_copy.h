// A copy of a session's state, from which files are written while the session continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

namespace gradloom {

// The source of a checkpoint: a session between two steps, or a copy of one.
struct SavedState {
  const Plan* plan = nullptr;
  int64_t seed = 0, step = 0, batch = 0;
  double fixed_learning_rate = -1;
  std::vector<const StateTensor*> tensors;        // tensors of the plan that this process holds, except derived ones
  std::function<Tensor(const StateTensor&)> get;  // returns one of them, in logical order
};

// The session must not change while this is used.
SavedState SavedStateOf(const Session& session);

// The name of the first parameter, optimizer state or accumulated gradient among `tensors` with NaN or infinity; "" if there is none. If
// the plan scales the loss, accumulated gradients are not checked: an update with gradients that are too large skips itself and reduces the
// scale.
std::string NonFiniteState(const SavedState& state);

// Copies all state, the position and the learning rate between sessions of one plan, tensor by tensor. If others write the parameters of
// `from` meanwhile, each element has some value that it had.
void CopyState(const Session& from, Session& to);

class SessionCopy {
 public:
  // Copies all state and the position, reusing the memory of the previous copy. On CPU devices it copies the stored bytes, which takes the
  // time of reading and writing them once. Throws std::bad_alloc if there is no memory for it, also if the system would promise what it
  // does not have (HasHostMemory).
  void Take(Session& session);
  // Frees the memory; there is no last copy then.
  void Release();
  // The last copy; valid until the next one is taken, and as long as the session's plan.
  SavedState state() const;

 private:
  Tensor Get(const StateTensor& state) const;

  SavedState taken_;
  struct Arena {
    bool held = false;  // whether this process holds it
    int64_t size = 0;
    std::unique_ptr<std::byte[]> bytes;
  };
  std::vector<Arena> places_;    // by place; empty: tensors_
  std::vector<Tensor> tensors_;  // by index in the plan, for devices with their own memory
};

}  // namespace gradloom
