#include "runtime/comm/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <thread>

namespace gradloom {
namespace {

int MillisecondsTo(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

Socket Prepared(int fd) {
  const int on = 1;
  // Messages are written whole, and small ones are waited for, so Nagle's algorithm would only delay them.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return Socket(fd);
}

// Whether the last call failed because the process, or the system, may not open another file.
bool NoneFree() { return errno == EMFILE || errno == ENFILE; }

}  // namespace

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text, sizeof text);
  } else if (storage.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, text, sizeof text);
  }
  return text;
}

int SocketAddress::port() const {
  return ntohs(storage.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                                            : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

SocketAddress SocketAddress::WithPort(int port) const {
  SocketAddress other = *this;
  const auto number = htons(static_cast<uint16_t>(port));
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(other.storage).sin_port = number;
  } else {
    reinterpret_cast<sockaddr_in6&>(other.storage).sin6_port = number;
  }
  return other;
}

bool SocketAddress::loopback() const {
  if (storage.ss_family == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in&>(storage).sin_addr.s_addr) >> 24 == 127;
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr);
}

std::vector<SocketAddress> Resolve(const std::string& host, int port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  std::vector<SocketAddress> addresses;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    // A container may have neither /etc/hosts nor a name server.
    return host == "localhost" ? Resolve("127.0.0.1", port) : addresses;
  }
  for (const addrinfo* i = found; i != nullptr; i = i->ai_next) {
    if (i->ai_family != AF_INET && i->ai_family != AF_INET6) continue;
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, i->ai_addr, i->ai_addrlen);
    address.bytes = i->ai_addrlen;
  }
  freeaddrinfo(found);
  return addresses;
}

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

std::optional<Socket> Socket::Listen(const SocketAddress& address) {
  Socket made(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.open()) return std::nullopt;
  const int on = 1, off = 0;
  setsockopt(made.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.storage.ss_family == AF_INET6) setsockopt(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(made.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) return std::nullopt;
  if (listen(made.fd(), SOMAXCONN) != 0) return std::nullopt;
  return made;
}

std::optional<Socket> Socket::Connect(const SocketAddress& address, Deadline deadline, bool* no_descriptor) {
  Socket made(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!made.open() && no_descriptor != nullptr) *no_descriptor = NoneFree();
  if (!made.open()) return std::nullopt;
  if (connect(made.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
    if (errno != EINPROGRESS || !WaitFor(made.fd(), POLLOUT, deadline)) return std::nullopt;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0 || error != 0) return std::nullopt;
  }
  return Prepared(std::exchange(made.fd_, -1));
}

std::optional<Socket> Socket::Accept(Deadline deadline, bool* no_descriptor) const {
  while (WaitFor(fd_, POLLIN, deadline)) {
    if (const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC); fd >= 0) return Prepared(fd);
    const bool none_free = NoneFree();
    if (std::chrono::steady_clock::now() >= deadline) {
      if (none_free && no_descriptor != nullptr) *no_descriptor = true;
      break;
    }
    // The client stays in the queue, so waiting for the listener would end at once, each time.
    if (none_free) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return std::nullopt;
}

bool Socket::Read(void* data, size_t bytes, Deadline deadline) const {
  for (auto* at = static_cast<char*>(data); bytes > 0;) {
    const ssize_t n = recv(fd_, at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || !WaitFor(fd_, POLLIN, deadline)) {
      return false;
    }
  }
  return true;
}

bool Socket::Write(const void* data, size_t bytes, Deadline deadline) const {
  for (const auto* at = static_cast<const char*>(data); bytes > 0;) {
    const ssize_t n = send(fd_, at, bytes, MSG_NOSIGNAL);
    if (n >= 0) {
      at += n;
      bytes -= static_cast<size_t>(n);
    } else if ((errno != EAGAIN && errno != EINTR) || !WaitFor(fd_, POLLOUT, deadline)) {
      return false;
    }
  }
  return true;
}

SocketAddress Socket::local() const {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  getsockname(fd_, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes);
  return address;
}

SocketAddress Socket::peer() const {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  getpeername(fd_, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes);
  return address;
}

std::optional<int> FreePort(const std::string& host) {
  for (const SocketAddress& address : Resolve(host, 0)) {
    if (const auto socket = Socket::Listen(address)) return socket->local().port();
  }
  return std::nullopt;
}

bool WaitFor(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd wanted{fd, events, 0};
    const int ready = poll(&wanted, 1, MillisecondsTo(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace gradloom
