// Messages between processes of one host through shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/mailbox.h"
#include "runtime/comm/shared_memory.h"
#include "runtime/comm/transport.h"

namespace gradloom {

// Each process has memory with a ring for each other process, which that process writes and a thread of this one reads. TcpTransport
// detects lost processes.
class SharedMemoryTransport : public Transport {
 public:
  // Null if the system has no such memory. Messages go to the mailbox, which must outlive this object. `near`: how many of the processes
  // have this one's HostIdentity, including this one; the memory of a process is divided among them. Processes that disagree do not reach
  // each other.
  static std::unique_ptr<SharedMemoryTransport> Make(int process, int processes, int near, Mailbox& mailbox);
  ~SharedMemoryTransport() override;

  // The address, one line, with which other processes open the memory.
  const std::string& address() const { return own_->address(); }
  // Maps the memory of other processes, by process, as far as they are on this host and accessible.
  void Open(const std::vector<std::string>& addresses);
  bool reaches(int process) const { return peers_[static_cast<size_t>(process)].ring != nullptr; }
  // Starts reading. Throws Error(kResource).
  void Start();

  void Send(int process, uint32_t tag, const void* data, int64_t bytes) override;

  // Waits until the others have taken what was sent to them, or the job has failed.
  void Flush();
  // Ends all deliveries and sends, because the job has failed.
  void Fail();
  // Stops reading.
  void Stop();

 private:
  struct Segment;
  struct Ring;
  struct Header {
    uint32_t tag = 0;
    int64_t bytes = 0;
  };
  // The other side of a ring that this process writes.
  struct Peer {
    std::unique_ptr<SharedMemory> memory;
    Segment* segment = nullptr;
    Ring* ring = nullptr;
    std::unique_ptr<std::mutex> sending = std::make_unique<std::mutex>();
  };
  // The progress in reading one of this process's rings.
  struct Arrival {
    Header header;
    int64_t read = 0;  // of the header, then of the body
    bool in_body = false;
    Mailbox::Delivery delivery;
  };

  SharedMemoryTransport(int process, int processes, int near, Mailbox& mailbox);
  // The bytes of a process's memory, with a ring for each process.
  size_t SegmentBytes() const;
  static Segment* SegmentOf(const SharedMemory& memory);
  Ring* RingOf(const SharedMemory& memory, int from) const;

  // False if the job has failed, or nothing is taken in time.
  bool Write(Peer& peer, const void* data, int64_t bytes);
  void Listen();
  // Whether there was anything to read.
  bool ReadSome(int from);
  // Reads a whole header or body; false if it is incomplete.
  bool ReadPart(int from, Arrival& arrival);

  const int process_, processes_;
  const uint64_t ring_bytes_;  // a multiple of a cache line
  Mailbox& mailbox_;
  std::unique_ptr<SharedMemory> own_;
  std::vector<Peer> peers_;
  std::vector<Arrival> arrivals_;
  std::atomic<bool> closing_{false}, failed_{false};
  std::thread thread_;
};

}  // namespace gradloom
