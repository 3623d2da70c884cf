// A process's side of its job: the other processes, and what is done with them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/job_topology.h"
#include "runtime/comm/mailbox.h"
#include "runtime/comm/rank_group.h"
#include "runtime/comm/rank_range.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/shared_memory_transport.h"
#include "runtime/comm/tcp_transport.h"

namespace gradloom {

struct CommunicatorOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);           // for what another process has to do next
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(300);  // for all processes to be there
  bool shared_memory = true;                                             // between processes of a host that can have it
};

// Where several processes do something together, all of them call it, in one order. Whatever fails, fails for all: each gets Error(kPeer)
// with the sentence of whoever found it. Thread-safe but for the calls that all processes make together.
class Communicator {
 public:
  // Tags of what is no group's or channel's.
  static constexpr uint32_t kControlTag = 0, kFetchTag = 1, kScalarsTag = 2, kAddressTag = 3;

  // Meets the other processes; there is at least one. Errors as MeetProcesses.
  static std::shared_ptr<Communicator> Connect(const JobTopology& topology, const CommunicatorOptions& options = {});
  ~Communicator();

  int process() const { return process_; }
  int processes() const { return static_cast<int>(names_.size()); }
  // "rank 2 (host b, pid 4711)": the ranks of messages are those of processes.
  const std::string& name(int process) const { return names_[static_cast<size_t>(process)]; }

  // Those of a plan's ranks that a process drives: as even as can be, in the order of processes.
  RankRange RanksOf(int process, size_t ranks) const;
  RankRange OwnRanks(size_t ranks) const { return RanksOf(process_, ranks); }
  int ProcessOf(int rank, size_t ranks) const;

  // Group `id` of a plan with `ranks` ranks, of which this process drives at least one of the group's; id counts the plan's groups.
  std::unique_ptr<RankGroup> MakeGroup(size_t id, const std::vector<int>& members, size_t groups, size_t ranks);
  // One of the two ranks is this process's, the other is not.
  std::unique_ptr<RankChannel> MakeChannel(int from, int to, size_t groups, size_t ranks);

  // What each process gives, by process.
  std::vector<std::string> AllGather(const std::string& given);
  // What process 0 has, to all.
  void Broadcast(void* data, int64_t bytes);
  std::string Broadcast(const std::string& given);

  void Send(int process, uint32_t tag, const void* data, int64_t bytes);
  void Receive(int process, uint32_t tag, void* to, int64_t bytes);
  std::vector<std::byte> Take(int process, uint32_t tag) { return mailbox_->Take(process, tag); }

  // How long others are waited for, from now on.
  void set_timeout(std::chrono::nanoseconds timeout) { mailbox_->set_timeout(timeout); }

  // Says to all that this process does something meanwhile that takes its time, as writing a file, and when it has ended: they wait as long
  // as it is alive.
  void SetBusy(bool busy) { tcp_->SetBusy(busy); }

  // Ends the job for all, because of an error of this process: "rank 1 (host b, pid 7) stopped: ". Nothing where it has failed already.
  void Abort(const std::string& why);
  // Whether this process has ended the job.
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
  bool failed() const { return mailbox_->failed(); }
  // Those that messages go to through shared memory.
  int reached_by_memory() const;
  void ThrowIfFailed() const { mailbox_->ThrowIfFailed(); }

  // The end of the job as it should be: returns when all have come to it. No message is sent after it.
  void Leave();

 private:
  Communicator(const JobTopology& topology, const CommunicatorOptions& options);
  // What lies between being made and being of use: it may end the job.
  void Start(const CommunicatorOptions& options);
  std::vector<std::string> Exchange(uint32_t tag, const std::string& given);

  const int process_;
  std::vector<std::string> names_;
  std::atomic<bool> aborted_{false};
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<TcpTransport> tcp_;
  std::unique_ptr<SharedMemoryTransport> shared_;  // null: none
};

}  // namespace gradloom
