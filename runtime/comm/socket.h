// TCP sockets with time limits.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradloom {

using Deadline = std::chrono::steady_clock::time_point;

// IPv4 or IPv6, with a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  std::string host() const;  // as a number
  int port() const;
  SocketAddress WithPort(int port) const;
  bool loopback() const;
};

// The current addresses of a host name; empty if there are none. `port`: 0 to 65535.
std::vector<SocketAddress> Resolve(const std::string& host, int port);

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  // nullopt if it cannot be bound.
  static std::optional<Socket> Listen(const SocketAddress& address);
  // nullopt if nobody accepts the connection by then, or if the process may not open another file, which sets *no_descriptor.
  static std::optional<Socket> Connect(const SocketAddress& address, Deadline deadline, bool* no_descriptor = nullptr);
  // nullopt if nobody connects by then, or if somebody does but the process may not open another file, which sets *no_descriptor.
  std::optional<Socket> Accept(Deadline deadline, bool* no_descriptor = nullptr) const;

  // Transfers all bytes; false if the connection ends first, or the deadline passes.
  bool Read(void* data, size_t bytes, Deadline deadline) const;
  bool Write(const void* data, size_t bytes, Deadline deadline) const;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  SocketAddress local() const;
  SocketAddress peer() const;

 private:
  int fd_ = -1;  // non-blocking
};

// A port of this address of the host at which nobody listens now; nullopt if there is none.
std::optional<int> FreePort(const std::string& host);

// Whether `events` of poll(2) occur by the deadline.
bool WaitFor(int fd, short events, Deadline deadline);

}  // namespace gradloom
