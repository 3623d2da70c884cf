// Collectives and transfers of ranks, whether their threads are in one process or in several.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/dtype.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// A group of ranks. Each member in this process calls Run for each collective, in one order.
class RankGroup {
 public:
  // `read` and `write` have `read_bytes` and `write_bytes` bytes, and are the same memory or separate. `root`: of a reduce, the member that
  // gets the sum; only that one has `write`.
  struct Operand {
    DType dtype = DType::kUndefined;
    const void* read = nullptr;
    void* write = nullptr;
    int64_t read_bytes = 0, write_bytes = 0;
    int root = 0;
  };

  virtual ~RankGroup() = default;

  // Whether collectives can sum this type.
  static bool CanSum(DType dtype);

  // All members pass the same number of operands, with the same types, sizes and roots, which must stay valid until Run returns. Sums are
  // made element by element over the members as a binary tree, ((0 + 1) + (2 + 3)) + ..., whatever the number of threads and processes, so
  // every member gets the same bits, every time, and the root of a reduce those of an all-reduce. `member` is the index in the whole group,
  // `root` of a broadcast, too. `failed`: the step has failed here; the member takes part without moving data. Throws Error(kPeer) if
  // another process is gone or does not answer.
  virtual void Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed) = 0;
};

// Transfers from one rank to another, in order.
class RankChannel {
 public:
  virtual ~RankChannel() = default;

  // Returns when the caller may reuse the bytes. Both throw Error(kPeer).
  virtual void Send(const void* data, int64_t bytes, bool failed) = 0;
  virtual void Receive(void* data, int64_t bytes, bool failed) = 0;
};

}  // namespace gradloom
