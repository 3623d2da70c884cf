// Messages over TCP: a socket to each other process, and one thread that reads them all.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
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
  // `sockets`: by process, closed for this one. What arrives goes to the mailbox, which outlives this object and says how long
  // is waited for others.
  TcpTransport(std::vector<Socket> sockets, int process, Mailbox& mailbox);
  ~TcpTransport() override;

  // Begins to read. Throws Error(kResource).
  void Start();

  void Send(int process, uint32_t tag, const void* data, int64_t bytes) override;

  // Ends all deliveries and tells all others that the job has failed, and why. Returns soon, whatever they do.
  void Abort(const std::string& what);
  // Ends reading.
  void Stop();
  // Tells all others whether this process has something to do that takes its time.
  void SetBusy(bool busy);
  // Whether another process has said so, and is still heard of.
  bool any_busy() const;
  // Tells all others that no more will come, and waits until they have said so too, or the job fails.
  void Leave();

  // When something was heard of a process last; each says something once a second.
  std::chrono::steady_clock::time_point last_heard(int process) const;

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
  // False at the end of what there is to read now; throws nothing.
  bool ReadSome(int process);
  void TakeHeader(int process);
  void TakeBody(int process);
  // For the reading thread: the connection has ended.
  void Lost(int process, const std::string& how);
  void EndDelivery(Peer& peer, bool whole);
  void Wake() const;
  // Header and data as one message; false where the connection ends or the time.
  bool Write(Peer& peer, const Header& header, const void* data, Deadline deadline);

  const int process_;
  Mailbox& mailbox_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::atomic<bool> closing_{false};
  std::atomic<bool> failed_{false};  // what still comes is read and left
  int wake_ = -1;                    // an eventfd: the thread looks at both
  std::mutex leaving_mutex_;
  std::condition_variable left_changed_;
  int left_ = 0;  // processes that have said that no more will come
  std::thread thread_;
};

}  // namespace gradloom
