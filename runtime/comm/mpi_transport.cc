#include "runtime/comm/mpi_transport.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace gradloom {
namespace {

using Clock = std::chrono::steady_clock;

// MPI tags: two for this file, then those of messages.
constexpr int kFlushTag = 0;  // requests kFlushedTag once everything before it has been received
constexpr int kFlushedTag = 1;
constexpr int kFirstTag = 2;

constexpr auto kPollInterval = std::chrono::milliseconds(100);  // interval at which a waiting thread checks whether the job has failed

// MPI does not notify anyone of events, so a waiting thread polls. It first yields the processor between polls, then sleeps, for longer the
// less it has to expect.
class Pause {
 public:
  void Reset() { since_ = Clock::now(); }
  void Wait(bool awaited) const {
    const auto idle = Clock::now() - since_;
    if (idle < std::chrono::microseconds(50)) {
      sched_yield();
      return;
    }
    const bool soon = awaited || idle < std::chrono::milliseconds(2);
    const timespec pause{0, soon ? 20'000 : 200'000};
    nanosleep(&pause, nullptr);
  }

 private:
  Clock::time_point since_ = Clock::now();
};

}  // namespace

MpiTransport::MpiTransport(MpiLibrary& mpi, int process, int processes, Mailbox& mailbox)
    : mpi_(mpi), process_(process), processes_(processes), mailbox_(mailbox), sources_(static_cast<size_t>(processes)) {}

MpiTransport::~MpiTransport() { Stop(); }

void MpiTransport::Start() {
  thread_ = StartReceiver([this] { Listen(); });
}

void MpiTransport::Stop() {
  closing_ = true;
  if (thread_.joinable()) thread_.join();
}

void MpiTransport::Fail() { failed_ = true; }

template <typename F>
bool MpiTransport::Call(int process, F&& f) {
  std::string what;
  {
    const std::lock_guard lock(calling_);
    if (failed_) return false;
    try {
      f();
      return true;
    } catch (const Error& error) {
      what = error.message();
    }
  }
  mailbox_.FailProcess(process, "cannot be reached by MPI: " + what);
  return false;
}

void MpiTransport::Send(int process, uint32_t tag, const void* data, int64_t bytes) {
  mailbox_.ThrowIfFailed();
  const Clock::time_point deadline = Clock::now() + mailbox_.timeout();
  MpiLibrary::Request request;
  bool done = false;
  const auto test = [&] { done = mpi_.Done(request); };
  bool good = Call(process, [&] {
    request = mpi_.Send(process, kFirstTag + static_cast<int>(tag), data, bytes);
    test();
  });
  for (Pause pause; good && !done;) {
    if (Clock::now() >= deadline) {
      mailbox_.FailSilentProcess(process);
      break;
    }
    pause.Wait(true);
    good = Call(process, test);
  }
  if (!good || !done) mailbox_.ThrowIfFailed();
}

void MpiTransport::SendControl(int process, int tag) { control_sends_.push_back(mpi_.Send(process, tag, nullptr, 0)); }

void MpiTransport::Flush() {
  for (int i = 0; i < processes_; ++i) {
    if (i != process_) Call(i, [&] { SendControl(i, kFlushTag); });
  }
  const Clock::time_point deadline = Clock::now() + mailbox_.timeout();
  std::unique_lock lock(calling_);
  while (flushed_ < processes_ - 1 && !failed_ && Clock::now() < deadline) flushed_changed_.wait_for(lock, kPollInterval);
}

void MpiTransport::Listen() {
  // Makes short sleeps as short as requested.
  prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
  for (Pause pause; !closing_ && !failed_;) {
    bool any = false;
    if (!Call(process_, [&] { any = Poll(); })) break;
    if (any) pause.Reset();
    pause.Wait(waiters_.load(std::memory_order_relaxed) > 0);
  }
  const std::lock_guard lock(calling_);
  for (Source& source : sources_) {
    if (source.arriving) mailbox_.End(source.delivery, false);
    source.arriving = false;
  }
}

bool MpiTransport::Poll() {
  bool any = false;
  while (auto arrival = mpi_.Probe()) {
    Source& source = sources_[static_cast<size_t>(arrival->from)];
    source.waiting.push_back(*arrival);
    any = true;
    Progress(arrival->from, source);
  }
  for (int i = 0; i < processes_; ++i) any |= Progress(i, sources_[static_cast<size_t>(i)]);
  std::erase_if(control_sends_, [&](MpiLibrary::Request& note) { return mpi_.Done(note); });
  return any;
}

// The messages of a process are received one after the other, as the mailbox requires.
bool MpiTransport::Progress(int from, Source& source) {
  bool any = false;
  while (true) {
    if (source.arriving) {
      if (!mpi_.Done(source.request)) return any;
      source.arriving = false;
      mailbox_.End(source.delivery, true);
    }
    if (source.waiting.empty()) return any;
    any = true;
    const MpiLibrary::Arrival arrival = source.waiting.front();
    source.waiting.pop_front();
    if (arrival.tag >= kFirstTag) {
      source.delivery = mailbox_.Begin(from, static_cast<uint32_t>(arrival.tag - kFirstTag), arrival.bytes);
      source.request = mpi_.Receive(arrival, source.delivery.to);
      source.arriving = true;
      continue;
    }
    MpiLibrary::Request request = mpi_.Receive(arrival, nullptr);
    // Only the envelope is sent, and it has arrived.
    while (!mpi_.Done(request)) {
    }
    if (arrival.tag == kFlushTag) {
      SendControl(from, kFlushedTag);
    } else {
      ++flushed_;
      flushed_changed_.notify_all();
    }
  }
}

}  // namespace gradloom
