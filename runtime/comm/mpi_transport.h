// Messages between processes that an MPI launcher has started.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/job_topology.h"
#include "runtime/comm/mailbox.h"
#include "runtime/comm/mpi_library.h"
#include "runtime/comm/transport.h"

namespace gradloom {

// Starts MPI, once per process, and finds rank 0 with it. Returns the topology with an address, if the launcher gave none, and with a free
// port. `demanded`: the user has asked for MPI. Throws Error(kUnsupported) if MPI is not available, Error(kConfig) if MPI and the
// environment disagree about the rank of this process.
struct MpiBootstrap {
  MpiLibrary* mpi = nullptr;
  JobTopology topology;
};
MpiBootstrap BootstrapMpi(const JobTopology& topology, bool demanded);

// A thread polls for messages, so that they progress while others compute; senders progress their own. TcpTransport detects lost processes.
class MpiTransport : public Transport {
 public:
  // Messages go to the mailbox, which must outlive this object.
  MpiTransport(MpiLibrary& mpi, int process, int processes, Mailbox& mailbox);
  ~MpiTransport() override;

  // Starts polling. Throws Error(kResource).
  void Start();

  void Send(int process, uint32_t tag, const void* data, int64_t bytes) override;

  // While one exists, some thread waits for a message, and polling pauses are shorter.
  class Awaiting {
   public:
    // `transport` may be null.
    explicit Awaiting(MpiTransport* transport) : transport_(transport) { Add(1); }
    ~Awaiting() { Add(-1); }
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

   private:
    void Add(int count) {
      if (transport_ != nullptr) transport_->waiters_.fetch_add(count, std::memory_order_relaxed);
    }
    MpiTransport* const transport_;
  };

  // Waits until the others have taken what was sent to them, or the job has failed.
  void Flush();
  // Stops calling MPI, and ends all deliveries and sends, because the job has failed.
  void Fail();
  // Stops polling.
  void Stop();

 private:
  // The messages from one process, one after the other.
  struct Source {
    std::deque<MpiLibrary::Arrival> waiting;
    bool arriving = false;
    MpiLibrary::Request request;
    Mailbox::Delivery delivery;
  };

  void Listen();
  // Whether there was anything to do.
  bool Poll();
  bool Progress(int from, Source& source);
  // The caller must hold the lock.
  void SendControl(int process, int tag);
  // Calls `f` with exclusive use of MPI; false if the job fails. An error of MPI fails the job.
  template <typename F>
  bool Call(int process, F&& f);

  MpiLibrary& mpi_;
  const int process_, processes_;
  Mailbox& mailbox_;
  std::mutex calling_;  // protects MPI, and everything below
  std::vector<Source> sources_;
  std::vector<MpiLibrary::Request> control_sends_;  // sends under way
  std::condition_variable flushed_changed_;
  int flushed_ = 0;  // number of processes that have taken everything sent to them before Flush
  std::atomic<int> waiters_{0};
  std::atomic<bool> closing_{false}, failed_{false};
  std::thread thread_;
};

}  // namespace gradloom
