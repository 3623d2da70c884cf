// Collectives and transfers of ranks in several processes. The bits are those of the same number of ranks in one process.
#pragma once

#include <barrier>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/rank_group.h"
#include "runtime/comm/tree_sum.h"

namespace gradloom {

class Communicator;

// The members in a process synchronize. The first one exchanges data with the other processes, and the others take it from there. A sum
// over all members is made piece by piece: each process sums a share of the elements, for which the others send it the partial sums of the
// tree over their members. A small sum is made by each of few processes, or by a tree of many. In a reduce a process sums the operands
// whose roots it has, unless it would receive more in this way than as one of those that sum a share each.
class JobGroup : public RankGroup {
 public:
  // `ranks`: number of ranks of the plan. `members` ascend. Uses two tags, from `tag` on.
  JobGroup(Communicator& communicator, uint32_t tag, const std::vector<int>& members, size_t ranks);

  void Run(int member, Collective collective, int root, std::span<const Operand> operands, bool failed) override;

 private:
  struct Process {
    int process = 0;
    int begin = 0, end = 0;  // range of its members
    std::vector<TreePart> parts;
  };
  // Elements of an operand that one process sums, and their destination.
  struct Piece {
    size_t operand = 0;
    int64_t begin = 0, elements = 0;
    int member = 0;  // the member whose `write` gets them, -1: one of another process ...
    int64_t to = 0;  // ... from this element on
  };

  // Processes whose sums this one adds to its own: `process` and those under it.
  struct Branch {
    int process = 0;
    std::vector<TreePart> parts;   // of their members
    std::vector<TreePart> joined;  // of these and of all members that come before, from this process on
  };

  const std::span<const Operand>& operands(int member) const { return members_[static_cast<size_t>(member - mine_->begin)]; }
  const Operand& leader(size_t operand) const { return members_[0][operand]; }
  // Calls f for all processes but this one.
  template <typename F>
  void ForEachOther(F&& f) const;

  // The first member's exchange with the other processes.
  void Exchange(Collective collective, int root);
  // Copies each member's results from the others of its process.
  void Fetch(int member, Collective collective, int root) const;

  void GrowBranches();
  void AllReduceSmall();
  void ReduceSmall();
  // The roots of a reduce get their sums, the first member those of an all-reduce. `bytes`: of all operands.
  void SumByTree(Collective collective, int64_t bytes);
  // `shares`: each process sums a share of the elements for those that get the sums, otherwise what its members get.
  void SumPieces(Collective collective, bool shares);
  void Broadcast(int root);
  void AllGather();

  static bool Has(const Process& process, int member) { return member >= process.begin && member < process.end; }
  // Whether one of the processes would receive more bytes by summing its operands alone than if all sum shares. `bytes`: of all operands.
  bool PaysToShare(int64_t bytes) const;
  // The member of this process to whose memory the sum of an operand goes, or -1.
  int ReceiverOf(Collective collective, size_t operand) const;
  std::vector<Piece> PiecesOf(const Process& process, Collective collective, bool shares) const;
  // Writes the sums of this process's parts, one after the other; returns their bytes.
  int64_t SumParts(size_t operand, int64_t begin, int64_t elements, std::byte* to);
  // Sums the parts of all processes; those of process i are at parts[i].
  void SumAll(DType dtype, int64_t elements, std::span<const std::byte* const> parts, void* to);

  Communicator& communicator_;
  const uint32_t tag_;
  const int size_;  // members
  std::vector<Process> processes_;
  const Process* mine_ = nullptr;
  // For small sums over many processes.
  std::vector<Branch> branches_;
  int above_ = -1;                                 // the process to which this one passes its sums on; -1: none
  std::vector<std::span<const Operand>> members_;  // of this process
  std::barrier<> barrier_;
  bool exchanged_ = false;
  // Used by the first member's thread only.
  std::vector<const void*> addends_;
  std::vector<double> scratch_, sent_, received_, joined_, summed_;
};

class JobChannel : public RankChannel {
 public:
  JobChannel(Communicator& communicator, uint32_t tag, int process) : communicator_(communicator), tag_(tag), process_(process) {}

  void Send(const void* data, int64_t bytes, bool failed) override;
  void Receive(void* data, int64_t bytes, bool failed) override;

 private:
  Communicator& communicator_;
  const uint32_t tag_;
  const int process_;  // of the other side
};

}  // namespace gradloom
