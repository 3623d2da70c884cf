#include "runtime/comm/shared_memory_transport.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>
#include <utility>

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

// A ring has the larger size unless all rings of a process together would have more than the limit: there is one for each two processes of
// a host, and each fills up with the first messages that pass through it.
constexpr uint64_t kMostRingBytes = 1 << 20, kLeastRingBytes = 32 << 10, kMostBytesOfProcess = 16 << 20;
constexpr int64_t kSmallBytes = 2048;  // a message of up to this size is sent together with its header, so that its reader is woken once
constexpr auto kPollInterval = std::chrono::milliseconds(100);  // interval at which a waiting thread checks whether the job has failed

// A futex shared among processes: std::atomic::wait works only within one process.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen) {
  const timespec limit{0, std::chrono::nanoseconds(kPollInterval).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void FutexWake(std::atomic<uint32_t>& word) { syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

// A counter of events that one side increments and the other waits for.
struct alignas(64) Bell {
  std::atomic<uint32_t> count{0}, waits{0};

  void Ring() {
    count.fetch_add(1);
    if (waits.load() != 0) FutexWake(count);
  }
  // Returns when the bell has rung since `seen` was read, or after a short timeout. Only one thread may wait at a time.
  void WaitSince(uint32_t seen) {
    waits.store(1);
    FutexWait(count, seen);
    waits.store(0);
  }
};

}  // namespace

struct SharedMemoryTransport::Ring {
  // Byte counts so far; each is written by one side only.
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  Bell room;  // rung by the reader
  // ring_bytes_ bytes follow.
  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
};

struct SharedMemoryTransport::Segment {
  int32_t process = 0;
  Bell arrived;  // rung by any process that has written into a ring
};

SharedMemoryTransport::SharedMemoryTransport(int process, int processes, int near, Mailbox& mailbox)
    : process_(process),
      processes_(processes),
      ring_bytes_(
          std::clamp(kMostBytesOfProcess / static_cast<uint64_t>(near) / alignof(Ring) * alignof(Ring), kLeastRingBytes, kMostRingBytes)),
      mailbox_(mailbox),
      peers_(static_cast<size_t>(processes)),
      arrivals_(static_cast<size_t>(processes)) {}

size_t SharedMemoryTransport::SegmentBytes() const {
  return sizeof(Segment) + (sizeof(Ring) + ring_bytes_) * static_cast<size_t>(processes_);
}

SharedMemoryTransport::Ring* SharedMemoryTransport::RingOf(const SharedMemory& memory, int from) const {
  return reinterpret_cast<Ring*>(memory.data() + sizeof(Segment) + (sizeof(Ring) + ring_bytes_) * static_cast<size_t>(from));
}

std::unique_ptr<SharedMemoryTransport> SharedMemoryTransport::Make(int process, int processes, int near, Mailbox& mailbox) {
  std::unique_ptr<SharedMemoryTransport> made(new SharedMemoryTransport(process, processes, near, mailbox));
  made->own_ = SharedMemory::Make("gradloom-messages", made->SegmentBytes());
  if (made->own_ == nullptr) return nullptr;
  // Zeroed memory is an empty ring.
  new (made->own_->data()) Segment{.process = process};
  return made;
}

SharedMemoryTransport::Segment* SharedMemoryTransport::SegmentOf(const SharedMemory& memory) {
  return reinterpret_cast<Segment*>(memory.data());
}

void SharedMemoryTransport::Stop() {
  closing_ = true;
  if (own_ != nullptr) SegmentOf(*own_)->arrived.Ring();
  if (thread_.joinable()) thread_.join();
}

SharedMemoryTransport::~SharedMemoryTransport() { Stop(); }

void SharedMemoryTransport::Open(const std::vector<std::string>& addresses) {
  for (int i = 0; i < processes_; ++i) {
    if (i == process_) continue;
    std::unique_ptr<SharedMemory> opened = SharedMemory::Open(addresses[static_cast<size_t>(i)], SegmentBytes());
    if (opened == nullptr || SegmentOf(*opened)->process != i) continue;
    Peer& peer = peers_[static_cast<size_t>(i)];
    peer.segment = SegmentOf(*opened);
    peer.ring = RingOf(*opened, process_);
    peer.memory = std::move(opened);
  }
}

void SharedMemoryTransport::Start() {
  thread_ = StartReceiver([this] { Listen(); });
}

bool SharedMemoryTransport::Write(Peer& peer, const void* data, int64_t bytes) {
  Ring& ring = *peer.ring;
  const auto* from = static_cast<const std::byte*>(data);
  const Clock::time_point deadline = Clock::now() + mailbox_.timeout();
  while (bytes > 0) {
    const uint32_t seen = ring.room.count.load();
    const uint64_t written = ring.written.load(std::memory_order_relaxed);
    const uint64_t room = ring_bytes_ - (written - ring.read.load(std::memory_order_acquire));
    if (room == 0) {
      if (failed_ || Clock::now() >= deadline) return false;
      ring.room.WaitSince(seen);
      continue;
    }
    const uint64_t at = written % ring_bytes_;
    const auto n = static_cast<size_t>(std::min({room, ring_bytes_ - at, static_cast<uint64_t>(bytes)}));
    std::memcpy(ring.data() + at, from, n);
    ring.written.store(written + n, std::memory_order_release);
    peer.segment->arrived.Ring();
    from += n;
    bytes -= static_cast<int64_t>(n);
  }
  return true;
}

void SharedMemoryTransport::Send(int process, uint32_t tag, const void* data, int64_t bytes) {
  mailbox_.ThrowIfFailed();
  Peer& peer = peers_[static_cast<size_t>(process)];
  const Header header{tag, bytes};
  if (bytes <= kSmallBytes) {
    std::byte message[sizeof header + kSmallBytes];
    std::memcpy(message, &header, sizeof header);
    if (bytes > 0) std::memcpy(message + sizeof header, data, static_cast<size_t>(bytes));
    const std::lock_guard lock(*peer.sending);
    if (Write(peer, message, static_cast<int64_t>(sizeof header) + bytes)) return;
  } else {
    const std::lock_guard lock(*peer.sending);
    if (Write(peer, &header, sizeof header) && Write(peer, data, bytes)) return;
  }
  mailbox_.FailSilentProcess(process);
  mailbox_.ThrowIfFailed();
}

void SharedMemoryTransport::Fail() {
  failed_ = true;
  SegmentOf(*own_)->arrived.Ring();
}

void SharedMemoryTransport::Listen() {
  Bell& arrived = SegmentOf(*own_)->arrived;
  while (!closing_ && !failed_) {
    const uint32_t seen = arrived.count.load();
    bool any = false;
    for (int i = 0; i < processes_; ++i) {
      if (i != process_) any |= ReadSome(i);
    }
    if (!any) arrived.WaitSince(seen);
  }
  for (Arrival& arrival : arrivals_) {
    if (arrival.in_body) mailbox_.End(arrival.delivery, false);
    arrival.in_body = false;
  }
}

bool SharedMemoryTransport::ReadSome(int from) {
  Ring& ring = *RingOf(*own_, from);
  Arrival& arrival = arrivals_[static_cast<size_t>(from)];
  const uint64_t read = ring.read.load(std::memory_order_relaxed);
  const uint64_t there = ring.written.load(std::memory_order_acquire) - read;
  if (there == 0) return false;
  const uint64_t at = read % ring_bytes_;
  std::byte* const to = arrival.in_body ? arrival.delivery.to : reinterpret_cast<std::byte*>(&arrival.header);
  const int64_t wanted = arrival.in_body ? arrival.header.bytes : static_cast<int64_t>(sizeof(Header));
  const auto n = static_cast<int64_t>(std::min({there, ring_bytes_ - at, static_cast<uint64_t>(wanted - arrival.read)}));
  std::memcpy(to + arrival.read, ring.data() + at, static_cast<size_t>(n));
  arrival.read += n;
  if (arrival.read == wanted && !ReadPart(from, arrival)) return false;
  // Only after delivery: Flush treats bytes that were read as delivered.
  ring.read.store(read + static_cast<uint64_t>(n), std::memory_order_release);
  ring.room.Ring();
  return true;
}

bool SharedMemoryTransport::ReadPart(int from, Arrival& arrival) {
  arrival.read = 0;
  if (arrival.in_body) {
    arrival.in_body = false;
    mailbox_.End(arrival.delivery, true);
    return true;
  }
  if (arrival.header.bytes < 0) {
    mailbox_.FailProcess(from, "sent an invalid message");
    return false;
  }
  arrival.delivery = mailbox_.Begin(from, arrival.header.tag, arrival.header.bytes);
  arrival.in_body = arrival.header.bytes > 0;
  if (!arrival.in_body) mailbox_.End(arrival.delivery, true);
  return true;
}

void SharedMemoryTransport::Flush() {
  const Clock::time_point deadline = Clock::now() + mailbox_.timeout();
  for (Peer& peer : peers_) {
    while (peer.ring != nullptr && !failed_ && Clock::now() < deadline) {
      const uint32_t seen = peer.ring->room.count.load();
      if (peer.ring->read.load(std::memory_order_acquire) == peer.ring->written.load(std::memory_order_relaxed)) break;
      const std::lock_guard lock(*peer.sending);
      peer.ring->room.WaitSince(seen);
    }
  }
}

}  // namespace gradloom
