// Messages over TCP: a socket to each other process, and one thread that reads all of them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/mailbox.h"
#include "runtime/comm/socket.h"
#include "runtime/comm/transport.h"

namespace gradloom {

class TcpTransport : public Transport {
 public:
  // `sockets`: by process, closed for this one. Messages go to the mailbox, which must outlive this object and defines the timeout for
  // others.
  TcpTransport(std::vector<Socket> sockets, int process, Mailbox& mailbox);
  ~TcpTransport() override;

  // Starts reading. Throws Error(kResource).
  void Start();

  void Send(int process, uint32_t tag, const void* data, int64_t bytes) override;

  // Ends all deliveries and tells all others that the job has failed, and why. Returns soon, whatever they do.
  void Abort(const std::string& what);
  // Stops reading.
  void Stop();
  // Tells all others whether this process is busy.
  void SetBusy(bool busy);
  // Whether another process is busy, and still alive.
  bool any_busy() const;
  // Tells all others that no more messages will come, and waits until they have done the same, or the job fails.
  void Leave();

  // When a process was last heard of; each sends something once a second.
  std::chrono::steady_clock::time_point last_heard(int process) const;
  // The processes for which threads of that one wait, as it has said last, the one that is waited for longest first.
  std::vector<int> awaited_by(int process) const;

 private:
  enum class Kind : uint32_t { kMessage = 0x474C0001, kPing, kAbort, kLeave, kBusy };
  struct Header {
    Kind kind{};
    uint32_t tag = 0;
    int64_t bytes = 0;
  };
  struct Peer;

  void Listen();
  void Ping();
  // False if there is nothing more to read now; does not throw.
  bool ReadSome(int process);
  void ReadHeader(int process);
  void ReadBody(int process);
  // Called by the reading thread: what the process has said in a heartbeat.
  void TakeAwaited(Peer& peer);
  // Called by the reading thread: the connection has ended.
  void Lost(int process, const std::string& how);
  void EndDelivery(Peer& peer, bool whole);
  void Wake() const;
  enum class Written : uint8_t { kAll, kLate, kGone };
  // Writes header and data as one message, with peer.sending held. kLate: the deadline has passed, which each part of a kMessage that
  // leaves renews; kGone: the connection or the job has ended. After a message that was begun and not finished, nothing more is written,
  // since the other side would take it for the rest of that message.
  Written Write(Peer& peer, const Header& header, const void* data, Deadline deadline);

  const int process_;
  Mailbox& mailbox_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> failed_{false};  // further data is read and discarded
  int wake_ = -1;                    // an eventfd, which wakes the thread
  std::mutex leaving_mutex_;
  std::condition_variable left_changed_;
  int left_ = 0;  // number of processes that will send no more
  std::thread thread_;
};

}  // namespace gradloom
