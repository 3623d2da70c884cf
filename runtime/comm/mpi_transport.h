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

// Starts MPI, once in a process, and learns by it where rank 0 is: returns the topology with an address, where the launcher said none, and
// with a port that is free. `demanded`: a person has asked for MPI. Throws Error(kUnsupported) where MPI cannot be had, Error(kConfig)
// where MPI and the environment disagree about which process this is.
struct MpiMeeting {
  MpiLibrary* mpi = nullptr;
  JobTopology topology;
};
MpiMeeting MeetByMpi(const JobTopology& topology, bool demanded);

// A thread of its own looks for what has come, so that messages go on while others compute; senders push what they send themselves. Who
// is gone, TcpTransport finds.
class MpiTransport : public Transport {
 public:
  // What arrives goes to the mailbox, which outlives this object.
  MpiTransport(MpiLibrary& mpi, int process, int processes, Mailbox& mailbox);
  ~MpiTransport() override;

  // Begins to look. Throws Error(kResource).
  void Start();

  void Send(int process, uint32_t tag, const void* data, int64_t bytes) override;

  // As long as there is one, somebody waits for a message: it is looked for with shorter pauses.
  class Awaiting {
   public:
    // `transport` may be null.
    explicit Awaiting(MpiTransport* transport) : transport_(transport) { Add(1); }
    ~Awaiting() { Add(-1); }
    Awaiting(const Awaiting&) = delete;
    Awaiting& operator=(const Awaiting&) = delete;

   private:
    void Add(int count) {
      if (transport_ != nullptr) transport_->awaited_.fetch_add(count, std::memory_order_relaxed);
    }
    MpiTransport* const transport_;
  };

  // Returns when the others have taken what was sent to them, or the job has failed.
  void Flush();
  // Calls MPI no more, and ends all deliveries and sends, because the job has failed.
  void Fail();
  // Ends looking.
  void Stop();

 private:
  // What comes from one process, one message after the other.
  struct Source {
    std::deque<MpiLibrary::Arrival> waiting;
    bool arriving = false;
    MpiLibrary::Request request;
    Mailbox::Delivery delivery;
  };

  void Listen();
  // Whether there was anything.
  bool Look();
  bool Go(int from, Source& source);
  // With the lock.
  void SendNote(int process, int tag);
  // `f` with MPI to itself; false where the job fails, which an error of MPI makes it.
  template <typename F>
  bool Call(int process, F&& f);

  MpiLibrary& mpi_;
  const int process_, processes_;
  Mailbox& mailbox_;
  std::mutex calling_;  // MPI, and all below
  std::vector<Source> sources_;
  std::vector<MpiLibrary::Request> notes_;  // under way
  std::condition_variable taken_changed_;
  int taken_ = 0;  // processes that have taken all that was sent to them before Flush
  std::atomic<int> awaited_{0};
  std::atomic<bool> closing_{false}, failed_{false};
  std::thread thread_;
};

}  // namespace gradloom
