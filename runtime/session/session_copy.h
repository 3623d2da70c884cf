// A copy of a session's state, from which files are written while the session goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/tensor.h"
#include "runtime/plan/plan.h"
#include "runtime/session/session.h"

namespace gradloom {

// What a checkpoint is made of: a session between two steps, or a copy of one.
struct SavedState {
  const Plan* plan = nullptr;
  int64_t seed = 0, step = 0, batch = 0;
  double fixed_learning_rate = -1;
  std::vector<const StateTensor*> tensors;        // of the plan, those that this process holds
  std::function<Tensor(const StateTensor&)> get;  // of one of them, in logical order
};

// The session must stay as it is as long as this is used.
SavedState SavedStateOf(const Session& session);

// The name of the first parameter, optimizer state or accumulated gradient with NaN or infinity among `tensors`; "" where there is none.
// Of a plan that scales the loss accumulated gradients are not looked at: the update leaves itself out where they are too large, and the
// scale becomes smaller by that.
std::string NonFiniteState(const SavedState& state);

// All state, the position and the learning rate, between sessions of one plan. Tensor by tensor: where others write the parameters of
// `from` meanwhile, each element has a value that it had.
void CopyState(const Session& from, Session& to);

class SessionCopy {
 public:
  // Copies all state and the position, into the memory of the copy before. Of CPU devices as it lies there, which takes as long as reading
  // and writing it once takes. Throws std::bad_alloc where there is no memory for it.
  void Take(Session& session);
  // Of what was taken last; valid until the next copy is taken, and as long as the session's plan.
  SavedState state() const;

 private:
  Tensor Get(const StateTensor& state) const;

  SavedState taken_;
  struct Arena {
    bool held = false;  // by this process
    std::vector<std::byte> bytes;
  };
  std::vector<Arena> places_;    // by place; empty: tensors_
  std::vector<Tensor> tensors_;  // by index in the plan, of devices with a memory of their own
};

}  // namespace gradloom
