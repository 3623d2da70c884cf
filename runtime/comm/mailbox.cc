#include "runtime/comm/mailbox.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/listing.h"

namespace gradloom {

Mailbox::Mailbox(Options options)
    : options_(std::move(options)),
      timeout_(options_.timeout.count()),
      left_(options_.names.size(), false),
      progress_(options_.names.size()) {}

Mailbox::Queue& Mailbox::QueueOf(int from, uint32_t tag) {
  std::unique_ptr<Queue>& queue = queues_[{from, tag}];
  if (queue == nullptr) queue = std::make_unique<Queue>();
  return *queue;
}

Mailbox::Delivery Mailbox::Begin(int from, uint32_t tag, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  Queue& queue = QueueOf(from, tag);
  if (queue.post.state == Post::State::kWaiting && queue.messages.empty() && queue.post.bytes == bytes) {
    queue.post.state = Post::State::kFilling;
    return {queue.post.to, bytes, from, tag, true};
  }
  auto message = std::make_shared<Message>();
  message->data = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(bytes));
  message->bytes = bytes;
  queue.messages.push_back(message);
  return {message->data.get(), bytes, from, tag, false};
}

void Mailbox::End(const Delivery& delivery, bool whole) {
  const std::lock_guard lock(mutex_);
  Queue& queue = QueueOf(delivery.from, delivery.tag);
  if (delivery.posted) {
    queue.post.state = whole ? Post::State::kDone : Post::State::kWaiting;
  } else if (whole) {
    queue.messages.back()->whole = true;
  } else {
    queue.messages.pop_back();
  }
  queue.changed.notify_all();
}

void Mailbox::Progress(int from) {
  const std::lock_guard lock(mutex_);
  progress_[static_cast<size_t>(from)] = Clock::now();
}

void Mailbox::Leave(int from) {
  const std::lock_guard lock(mutex_);
  left_[static_cast<size_t>(from)] = true;
  for (auto& [key, queue] : queues_) queue->changed.notify_all();
}

void Mailbox::Fail(const std::string& what) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = what;
    for (auto& [key, queue] : queues_) queue->changed.notify_all();
  }
  options_.on_failure(what);
}

void Mailbox::FailProcess(int process, const std::string& how) { Fail(name(process) + " " + how); }

void Mailbox::FailSilentProcess(int process) { FailProcess(process, "has not answered " + WithinTheTimeout()); }

bool Mailbox::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_.has_value();
}

std::vector<int> Mailbox::awaited() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> processes;
  for (const int process : waits_) {
    if (std::find(processes.begin(), processes.end(), process) == processes.end()) processes.push_back(process);
  }
  return processes;
}

void Mailbox::ThrowFailed() const { throw Error(ErrorCode::kPeer, *failure_); }

void Mailbox::ThrowIfFailed() const {
  const std::lock_guard lock(mutex_);
  if (failure_) ThrowFailed();
}

template <typename Done>
bool Mailbox::WaitFor(std::unique_lock<std::mutex>& lock, Queue& queue, int from, Done done) {
  if (done()) return true;
  const auto waits = waits_.insert(waits_.end(), from);
  const bool ended = WaitUntil(lock, queue, from, done);
  waits_.erase(waits);
  return ended;
}

template <typename Done>
bool Mailbox::WaitUntil(std::unique_lock<std::mutex>& lock, Queue& queue, int from, Done done) {
  const std::chrono::nanoseconds timeout = this->timeout();
  auto deadline = Clock::now() + timeout;
  while (!done()) {
    if (failure_) return false;
    const bool left = left_[static_cast<size_t>(from)];
    if (!left && queue.changed.wait_until(lock, deadline) == std::cv_status::no_timeout) continue;
    if (done()) return true;
    const auto renewed = progress_[static_cast<size_t>(from)] + timeout;
    if (!left && renewed > deadline) {
      deadline = renewed;
      continue;
    }
    if (!left && options_.any_busy()) {
      deadline = Clock::now() + timeout;
      continue;
    }
    lock.unlock();
    if (left) {
      FailProcess(from, "has left the job, but more data was expected from it");
    } else {
      FailLate(options_.suspect(from), "the wait for " + name(from));
    }
    lock.lock();
  }
  return true;
}

std::string Mailbox::WithinTheTimeout() const {
  const auto seconds = std::chrono::duration_cast<std::chrono::duration<double>>(timeout()).count();
  return "within the collective timeout of " + std::to_string(static_cast<int64_t>(seconds + 0.5)) + " s";
}

void Mailbox::CheckWait(Clock::time_point& since, const std::string& what) {
  ThrowIfFailed();
  if (Clock::now() - since < timeout()) return;
  if (options_.any_busy()) {
    since = Clock::now();
    return;
  }
  FailLate(options_.suspect(-1), what);
  ThrowIfFailed();
}

void Mailbox::FailLate(const Late& late, const std::string& what) {
  if (late.process >= 0) return FailSilentProcess(late.process);
  if (late.circle.empty()) return Fail(what + " has not ended " + WithinTheTimeout());
  Listing waits(4);
  for (size_t i = 0; i < late.circle.size(); ++i)
    waits.Add(name(late.circle[i]) + " for " + name(late.circle[(i + 1) % late.circle.size()]));
  Fail("processes wait for each other, and none has ended its wait " + WithinTheTimeout() + ": " + waits.text());
}

std::shared_ptr<Mailbox::Message> Mailbox::PopFront(std::unique_lock<std::mutex>& lock, Queue& queue, int from) {
  const bool there = WaitFor(lock, queue, from, [&] { return !queue.messages.empty() && queue.messages.front()->whole; });
  if (!there) ThrowFailed();
  std::shared_ptr<Message> message = std::move(queue.messages.front());
  queue.messages.pop_front();
  return message;
}

void Mailbox::Receive(int from, uint32_t tag, void* to, int64_t bytes) {
  std::unique_lock lock(mutex_);
  Queue& queue = QueueOf(from, tag);
  if (queue.messages.empty() && !failure_) {
    queue.post = {Post::State::kWaiting, static_cast<std::byte*>(to), bytes};
    WaitFor(lock, queue, from, [&] { return queue.post.state == Post::State::kDone || !queue.messages.empty(); });
    // The thread that fills the post writes to the caller's memory until it has been told of the failure.
    queue.changed.wait(lock, [&] { return queue.post.state != Post::State::kFilling; });
    const bool done = queue.post.state == Post::State::kDone;
    queue.post.state = Post::State::kNone;
    if (done) return;
  }
  const std::shared_ptr<Message> message = PopFront(lock, queue, from);
  lock.unlock();
  if (message->bytes != bytes) {
    const std::string what = name(from) + " sent " + std::to_string(message->bytes) + " bytes, expected " + std::to_string(bytes);
    Fail(what);
    ThrowIfFailed();
  }
  if (bytes > 0) std::memcpy(to, message->data.get(), static_cast<size_t>(bytes));
}

std::vector<std::byte> Mailbox::ReceiveAny(int from, uint32_t tag) {
  std::unique_lock lock(mutex_);
  const std::shared_ptr<Message> message = PopFront(lock, QueueOf(from, tag), from);
  return {message->data.get(), message->data.get() + message->bytes};
}

}  // namespace gradloom
