// Where the streams of a step meet: events, collectives and transfers among threads of one process.
//
// A step is known by its number. A stream goes through all its meetings even where the step has failed, so that no
// other waits for it for ever; then they are told, and move no data.
#pragma once

#include <atomic>
#include <barrier>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/dtype.h"
#include "runtime/plan/plan.h"

namespace gradloom {

// Recorded once a step.
class Event {
 public:
  void Record(uint32_t step) {
    step_.store(step, std::memory_order_release);
    step_.notify_all();
  }
  // Returns when the event has been recorded in this step, or in the next one by a stream that runs ahead.
  void Wait(uint32_t step) const {
    for (uint32_t seen; static_cast<int32_t>((seen = step_.load(std::memory_order_acquire)) - step) < 0;) {
      step_.wait(seen, std::memory_order_acquire);
    }
  }

 private:
  std::atomic<uint32_t> step_{0};
};

// The members of a group in their collectives: each calls Run for each collective, in one order.
class LocalGroup {
 public:
  explicit LocalGroup(int members);

  // Whether collectives can sum this type.
  static bool CanSum(DType dtype);

  // `read` and `write` have `read_bytes` and `write_bytes` bytes and are the same or apart.
  struct Operand {
    DType dtype = DType::kUndefined;
    const void* read = nullptr;
    void* write = nullptr;
    int64_t read_bytes = 0, write_bytes = 0;
  };

  // All members bring as many operands of the same types and sizes; they are the caller's until Run returns. Sums are made
  // element by element over the members as a binary tree, ((0 + 1) + (2 + 3)) + ..., whatever the number of threads: every
  // member gets the same bits, and gets them again.
  void Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed);

 private:
  // Between the meetings, what a member makes for all of operand k, and what it fetches from the others.
  void Make(size_t member, Collective collective, size_t k);
  void Fetch(size_t member, Collective collective, int root, size_t k);
  // Elements [begin, end) of all members' operand k, summed into `to`, which has place for them alone.
  void Sum(size_t member, size_t k, int64_t begin, int64_t end, void* to);

  struct Member {
    std::span<const Operand> operands;
    std::vector<double> scratch;  // a block of elements of each member
  };
  std::vector<Member> members_;
  std::barrier<> barrier_;
};

// From one rank to another, in order.
class LocalChannel {
 public:
  // Returns when the other side has taken the bytes.
  void Send(const void* data);
  void Receive(void* data, int64_t bytes, bool failed);

 private:
  const void* data_ = nullptr;
  uint32_t sends_ = 0, receives_ = 0;         // as each side counts them
  std::atomic<uint32_t> sent_{0}, taken_{0};  // transfers begun and done
};

}  // namespace gradloom
