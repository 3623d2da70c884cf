// Collectives and transfers among threads of one process.
//
// A stream takes part in all its collectives and transfers even if the step has failed, so that no other stream waits for ever. They are
// then told so, and move no data.
#pragma once

#include <atomic>
#include <barrier>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/rank_group.h"

namespace gradloom {

class LocalGroup : public RankGroup {
 public:
  explicit LocalGroup(int members);

  void Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed) override;

 private:
  // Between the barriers: the part of operand k that a member computes for all, and what it copies from the others.
  void Make(size_t member, Collective collective, size_t k);
  void Fetch(size_t member, Collective collective, int root, size_t k);
  // Sums elements [begin, end) of all members' operand k into `to`, which has room only for these.
  void Sum(size_t member, size_t k, int64_t begin, int64_t end, void* to);

  struct Member {
    std::span<const Operand> operands;
    std::vector<const void*> addends;
    std::vector<double> scratch;
  };
  std::vector<Member> members_;
  std::barrier<> barrier_;
};

class LocalChannel : public RankChannel {
 public:
  // Waits until the other side has taken the bytes.
  void Send(const void* data, int64_t bytes, bool failed) override;
  void Receive(void* data, int64_t bytes, bool failed) override;

 private:
  const void* data_ = nullptr;
  uint32_t sends_ = 0, receives_ = 0;         // counted by each side
  std::atomic<uint32_t> sent_{0}, taken_{0};  // transfers begun and finished
};

}  // namespace gradloom
