// The interface for sending messages between the processes of a job.
#pragma once

#include <cstdint>

namespace gradloom {

class Transport {
 public:
  virtual ~Transport() = default;

  // Returns when the caller may reuse the bytes, without waiting for the other side to receive them. Messages of one tag arrive in order.
  // Thread-safe. Throws Error(kPeer).
  virtual void Send(int process, uint32_t tag, const void* data, int64_t bytes) = 0;
};

}  // namespace gradloom
