#include "runtime/comm/tcp_transport.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPingEvery = std::chrono::seconds(1);
constexpr auto kFinalSendTimeout = std::chrono::seconds(2);       // time limit of messages to processes that may no longer read
constexpr auto kFinishTimeout = std::chrono::milliseconds(1500);  // time limit of the rest of a message once the job has failed
constexpr auto kPollInterval = std::chrono::milliseconds(100);    // interval at which a blocked send checks whether the job has failed
constexpr int64_t kMaxTextBytes = 4096;                           // limit of the text of an abort

}  // namespace

struct TcpTransport::Peer {
  Socket socket;
  std::mutex sending;
  bool cut = false;  // a message was begun, but not finished; guarded by `sending`
  std::atomic<Clock::rep> heard{0};
  std::atomic<bool> busy{false};
  std::mutex awaits_mutex;
  std::vector<int> awaits;  // the processes that it waits for
  // Used only by the reading thread.
  Header header;
  size_t read = 0;  // bytes read so far of the header, then of the body
  bool in_body = false, gone = false, left = false;
  Mailbox::Delivery delivery;
  std::string text;  // the text of an abort, or what a heartbeat says
};

TcpTransport::TcpTransport(std::vector<Socket> sockets, int process, Mailbox& mailbox)
    : process_(process), mailbox_(mailbox), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Without it a failure would not end deliveries, and the thread that waits for one would never know.
  if (wake_ < 0)
    throw Error(ErrorCode::kResource, "cannot create an event for connections: " + std::generic_category().message(errno), "",
                "raise the limit of open files:  ulimit -n 65536");
  for (Socket& socket : sockets) {
    Peer& peer = *peers_.emplace_back(std::make_unique<Peer>());
    peer.socket = std::move(socket);
    peer.heard = Clock::now().time_since_epoch().count();
    // A host that loses its network does not close its connections.
    const auto milliseconds = static_cast<unsigned>(std::chrono::duration_cast<std::chrono::milliseconds>(mailbox.timeout()).count());
    if (peer.socket.open()) setsockopt(peer.socket.fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  }
}

void TcpTransport::Start() {
  thread_ = StartReceiver([this] { Listen(); });
}

void TcpTransport::Stop() {
  closing_ = true;
  Wake();
  if (thread_.joinable()) thread_.join();
}

TcpTransport::~TcpTransport() {
  Stop();
  close(wake_);
}

void TcpTransport::Wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = write(wake_, &one, sizeof one);
}

std::chrono::steady_clock::time_point TcpTransport::last_heard(int process) const {
  return Clock::time_point(Clock::duration(peers_[static_cast<size_t>(process)]->heard.load(std::memory_order_relaxed)));
}

std::vector<int> TcpTransport::awaited_by(int process) const {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  const std::lock_guard lock(peer.awaits_mutex);
  return peer.awaits;
}

TcpTransport::Written TcpTransport::Write(Peer& peer, const Header& header, const void* data, Deadline deadline) {
  if (peer.cut) return Written::kGone;
  iovec parts[] = {{const_cast<Header*>(&header), sizeof header}, {const_cast<void*>(data), static_cast<size_t>(header.bytes)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = header.bytes > 0 ? 2 : 1;
  bool finishing = false;
  const auto give_up = [&](Written how) {
    peer.cut = parts[0].iov_len < sizeof header;
    return how;
  };
  while (message.msg_iovlen > 0) {
    const ssize_t sent = sendmsg(peer.socket.fd(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      const bool full = errno == EAGAIN;
      if (!full && errno != EINTR) return give_up(Written::kGone);
      if (failed_ && header.kind == Kind::kMessage && !finishing) {
        // A message that was begun is finished if it can be, so that the reason of the failure can follow it.
        if (parts[0].iov_len == sizeof header) return Written::kGone;
        finishing = true;
        deadline = std::min(deadline, Clock::now() + kFinishTimeout);
      }
      if (Clock::now() >= deadline) return give_up(finishing ? Written::kGone : Written::kLate);
      if (full) WaitFor(peer.socket.fd(), POLLOUT, std::min(deadline, Clock::now() + kPollInterval));
      continue;
    }
    if (header.kind == Kind::kMessage && !finishing) deadline = Clock::now() + mailbox_.timeout();
    for (auto left = static_cast<size_t>(sent); message.msg_iovlen > 0;) {
      iovec& part = *message.msg_iov;
      const size_t n = std::min(left, part.iov_len);
      part.iov_base = static_cast<char*>(part.iov_base) + n;
      part.iov_len -= n;
      left -= n;
      if (part.iov_len > 0) break;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
  }
  return Written::kAll;
}

void TcpTransport::Send(int process, uint32_t tag, const void* data, int64_t bytes) {
  mailbox_.ThrowIfFailed();
  Peer& peer = *peers_[static_cast<size_t>(process)];
  Written written;
  {
    const std::lock_guard lock(peer.sending);
    written = Write(peer, {Kind::kMessage, tag, bytes}, data, Clock::now() + mailbox_.timeout());
  }
  if (written == Written::kAll) return;
  if (written == Written::kLate) {
    mailbox_.FailSilentProcess(process);
  } else {
    mailbox_.FailProcess(process, "is gone: its connection was closed");
  }
  mailbox_.ThrowIfFailed();
}

void TcpTransport::Abort(const std::string& what) {
  failed_ = true;
  Wake();
  const std::string text = what.substr(0, kMaxTextBytes);
  for (const auto& peer : peers_) {
    if (!peer->socket.open()) continue;
    // A thread may hold this lock while it is blocked in a send to a process that does not read.
    std::unique_lock lock(peer->sending, std::defer_lock);
    for (const Deadline end = Clock::now() + kFinalSendTimeout; !lock.try_lock() && Clock::now() < end;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (lock) Write(*peer, {Kind::kAbort, 0, static_cast<int64_t>(text.size())}, text.data(), Clock::now() + kFinalSendTimeout);
    // If the socket were closed now, unread bytes on this side would reset the connection and discard the message. So the thread reads
    // until the end of the stream.
    shutdown(peer->socket.fd(), SHUT_WR);
  }
}

void TcpTransport::SetBusy(bool busy) {
  for (const auto& peer : peers_) {
    if (!peer->socket.open()) continue;
    const std::lock_guard lock(peer->sending);
    Write(*peer, {Kind::kBusy, busy ? 1U : 0U, 0}, nullptr, Clock::now() + mailbox_.timeout());
  }
}

bool TcpTransport::any_busy() const {
  const Clock::time_point since = Clock::now() - mailbox_.timeout();
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]->busy && last_heard(static_cast<int>(i)) >= since) return true;
  }
  return false;
}

void TcpTransport::Leave() {
  int others = 0;
  for (const auto& peer : peers_) {
    if (!peer->socket.open()) continue;
    ++others;
    const std::lock_guard lock(peer->sending);
    Write(*peer, {Kind::kLeave, 0, 0}, nullptr, Clock::now() + kFinalSendTimeout);
    shutdown(peer->socket.fd(), SHUT_WR);
  }
  std::unique_lock lock(leaving_mutex_);
  left_changed_.wait_for(lock, mailbox_.timeout(), [&] { return left_ == others || mailbox_.failed(); });
}

void TcpTransport::Listen() {
  Clock::time_point ping = Clock::now() + kPingEvery;
  while (!closing_) {
    std::vector<pollfd> watched{{wake_, POLLIN, 0}};
    std::vector<int> processes{-1};
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i]->socket.open() || peers_[i]->gone) continue;
      watched.push_back({peers_[i]->socket.fd(), POLLIN, 0});
      processes.push_back(static_cast<int>(i));
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(ping - Clock::now()).count();
    poll(watched.data(), watched.size(), static_cast<int>(std::max<int64_t>(left, 0)));
    if (watched[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t n = read(wake_, &count, sizeof count);
      if (failed_) {
        for (const auto& peer : peers_) EndDelivery(*peer, false);
        { const std::lock_guard lock(leaving_mutex_); }
        left_changed_.notify_all();
      }
    }
    if (Clock::now() >= ping) {
      if (!failed_) Ping();
      ping = Clock::now() + kPingEvery;
    }
    for (size_t i = 1; i < watched.size(); ++i) {
      // Limits the reads per process, so that no process starves another.
      for (int reads = 0; watched[i].revents != 0 && reads < 16 && !closing_ && ReadSome(processes[i]); ++reads) {
      }
    }
  }
  for (const auto& peer : peers_) EndDelivery(*peer, false);
}

void TcpTransport::EndDelivery(Peer& peer, bool whole) {
  if (peer.in_body && peer.header.kind == Kind::kMessage) mailbox_.End(peer.delivery, whole);
  peer.in_body = false;
}

// Sends a heartbeat, which says whom this process waits for. Skipped if a send is in progress, which serves the same purpose.
void TcpTransport::Ping() {
  const std::vector<int> awaited = mailbox_.awaited();
  const std::vector<int32_t> said(awaited.begin(), awaited.end());
  const Header header{Kind::kPing, 0, static_cast<int64_t>(said.size() * sizeof(int32_t))};
  for (const auto& peer : peers_) {
    std::unique_lock lock(peer->sending, std::try_to_lock);
    if (!lock || !peer->socket.open() || peer->gone) continue;
    // It is written whole or not at all: if there is no room for it, other bytes are in flight.
    if (WaitFor(peer->socket.fd(), POLLOUT, Clock::now())) Write(*peer, header, said.data(), Clock::now() + kPingEvery);
  }
}

bool TcpTransport::ReadSome(int process) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  std::byte* to = reinterpret_cast<std::byte*>(&peer.header);
  size_t wanted = sizeof(Header);
  std::byte unwanted[4096];
  if (failed_ && !peer.in_body) {
    to = unwanted;
    wanted = sizeof unwanted;
    peer.read = 0;
  } else if (peer.in_body) {
    to = peer.header.kind == Kind::kMessage ? peer.delivery.to : reinterpret_cast<std::byte*>(peer.text.data());
    wanted = static_cast<size_t>(peer.header.bytes);
  }
  const ssize_t n = recv(peer.socket.fd(), to + peer.read, wanted - peer.read, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) {
    Lost(process, "is gone: its connection was closed");
    return false;
  }
  peer.heard.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  if (to == unwanted) return true;
  peer.read += static_cast<size_t>(n);
  if (peer.read < wanted) {
    if (peer.in_body && peer.header.kind == Kind::kMessage) mailbox_.Progress(process);
    return true;
  }
  peer.read = 0;
  peer.in_body ? ReadBody(process) : ReadHeader(process);
  return !peer.gone;
}

void TcpTransport::ReadHeader(int process) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  const int64_t bytes = peer.header.bytes;
  switch (peer.header.kind) {
    case Kind::kMessage:
      if (bytes < 0) break;
      peer.delivery = mailbox_.Begin(process, peer.header.tag, bytes);
      peer.in_body = true;
      if (bytes == 0) ReadBody(process);
      return;
    case Kind::kAbort:
      if (bytes <= 0 || bytes > kMaxTextBytes) break;
      peer.text.resize(static_cast<size_t>(bytes));
      peer.in_body = true;
      return;
    case Kind::kPing:
      if (bytes < 0 || bytes > static_cast<int64_t>(peers_.size() * sizeof(int32_t)) || bytes % sizeof(int32_t) != 0) break;
      peer.text.resize(static_cast<size_t>(bytes));
      peer.in_body = bytes > 0;
      if (!peer.in_body) TakeAwaited(peer);
      return;
    case Kind::kBusy: peer.busy = peer.header.tag != 0; return;
    case Kind::kLeave: {
      peer.left = true;
      mailbox_.Leave(process);
      const std::lock_guard lock(leaving_mutex_);
      ++left_;
      left_changed_.notify_all();
      return;
    }
  }
  Lost(process, "sent an invalid message");
}

void TcpTransport::ReadBody(int process) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  EndDelivery(peer, true);
  if (peer.header.kind == Kind::kPing) TakeAwaited(peer);
  if (peer.header.kind == Kind::kAbort) mailbox_.Fail(Escaped(peer.text, static_cast<size_t>(kMaxTextBytes)));
}

void TcpTransport::TakeAwaited(Peer& peer) {
  std::vector<int> awaits;
  for (size_t at = 0; at < peer.text.size(); at += sizeof(int32_t)) {
    int32_t said;
    std::memcpy(&said, peer.text.data() + at, sizeof said);
    if (said >= 0 && said < static_cast<int>(peers_.size())) awaits.push_back(said);
  }
  const std::lock_guard lock(peer.awaits_mutex);
  peer.awaits = std::move(awaits);
}

void TcpTransport::Lost(int process, const std::string& how) {
  Peer& peer = *peers_[static_cast<size_t>(process)];
  EndDelivery(peer, false);
  peer.gone = true;
  if (!peer.left) mailbox_.FailProcess(process, how);
}

}  // namespace gradloom
