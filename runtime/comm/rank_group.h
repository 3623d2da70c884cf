// What ranks do together: collectives and transfers, whether their threads are of one process or of several.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// The members of a group in their collectives: each member of this process calls Run for each collective, in one order.
class RankGroup {
 public:
  // `read` and `write` have `read_bytes` and `write_bytes` bytes and are the same or apart.
  struct Operand {
    DType dtype = DType::kUndefined;
    const void* read = nullptr;
    void* write = nullptr;
    int64_t read_bytes = 0, write_bytes = 0;
  };

  virtual ~RankGroup() = default;

  // Whether collectives can sum this type.
  static bool CanSum(DType dtype);

  // All members bring as many operands of the same types and sizes; they are the caller's until Run returns. Sums are made
  // element by element over the members as a binary tree, ((0 + 1) + (2 + 3)) + ..., whatever the number of threads and
  // processes: every member gets the same bits, and gets them again. `member` counts in the whole group. `failed`: the step has
  // failed here; the member is met, and moves no data. Throws Error(kPeer) where another process is gone or does not answer.
  virtual void Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed) = 0;
};

// From one rank to another, in order.
class RankChannel {
 public:
  virtual ~RankChannel() = default;

  // Returns when the bytes are the caller's again. Both throw Error(kPeer).
  virtual void Send(const void* data, int64_t bytes, bool failed) = 0;
  virtual void Receive(void* data, int64_t bytes, bool failed) = 0;
};

}  // namespace gradloom
