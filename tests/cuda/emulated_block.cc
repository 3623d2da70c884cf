// Blocks of many threads without a GPU: each thread is a stack of its own, and all of them take turns on the host's thread that runs the
// launch.
//
// A thread runs until it meets others, at a barrier of its block or its warp; who goes on then is drawn. Where a barrier is missing, a
// thread sees what another has not written yet, or has written too early, in some of the orders: numbers become wrong. Under
// ThreadSanitizer each thread counts as one, barriers are the only order among them, and blocks of one launch have none: it finds such
// places whatever the order was.
#undef _FORTIFY_SOURCE  // it takes a jump to another stack for one to a frame that is gone
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <source_location>
#include <utility>

#include "kernels/cuda/emulated_launch.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// What threads are told here is no memory of the kernel's: reads and writes of it are not looked at.
#define GRADLOOM_UNWATCHED __attribute__((no_sanitize_thread))
#else
#define GRADLOOM_UNWATCHED
#endif

namespace gradloom::cuda {
namespace {

constexpr int kLanes = 32, kMostWarps = 32, kMostThreads = kLanes * kMostWarps;
constexpr size_t kStackBytes = 256 << 10, kSharedBytes = 48 << 10;
constexpr int kPoison = 0xCB;  // a large negative float

using Place = std::source_location;
constexpr Place kShuffle = Place::current();

class Runner;
thread_local Runner* now_running = nullptr;

// A host's thread while it runs blocks.
class Runner {
 public:
  // The one that runs blocks now.
  static Runner& Now() { return *now_running; }

  static Runner& Of() {
    static thread_local Runner runner;
    now_running = &runner;
    return runner;
  }

  GRADLOOM_UNWATCHED void Run(int64_t blocks, int threads, const std::function<void(int64_t)>& body) {
    if (threads % kLanes != 0 || threads > kMostThreads || body_ != nullptr) Fail("a block of this kind cannot be emulated", nullptr);
    Make(threads);
    body_ = &body;
    threads_ = threads;
    warps_ = threads / kLanes;
    const bool backwards = Drawn(2) == 0;
    for (int64_t k = 0; k < blocks; ++k) {
      block_ = backwards ? blocks - 1 - k : k;
      for (int w = 0; w < warps_; ++w) ready_[w] = ~0u, at_warp_[w] = at_block_[w] = 0;
      gone_ = 0;
      shared_used_ = num_shared_ = 0;
      Forget();
      Tell(this);
      Draw();
      SwitchTo(Next());
    }
    Hear(&body_);
    body_ = nullptr;
  }

  int thread() const { return now_; }

  GRADLOOM_UNWATCHED void MeetBlock(const Place& where) {
    const int w = now_ / kLanes;
    At(where, at_all_ == 0, &block_place_);
    ready_[w] &= ~(1u << now_ % kLanes);
    at_block_[w] |= 1u << now_ % kLanes;
    void* const meeting = &meetings_[0][block_turns_[now_] ^= 1];
    Tell(meeting);
    if (++at_all_ == threads_) {
      at_all_ = 0;
      for (int k = 0; k < warps_; ++k) ready_[k] = at_block_[k], at_block_[k] = 0;
      Draw();
    }
    SwitchTo(Next());
    Hear(meeting);
  }

  GRADLOOM_UNWATCHED void MeetWarp(const Place& where, bool orders_memory) {
    const int w = now_ / kLanes;
    At(where, at_warp_[w] == 0, &warp_place_[w]);
    ready_[w] &= ~(1u << now_ % kLanes);
    at_warp_[w] |= 1u << now_ % kLanes;
    void* const meeting = &meetings_[1 + w][warp_turns_[now_] ^= 1];
    if (orders_memory) Tell(meeting);
    if (at_warp_[w] == ~0u) ready_[w] = ~0u, at_warp_[w] = 0;
    SwitchTo(Next());
    if (orders_memory) Hear(meeting);
  }

  // Words lie in two places in turns: who writes the one again has met the others since they read it.
  GRADLOOM_UNWATCHED unsigned Shuffle(unsigned word, int from) {
    unsigned(&words)[kMostThreads] = exchanged_[turns_[now_] ^= 1];
    words[now_] = word;
    MeetWarp(kShuffle, false);
    return words[now_ / kLanes * kLanes + from];
  }

  GRADLOOM_UNWATCHED void* Shared(const void* key, size_t bytes) {
    for (int k = 0; k < num_shared_; ++k) {
      if (shared_keys_[k] == key) return shared_ + shared_at_[k];
    }
    if (shared_used_ + bytes > kSharedBytes || num_shared_ == kMostShared) Fail("a block has no so much shared memory", nullptr);
    shared_keys_[num_shared_] = key;
    shared_at_[num_shared_++] = shared_used_;
    unsigned char* const at = shared_ + shared_used_;
    shared_used_ += (bytes + 15) / 16 * 16;
    for (size_t k = 0; k < bytes; ++k) at[k] = kPoison;
    return at;
  }

 private:
  static constexpr int kMain = -1, kMostShared = 64;

  // A stack, and where it stands.
  struct Stack {
    jmp_buf at;
    ucontext_t begin;
    bool begun = false;
    void* memory = nullptr;
    void* fiber = nullptr;  // of ThreadSanitizer
    const void* from = nullptr;
    size_t from_bytes = 0;
  };

  [[noreturn]] static void Fail(const char* what, const Place* where) {
    std::fprintf(stderr, "emulated block: %s%s%s:%u\n", what, where != nullptr ? ", " : "", where != nullptr ? where->file_name() : "",
                 where != nullptr ? where->line() : 0);
    std::abort();
  }

  Runner() : stacks_(new Stack[kMostThreads]) {
    void* const memory = ::mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Fail("no memory", nullptr);
    shared_ = static_cast<unsigned char*>(memory);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (int k = 0; k < made_; ++k) {
#if defined(__SANITIZE_THREAD__)
      __tsan_destroy_fiber(stacks_[k].fiber);
#endif
      ::munmap(stacks_[k].memory, kStackBytes);
    }
    ::munmap(shared_, kSharedBytes);
  }

  // The lowest page of a stack is none's, so that what grows beyond it ends there.
  void Make(int threads) {
    for (; made_ < threads; ++made_) {
      Stack& stack = stacks_[made_];
      stack.memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack.memory == MAP_FAILED || ::mprotect(stack.memory, 4096, PROT_NONE) != 0) Fail("no memory", nullptr);
      ::getcontext(&stack.begin);
      stack.begin.uc_stack.ss_sp = stack.memory;
      stack.begin.uc_stack.ss_size = kStackBytes;
      stack.begin.uc_link = nullptr;
      ::makecontext(&stack.begin, &Begin, 0);
#if defined(__SANITIZE_THREAD__)
      stack.fiber = __tsan_create_fiber(0);
#endif
    }
  }

  GRADLOOM_UNWATCHED static void Begin() { Now().Live(); }

  // A stack outlives its thread: it is that thread of every block that comes.
  [[noreturn]] GRADLOOM_UNWATCHED void Live() {
    Arrived();
    while (true) {
      Hear(this);
      (*body_)(block_);
      Tell(&body_);
      ready_[now_ / kLanes] &= ~(1u << now_ % kLanes);
      ++gone_;
      SwitchTo(gone_ == threads_ ? kMain : Next());
    }
  }

  // All that come to one barrier come to it from one place of the source.
  GRADLOOM_UNWATCHED void At(const Place& where, bool first, Place* place) {
    if (first) *place = where;
    const bool same_file = place->file_name() == where.file_name() || std::strcmp(place->file_name(), where.file_name()) == 0;
    if (place->line() != where.line() || !same_file) {
      Fail("threads of a block meet at different places", &where);
    }
  }

  // A number in [0, n), by xorshift.
  GRADLOOM_UNWATCHED int Drawn(int n) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<int>(random_ % static_cast<uint64_t>(n));
  }

  // The order in which threads go on.
  GRADLOOM_UNWATCHED void Draw() {
    turn_ = Drawn(kLanes);
    warp_turn_ = Drawn(warps_);
    upwards_ = Drawn(2) == 0;
    together_ = Drawn(2) == 0;
  }

  // A thread that can go on. Warps go on as far as they can, one after the other, or a step each, as drawn.
  GRADLOOM_UNWATCHED int Next() {
    if (together_) warp_turn_ = (warp_turn_ + 1) % warps_;
    for (int k = 0; k < warps_; ++k) {
      const int w = (warp_turn_ + k) % warps_;
      if (ready_[w] == 0) continue;
      const uint32_t turned = std::rotr(ready_[w], turn_);
      const int lane = upwards_ ? std::countr_zero(turned) : 31 - std::countl_zero(turned);
      return w * kLanes + (lane + turn_) % kLanes;
    }
    for (int w = 0; w < warps_; ++w) {
      if (at_warp_[w] != 0) Fail("threads wait for their warp, others are at another barrier or gone", &warp_place_[w]);
    }
    Fail("threads wait for their block, others are gone", &block_place_);
  }

  // Goes on with another thread, or with what runs the blocks; returns when somebody goes on with this one.
  GRADLOOM_UNWATCHED void SwitchTo(int next) {
    if (next == now_) return;
    Stack& mine = now_ == kMain ? main_ : stacks_[now_];
    Stack& other = next == kMain ? main_ : stacks_[next];
    left_ = &mine;
    now_ = next;
#if defined(__SANITIZE_THREAD__)
    if (&mine == &main_) main_.fiber = __tsan_get_current_fiber();
#endif
    if (_setjmp(mine.at) == 0) Leave(mine, other);
    Arrived();
  }

  [[noreturn]] GRADLOOM_UNWATCHED __attribute__((noinline)) void Leave(Stack& mine, Stack& other) {
    const bool begins = &other != &main_ && !other.begun;
    other.begun = true;
#if defined(__SANITIZE_ADDRESS__)
    const bool main = &other == &main_;
    __sanitizer_start_switch_fiber(&mine.fiber, main ? main_.from : other.memory, main ? main_.from_bytes : kStackBytes);
#elif defined(__SANITIZE_THREAD__)
    (void)mine;
    __tsan_switch_to_fiber(other.fiber, __tsan_switch_to_fiber_no_sync);
#else
    (void)mine;
#endif
    if (begins) ::setcontext(&other.begin);
    _longjmp(other.at, 1);
  }

  GRADLOOM_UNWATCHED void Arrived() {
#if defined(__SANITIZE_ADDRESS__)
    Stack& mine = now_ == kMain ? main_ : stacks_[now_];
    const void* bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(mine.fiber, &bottom, &bytes);
    if (left_ == &main_) main_.from = bottom, main_.from_bytes = bytes;
#endif
  }

  // What happened before this happens before what follows a Hear of the same name.
  static void Tell([[maybe_unused]] void* name) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(name);
#endif
  }
  static void Hear([[maybe_unused]] void* name) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(name);
#endif
  }

  // Shared memory is another one in each block.
  void Forget() {
#if defined(__SANITIZE_THREAD__)
    ::mmap(shared_, kSharedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
#endif
  }

  const std::function<void(int64_t)>* body_ = nullptr;
  int64_t block_ = 0;
  int threads_ = 0, warps_ = 0, made_ = 0;
  int now_ = kMain;
  int gone_ = 0, at_all_ = 0;
  uint32_t ready_[kMostWarps] = {}, at_warp_[kMostWarps] = {}, at_block_[kMostWarps] = {};  // a bit for each lane
  Place block_place_, warp_place_[kMostWarps];
  int turn_ = 0, warp_turn_ = 0;
  bool upwards_ = true, together_ = false;
  uint64_t random_ = 0x9E3779B97F4A7C15;
  std::unique_ptr<Stack[]> stacks_;
  Stack main_;
  Stack* left_ = nullptr;
  unsigned exchanged_[2][kMostThreads] = {};
  uint8_t turns_[kMostThreads] = {};
  // Names of the meetings of the block and of each warp for ThreadSanitizer, two in turns: a thread may come to the next one before another
  // has gone on from this.
  char meetings_[1 + kMostWarps][2] = {};
  uint8_t block_turns_[kMostThreads] = {}, warp_turns_[kMostThreads] = {};
  unsigned char* shared_ = nullptr;
  size_t shared_used_ = 0;
  int num_shared_ = 0;
  const void* shared_keys_[kMostShared];
  size_t shared_at_[kMostShared];
};

}  // namespace

void EmulatedGrid(cudaStream_t stream, int64_t blocks, int threads, std::function<void(int64_t)> body) {
  EmulatedLaunch(stream, [=, body = std::move(body)] { Runner::Of().Run(blocks, threads, body); });
}
int EmulatedThread() { return Runner::Now().thread(); }
void EmulatedSync(const Place& where) { Runner::Now().MeetBlock(where); }
void EmulatedSyncWarp(const Place& where) { Runner::Now().MeetWarp(where, true); }
unsigned EmulatedShuffle(unsigned word, int from) { return Runner::Now().Shuffle(word, from); }
void* EmulatedShared(const void* key, size_t bytes) { return Runner::Now().Shared(key, bytes); }

}  // namespace gradloom::cuda
