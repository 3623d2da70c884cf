// Collectives and transfers among threads of one process.
//
// A stream goes through all its meetings even where the step has failed, so that no other waits for it for ever; then they are told,
// and move no data.
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
  // Between the meetings, what a member makes for all of operand k, and what it fetches from the others.
  void Make(size_t member, Collective collective, size_t k);
  void Fetch(size_t member, Collective collective, int root, size_t k);
  // Elements [begin, end) of all members' operand k, summed into `to`, which has place for them alone.
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
  // Returns when the other side has taken the bytes.
  void Send(const void* data, int64_t bytes, bool failed) override;
  void Receive(void* data, int64_t bytes, bool failed) override;

 private:
  const void* data_ = nullptr;
  uint32_t sends_ = 0, receives_ = 0;         // as each side counts them
  std::atomic<uint32_t> sent_{0}, taken_{0};  // transfers begun and done
};

}  // namespace gradloom
