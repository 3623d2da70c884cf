// A process's side of its job: communication with the other processes.
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
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);           // for the next action of another process
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(300);  // for all processes to connect
  bool shared_memory = true;                                             // use it between processes of a host, where possible
  bool mpi = false;                                                      // send all messages by MPI, which has started the processes
};

// Functions that several processes do together must be called by all of them, in one order. A failure is a failure of all: each process
// gets Error(kPeer) with the message of the process that found it. Thread-safe, except for the functions that all processes call together.
class Communicator {
 public:
  // Tags that belong to no group or channel.
  static constexpr uint32_t kControlTag = 0, kFetchTag = 1, kScalarsTag = 2, kAddressTag = 3, kSaveTag = 4;

  // Connects to the other processes, of which there is at least one. If the topology has no address of rank 0, MPI provides it. Throws like
  // ConnectProcesses and BootstrapMpi.
  static std::shared_ptr<Communicator> Connect(const JobTopology& topology, const CommunicatorOptions& options = {});
  ~Communicator();

  int process() const { return process_; }
  int processes() const { return static_cast<int>(names_.size()); }
  // "rank 2 (host b, pid 4711)": ranks in messages are those of processes.
  const std::string& name(int process) const { return names_[static_cast<size_t>(process)]; }

  // The ranks of a plan that a process runs: divided as evenly as possible, in the order of processes.
  RankRange RanksOf(int process, size_t ranks) const;
  RankRange OwnRanks(size_t ranks) const { return RanksOf(process_, ranks); }
  int ProcessOf(int rank, size_t ranks) const;

  // Group `id` of a plan with `ranks` ranks; this process must run at least one of its members. `id` is the index among the plan's groups.
  std::unique_ptr<RankGroup> MakeGroup(size_t id, const std::vector<int>& members, size_t groups, size_t ranks);
  // Sends what the process of a group's first member gives to all processes that run members. `members` ascend, and one must be here. For
  // groups that MakeGroup has not made.
  std::string ShareInGroup(size_t id, const std::vector<int>& members, size_t ranks, const std::string& given);
  // A channel between two ranks, exactly one of which is this process's.
  std::unique_ptr<RankChannel> MakeChannel(int from, int to, size_t groups, size_t ranks);

  // Returns what each process gives, by process.
  std::vector<std::string> AllGather(const std::string& given);
  // Sends process 0's data to all.
  void Broadcast(void* data, int64_t bytes);
  std::string Broadcast(const std::string& given);

  void Send(int process, uint32_t tag, const void* data, int64_t bytes);
  void Receive(int process, uint32_t tag, void* to, int64_t bytes);
  std::vector<std::byte> ReceiveAny(int process, uint32_t tag);

  // The total time that threads of this process have waited for messages, and that CountWaited has reported.
  std::chrono::nanoseconds waited() const { return std::chrono::nanoseconds(waited_.load(std::memory_order_relaxed)); }

  // Adds time spent waiting for others without a message: by GPUs.
  void CountWaited(std::chrono::nanoseconds time) { waited_.fetch_add(time.count(), std::memory_order_relaxed); }

  // Called repeatedly during a wait for others that no message ends. `since`: when it began; `what`: "the collective X of the GPUs". Throws
  // Error(kPeer) if the job has failed, or fails now because the wait took too long.
  void CheckWait(std::chrono::steady_clock::time_point& since, const std::string& what) { mailbox_->CheckWait(since, what); }

  // Sets the timeout for other processes, from now on.
  void set_timeout(std::chrono::nanoseconds timeout) { mailbox_->set_timeout(timeout); }

  // Tells all processes that this one is busy, for example writing a file, and when it is done: meanwhile they wait for it as long as it is
  // alive.
  void SetBusy(bool busy) { tcp_->SetBusy(busy); }

  // The text between the name of a process that has ended the job and its error.
  static constexpr std::string_view kStopped = " stopped: ";
  // Ends the job for all, because of an error of this process: "rank 1 (host b, pid 7) stopped: ". Does nothing if the job has failed
  // already.
  void Abort(const std::string& why);
  // Whether this process has ended the job.
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
  bool failed() const { return mailbox_->failed(); }
  // The number of processes that are reached through shared memory.
  int reached_by_memory() const;
  // The transport: "shared memory", "TCP", "MPI (Open MPI v4.1.4)".
  std::string transport() const;
  void ThrowIfFailed() const { mailbox_->ThrowIfFailed(); }

  // The regular end of the job: waits until all processes have called it. No message may be sent afterwards.
  void Leave();

 private:
  Communicator(const JobTopology& topology, const CommunicatorOptions& options, MpiLibrary* mpi);
  // The second part of construction, which may already end the job.
  void Start(const CommunicatorOptions& options);
  std::vector<std::string> Exchange(uint32_t tag, const std::string& given);
  // Who is late if this process waits for that one in vain; -1: for whom is unknown.
  Mailbox::Late FindLate(int process) const;

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

// A process for which the others of a job wait.
struct Straggler {
  int process = 0;
  double share = 0;  // share of the time that all others lose by it
};

// Finds a straggler among processes that have waited this long for others within `seconds`: one that hardly waits where the others do.
// nullopt if none differs by a tenth of the time, or the time is too short.
std::optional<Straggler> FindStraggler(const std::vector<double>& waited_seconds, double seconds);

}  // namespace gradloom
