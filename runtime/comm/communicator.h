// A process's side of its job: the other processes, and what is done with them.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/job_topology.h"
#include "runtime/comm/mailbox.h"
#include "runtime/comm/rank_group.h"
#include "runtime/comm/rank_range.h"
#include "runtime/comm/rendezvous.h"
#include "runtime/comm/shared_memory_transport.h"
#include "runtime/comm/tcp_transport.h"

namespace gradloom {

class MpiLibrary;
class MpiTransport;

struct CommunicatorOptions {
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);           // for what another process has to do next
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(300);  // for all processes to be there
  bool shared_memory = true;                                             // between processes of a host that can have it
  bool mpi = false;                                                      // all messages by MPI, which has started the processes
};

// Where several processes do something together, all of them call it, in one order. Whatever fails, fails for all: each gets Error(kPeer)
// with the sentence of whoever found it. Thread-safe but for the calls that all processes make together.
class Communicator {
 public:
  // Tags of what is no group's or channel's.
  static constexpr uint32_t kControlTag = 0, kFetchTag = 1, kScalarsTag = 2, kAddressTag = 3, kSaveTag = 4;

  // Meets the other processes; there is at least one. Where the topology has no address of rank 0, MPI tells it. Errors as MeetProcesses
  // and MeetByMpi.
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
  // What the process of a group's first member gives, to all that drive members; they ascend, and one is here. For groups that MakeGroup
  // has not made.
  std::string ShareInGroup(size_t id, const std::vector<int>& members, size_t ranks, const std::string& given);
  // One of the two ranks is this process's, the other is not.
  std::unique_ptr<RankChannel> MakeChannel(int from, int to, size_t groups, size_t ranks);

  // What each process gives, by process.
  std::vector<std::string> AllGather(const std::string& given);
  // What process 0 has, to all.
  void Broadcast(void* data, int64_t bytes);
  std::string Broadcast(const std::string& given);

  void Send(int process, uint32_t tag, const void* data, int64_t bytes);
  void Receive(int process, uint32_t tag, void* to, int64_t bytes);
  std::vector<std::byte> Take(int process, uint32_t tag);

  // How long threads of this process have waited for messages so far, all together, and what they were told by CountWaited.
  std::chrono::nanoseconds waited() const { return std::chrono::nanoseconds(waited_.load(std::memory_order_relaxed)); }

  // Of others that were waited for without a message: by GPUs.
  void CountWaited(std::chrono::nanoseconds time) { waited_.fetch_add(time.count(), std::memory_order_relaxed); }

  // Of a wait for others that no message ends, again and again; `since`: when it began. `what`: "the collective X of the GPUs". Throws
  // Error(kPeer) where the job has failed, or fails now because it took too long.
  void CheckWait(std::chrono::steady_clock::time_point& since, const std::string& what) { mailbox_->CheckWait(since, what); }

  // How long others are waited for, from now on.
  void set_timeout(std::chrono::nanoseconds timeout) { mailbox_->set_timeout(timeout); }

  // Says to all that this process does something meanwhile that takes its time, as writing a file, and when it has ended: they wait as long
  // as it is alive.
  void SetBusy(bool busy) { tcp_->SetBusy(busy); }

  // What stands between the name of a process that has ended the job and its error.
  static constexpr std::string_view kStopped = " stopped: ";
  // Ends the job for all, because of an error of this process: "rank 1 (host b, pid 7) stopped: ". Nothing where it has failed already.
  void Abort(const std::string& why);
  // Whether this process has ended the job.
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
  bool failed() const { return mailbox_->failed(); }
  // Those that messages go to through shared memory.
  int reached_by_memory() const;
  // "shared memory", "TCP", "MPI (Open MPI v4.1.4)": how messages go.
  std::string transport() const;
  void ThrowIfFailed() const { mailbox_->ThrowIfFailed(); }

  // The end of the job as it should be: returns when all have come to it. No message is sent after it.
  void Leave();

 private:
  Communicator(const JobTopology& topology, const CommunicatorOptions& options, MpiLibrary* mpi);
  // What lies between being made and being of use: it may end the job.
  void Start(const CommunicatorOptions& options);
  std::vector<std::string> Exchange(uint32_t tag, const std::string& given);

  const int process_;
  std::vector<std::string> names_;
  std::atomic<bool> aborted_{false};
  std::atomic<int64_t> waited_{0};  // in nanoseconds
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<TcpTransport> tcp_;
  std::unique_ptr<SharedMemoryTransport> shared_;  // null: none
  MpiLibrary* const mpi_library_;                  // started; null: none
  std::unique_ptr<MpiTransport> mpi_;              // null: none
};

// The process that the others of a job wait for.
struct Straggler {
  int process = 0;
  double share = 0;  // of the time, that all others lose by it
};

// Of processes that have waited for each other so long within `seconds`. All wait for what is under way; one that hardly waits, where the
// others do, is late. Nothing where none stands out by a tenth of the time, or the time is too short to tell.
std::optional<Straggler> FindStraggler(const std::vector<double>& waited_seconds, double seconds);

}  // namespace gradloom
