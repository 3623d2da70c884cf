// The interface for sending messages between the processes of a job.
#pragma once

#include <cstdint>
#include <functional>
#include <thread>

namespace gradloom {

class Transport {
 public:
  virtual ~Transport() = default;

  // Returns when the caller may reuse the bytes, without waiting for the other side to receive them. Messages of one tag arrive in order.
  // Thread-safe. Throws Error(kPeer).
  virtual void Send(int process, uint32_t tag, const void* data, int64_t bytes) = 0;
};

// The thread that receives for a transport. Throws Error(kResource).
std::thread StartReceiver(std::function<void()> receive);

}  // namespace gradloom
