// Receives messages of other processes for the threads that wait for them.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gradloom {

// Messages of one tag from one process arrive in the order in which they were sent. Thread-safe.
class Mailbox {
 public:
  using Clock = std::chrono::steady_clock;

  // A message that is arriving; its bytes go to `to`.
  struct Delivery {
    std::byte* to = nullptr;
    int64_t bytes = 0;
    int from = 0;
    uint32_t tag = 0;
    bool posted = false;  // directly to the memory of a waiting thread
  };

  // Who makes others wait.
  struct Late {
    int process = -1;  // -1: none is known
    // Then, if not empty: each of these processes waits for the next one, and the last one for the first.
    std::vector<int> circle = {};
  };

  struct Options {
    std::vector<std::string> names;      // of the processes, for error messages
    std::chrono::nanoseconds timeout{};  // initial timeout for a message
    // Who seems to be late if a process is waited for in vain, since that one may itself wait for another. For -1, if it is unknown who is
    // waited for: the process that is not heard of.
    std::function<Late(int)> suspect;
    // Whether some process is busy (Communicator::SetBusy), which excuses all waits.
    std::function<bool()> any_busy;
    // Called once, at the first failure, without a lock held, on the thread that finds it; transports then end all deliveries.
    std::function<void(const std::string&)> on_failure;
  };

  explicit Mailbox(Options options);

  std::chrono::nanoseconds timeout() const { return std::chrono::nanoseconds(timeout_.load(std::memory_order_relaxed)); }
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_.store(timeout.count(), std::memory_order_relaxed); }

  // For transports: a message begins to arrive, and has arrived whole or not.
  Delivery Begin(int from, uint32_t tag, int64_t bytes);
  void End(const Delivery& delivery, bool whole);
  // A part of a message has arrived. The timeout is for silence: while data flows from a process, nobody who waits for it gives up.
  void Progress(int from);
  // A process has ended regularly and will send nothing more.
  void Leave(int from);

  // Waits for the next message, which must have this number of bytes. Throws Error(kPeer) if the job has failed, or fails it if nothing
  // arrives in time.
  void Receive(int from, uint32_t tag, void* to, int64_t bytes);
  // Waits for the next message, of any size.
  std::vector<std::byte> ReceiveAny(int from, uint32_t tag);
  // For a wait since `since` that no message ends: throws Error(kPeer) if the job has failed, and fails the job if the wait exceeds the
  // timeout. Sets `since` to now if a process is busy.
  void CheckWait(Clock::time_point& since, const std::string& what);

  // The first failure is reported to all. `what` is a sentence without its period.
  void Fail(const std::string& what);
  void FailProcess(int process, const std::string& how);  // "rank 2 (host b, pid 7) " and how
  void FailSilentProcess(int process);                    // it has sent nothing, or received nothing, within the timeout
  bool failed() const;
  // The processes for which threads wait now, the one that is waited for longest first.
  std::vector<int> awaited() const;
  // Throws Error(kPeer) if the job has failed.
  void ThrowIfFailed() const;

 private:
  struct Message {
    std::unique_ptr<std::byte[]> data;
    int64_t bytes = 0;
    bool whole = false;
  };
  struct Post {
    enum class State : uint8_t { kNone, kWaiting, kFilling, kDone };
    State state = State::kNone;
    std::byte* to = nullptr;
    int64_t bytes = 0;
  };
  struct Queue {
    std::deque<std::shared_ptr<Message>> messages;
    Post post;
    std::condition_variable changed;
  };

  Queue& QueueOf(int from, uint32_t tag);
  // Waits until `done` returns true; false if the job fails first.
  template <typename Done>
  bool WaitFor(std::unique_lock<std::mutex>& lock, Queue& queue, int from, Done done);
  template <typename Done>
  bool WaitUntil(std::unique_lock<std::mutex>& lock, Queue& queue, int from, Done done);
  std::shared_ptr<Message> PopFront(std::unique_lock<std::mutex>& lock, Queue& queue, int from);
  [[noreturn]] void ThrowFailed() const;  // with the lock
  // Fails the job because of who is late; `what` has not ended, if that is unknown.
  void FailLate(const Late& late, const std::string& what);
  std::string WithinTheTimeout() const;  // "within the collective timeout of 60 s"

  const std::string& name(int process) const { return options_.names[static_cast<size_t>(process)]; }

  const Options options_;
  std::atomic<int64_t> timeout_;  // in nanoseconds
  mutable std::mutex mutex_;
  std::map<std::pair<int, uint32_t>, std::unique_ptr<Queue>> queues_;
  std::vector<bool> left_;
  std::vector<Clock::time_point> progress_;  // when a part of a message last arrived, by process
  std::list<int> waits_;                     // the processes that threads wait for, in the order in which they began to
  std::optional<std::string> failure_;
};

}  // namespace gradloom
