// Thread blocks without a GPU. Each thread of a block that has begun and not ended has a stack of its own, and all of them take turns on
// the host thread that runs the launch.
//
// A thread runs until it reaches a barrier of its block or a shuffle of its warp. Which thread continues is random. If a barrier is
// missing, some orders show it: a thread reads what another has not yet written, or has already overwritten, and the results are wrong.
// Under ThreadSanitizer each of these threads counts as one; barriers are the only synchronization among them, and there is none among the
// blocks of a launch. So it reports a missing barrier in any order.
#undef _FORTIFY_SOURCE  // its checked longjmp refuses to jump to another stack
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
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
// The scheduler's own data is shared by all threads on purpose.
#define GRADLOOM_NO_TSAN __attribute__((no_sanitize_thread))
#else
#define GRADLOOM_NO_TSAN
#endif

namespace gradloom::cuda {
namespace {

constexpr int kLanes = 32, kMaxWarps = 32, kMaxThreads = kLanes * kMaxWarps;
constexpr size_t kStackBytes = 256 << 10, kSharedBytes = 48 << 10;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kBehindArray = 32;  // bytes behind each shared array that nobody may touch
#else
constexpr size_t kBehindArray = 0;
#endif
constexpr int kMaxSharedBytes = 64;
#if defined(__SANITIZE_THREAD__)
constexpr bool kOwnStacks = true;  // thread k has stack k, which ThreadSanitizer takes for a thread
#else
constexpr bool kOwnStacks = false;
#endif
constexpr size_t kSharedMemory = kSharedBytes + kMaxSharedBytes * kBehindArray;
constexpr int kPoison = 0xCB;  // a large negative float

using Place = std::source_location;
constexpr Place kShuffle = Place::current();

class Runner;
thread_local Runner* the_runner = nullptr;

// The scheduler of a host thread, which runs one block at a time.
class Runner {
 public:
  // That of the launch that is running on this host thread.
  static Runner& Now() { return *the_runner; }

  static Runner& Of() {
    static thread_local Runner runner;
    the_runner = &runner;
    return runner;
  }

  GRADLOOM_NO_TSAN void Run(int64_t blocks, int threads, const std::function<void(int64_t)>& body) {
    if (threads % kLanes != 0 || threads > kMaxThreads || body_ != nullptr)
      Fail("the block size must be a multiple of 32 and at most 1024, and launches cannot be nested", nullptr);
    Make(threads);
    body_ = &body;
    threads_ = threads;
    warps_ = threads / kLanes;
    const bool backwards = RandomBelow(2) == 0;
    for (int64_t k = 0; k < blocks; ++k) {
      block_ = backwards ? blocks - 1 - k : k;
      for (int w = 0; w < warps_; ++w) ready_[w] = ~0u, at_warp_[w] = at_block_[w] = 0;
      gone_ = 0;
      num_idle_ = 0;
      for (int k = num_created_ - 1; k >= 0; --k) idle_[num_idle_++] = k;
      shared_used_ = num_shared_ = 0;
      // The threads of smaller blocks, or those that left one early, have passed other numbers of barriers.
      for (int k = 0; k < threads; ++k) block_turns_[k] = warp_turns_[k] = 0, stack_of_[k] = kNone;
      ResetShared();
      Release(this);
      DrawOrder();
      SwitchTo(Next(), StackOf(kMain));
    }
    Acquire(&body_);
    body_ = nullptr;
  }

  int thread() const { return now_; }

  GRADLOOM_NO_TSAN void SyncBlock(const Place& where) {
    const int w = now_ / kLanes;
    CheckPlace(where, at_all_ == 0, &block_place_);
    ready_[w] &= ~(1u << now_ % kLanes);
    at_block_[w] |= 1u << now_ % kLanes;
    void* const barrier = &barriers_[0][block_turns_[now_] ^= 1];
    Release(barrier);
    if (++at_all_ == threads_) {
      at_all_ = 0;
      for (int k = 0; k < warps_; ++k) ready_[k] = at_block_[k], at_block_[k] = 0;
      DrawOrder();
    }
    SwitchTo(Next(), StackOf(now_));
    Acquire(barrier);
  }

  GRADLOOM_NO_TSAN void SyncWarp(const Place& where, bool orders_memory) {
    const int w = now_ / kLanes;
    CheckPlace(where, at_warp_[w] == 0, &warp_place_[w]);
    ready_[w] &= ~(1u << now_ % kLanes);
    at_warp_[w] |= 1u << now_ % kLanes;
    void* const barrier = &barriers_[1 + w][warp_turns_[now_] ^= 1];
    if (orders_memory) Release(barrier);
    if (at_warp_[w] == ~0u) ready_[w] = ~0u, at_warp_[w] = 0;
    SwitchTo(Next(), StackOf(now_));
    if (orders_memory) Acquire(barrier);
  }

  // Two buffers in turns: before a thread writes to one again, all lanes have synchronized, so they have read it.
  GRADLOOM_NO_TSAN unsigned Shuffle(unsigned word, int from) {
    unsigned(&words)[kMaxThreads] = exchanged_[turns_[now_] ^= 1];
    words[now_] = word;
    SyncWarp(kShuffle, false);
    return words[now_ / kLanes * kLanes + from];
  }

  GRADLOOM_NO_TSAN void* Shared(const void* key, size_t bytes) {
    for (int k = 0; k < num_shared_; ++k) {
      if (shared_keys_[k] == key) return shared_ + shared_at_[k];
    }
    if (shared_used_ + bytes > kSharedBytes + static_cast<size_t>(num_shared_) * kBehindArray || num_shared_ == kMaxSharedBytes)
      Fail("the block uses too much shared memory", nullptr);
    shared_keys_[num_shared_] = key;
    shared_at_[num_shared_++] = shared_used_;
    unsigned char* const at = shared_ + shared_used_;
    shared_used_ += (bytes + 15) / 16 * 16 + kBehindArray;
    Unpoison(at, bytes);
    for (size_t k = 0; k < bytes; ++k) at[k] = kPoison;
    return at;
  }

 private:
  static constexpr int kMain = -1, kNone = -1;

  // A stack, and where its thread stopped.
  struct Stack {
    jmp_buf at;
    ucontext_t begin;
    bool begun = false;
    void* memory = nullptr;
    void* fiber = nullptr;  // the sanitizer's handle
    const void* from = nullptr;
    size_t from_bytes = 0;
  };

  [[noreturn]] static void Fail(const char* what, const Place* where) {
    std::fprintf(stderr, "emulated block: %s%s%s:%u\n", what, where != nullptr ? ", " : "", where != nullptr ? where->file_name() : "",
                 where != nullptr ? where->line() : 0);
    std::abort();
  }

  Runner() : stacks_(new Stack[kMaxThreads]) {
    void* const memory = ::mmap(nullptr, kSharedMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) Fail("no memory", nullptr);
    shared_ = static_cast<unsigned char*>(memory);
  }
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner() {
    for (int k = 0; k < num_created_; ++k) {
#if defined(__SANITIZE_THREAD__)
      __tsan_destroy_fiber(stacks_[k].fiber);
#endif
      ::munmap(stacks_[k].memory, kStackBytes);
    }
    Unpoison(shared_, kSharedMemory);
    ::munmap(shared_, kSharedMemory);
  }

  // The lowest page of each stack is a guard page.
  void Make(int threads) {
    for (; num_created_ < threads; ++num_created_) {
      Stack& stack = stacks_[num_created_];
      stack.memory = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack.memory == MAP_FAILED || ::mprotect(stack.memory, 4096, PROT_NONE) != 0) Fail("no memory", nullptr);
      ::getcontext(&stack.begin);
      stack.begin.uc_stack.ss_sp = stack.memory;
      stack.begin.uc_stack.ss_size = kStackBytes;
      stack.begin.uc_link = nullptr;
      ::makecontext(&stack.begin, &Enter, 0);
#if defined(__SANITIZE_THREAD__)
      stack.fiber = __tsan_create_fiber(0);
#endif
    }
  }

  GRADLOOM_NO_TSAN static void Enter() { Now().RunThread(); }

  // A stack is reused: when its thread ends, it runs one that has not begun. So threads without barriers need a single stack, and no
  // switch.
  [[noreturn]] GRADLOOM_NO_TSAN void RunThread() {
    FinishSwitch();
    while (true) {
      Acquire(this);
      (*body_)(block_);
      Release(&body_);
      ready_[now_ / kLanes] &= ~(1u << now_ % kLanes);
      ++gone_;
      const int next = gone_ == threads_ ? kMain : Next(), mine = std::exchange(stack_of_[now_], kNone);
      if (!kOwnStacks && next != kMain && stack_of_[next] == kNone) {
        stack_of_[next] = mine;
        now_ = next;
        continue;
      }
      if (!kOwnStacks) idle_[num_idle_++] = mine;
      SwitchTo(next, stacks_[mine]);
    }
  }

  GRADLOOM_NO_TSAN Stack& StackOf(int thread) { return thread == kMain ? main_ : stacks_[stack_of_[thread]]; }

  // All threads must reach a barrier from the same place in the source.
  GRADLOOM_NO_TSAN void CheckPlace(const Place& where, bool first, Place* place) {
    if (first) *place = where;
    const bool same_file = place->file_name() == where.file_name() || std::strcmp(place->file_name(), where.file_name()) == 0;
    if (place->line() != where.line() || !same_file) {
      Fail("threads of a block wait at different barriers", &where);
    }
  }

  // A random number in [0, n), by xorshift.
  GRADLOOM_NO_TSAN int RandomBelow(int n) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return static_cast<int>(random_ % static_cast<uint64_t>(n));
  }

  // Draws the order in which threads continue.
  GRADLOOM_NO_TSAN void DrawOrder() {
    turn_ = RandomBelow(kLanes);
    warp_turn_ = RandomBelow(warps_);
    upwards_ = RandomBelow(2) == 0;
    together_ = RandomBelow(2) == 0;
  }

  // The thread that continues. Either each warp runs as far as it can before the next one does, or the warps take turns.
  GRADLOOM_NO_TSAN int Next() {
    if (together_) warp_turn_ = (warp_turn_ + 1) % warps_;
    for (int k = 0; k < warps_; ++k) {
      const int w = (warp_turn_ + k) % warps_;
      if (ready_[w] == 0) continue;
      const uint32_t turned = std::rotr(ready_[w], turn_);
      const int lane = upwards_ ? std::countr_zero(turned) : 31 - std::countl_zero(turned);
      return w * kLanes + (lane + turn_) % kLanes;
    }
    for (int w = 0; w < warps_; ++w) {
      if (at_warp_[w] != 0) Fail("some threads wait for their warp, but others have exited or wait elsewhere", &warp_place_[w]);
    }
    Fail("some threads wait for their block, but others have exited", &block_place_);
  }

  // Continues with another thread, or with Run (kMain). Returns when something continues on `mine`, the stack of the caller.
  GRADLOOM_NO_TSAN void SwitchTo(int next, Stack& mine) {
    if (next == now_) return;
    if (next != kMain && stack_of_[next] == kNone) stack_of_[next] = kOwnStacks ? next : idle_[--num_idle_];
    Stack& other = StackOf(next);
    left_ = &mine;
    now_ = next;
#if defined(__SANITIZE_THREAD__)
    if (&mine == &main_) main_.fiber = __tsan_get_current_fiber();
#endif
    if (_setjmp(mine.at) == 0) Jump(mine, other);
    FinishSwitch();
  }

  [[noreturn]] GRADLOOM_NO_TSAN __attribute__((noinline)) void Jump(Stack& mine, Stack& other) {
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

  GRADLOOM_NO_TSAN void FinishSwitch() {
#if defined(__SANITIZE_ADDRESS__)
    Stack& mine = StackOf(now_);
    const void* bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_finish_switch_fiber(mine.fiber, &bottom, &bytes);
    if (left_ == &main_) main_.from = bottom, main_.from_bytes = bytes;
#endif
  }

  // For ThreadSanitizer: what precedes a Release happens before what follows an Acquire of the same name.
  static void Release([[maybe_unused]] void* name) {
#if defined(__SANITIZE_THREAD__)
    __tsan_release(name);
#endif
  }
  static void Acquire([[maybe_unused]] void* name) {
#if defined(__SANITIZE_THREAD__)
    __tsan_acquire(name);
#endif
  }

  // Each block has its own shared memory. ThreadSanitizer forgets the accesses of the previous block; AddressSanitizer permits none before
  // the block has named its arrays.
  void ResetShared() {
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(shared_, kSharedMemory);
#endif
#if defined(__SANITIZE_THREAD__)
    ::mmap(shared_, kSharedMemory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
#endif
  }

  static void Unpoison([[maybe_unused]] const void* at, [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(at, bytes);
#endif
  }

  const std::function<void(int64_t)>* body_ = nullptr;
  int64_t block_ = 0;
  int threads_ = 0, warps_ = 0, num_created_ = 0;
  int now_ = kMain;
  int gone_ = 0, at_all_ = 0;
  uint32_t ready_[kMaxWarps] = {}, at_warp_[kMaxWarps] = {}, at_block_[kMaxWarps] = {};  // a bit for each lane
  Place block_place_, warp_place_[kMaxWarps];
  int turn_ = 0, warp_turn_ = 0;
  bool upwards_ = true, together_ = false;
  uint64_t random_ = 0x9E3779B97F4A7C15;
  std::unique_ptr<Stack[]> stacks_;
  int stack_of_[kMaxThreads];             // the stack of each thread that has begun and not ended, else kNone
  int idle_[kMaxThreads], num_idle_ = 0;  // the stacks of no thread
  Stack main_;
  Stack* left_ = nullptr;
  unsigned exchanged_[2][kMaxThreads] = {};
  uint8_t turns_[kMaxThreads] = {};
  // Names for Release and Acquire: two for the block and for each warp, in turns, because a thread may reach the next barrier before
  // another has left this one.
  char barriers_[1 + kMaxWarps][2] = {};
  uint8_t block_turns_[kMaxThreads] = {}, warp_turns_[kMaxThreads] = {};
  unsigned char* shared_ = nullptr;
  size_t shared_used_ = 0;
  int num_shared_ = 0;
  const void* shared_keys_[kMaxSharedBytes];
  size_t shared_at_[kMaxSharedBytes];
};

}  // namespace

void EmulatedBlocks(cudaStream_t stream, int64_t blocks, int threads, std::function<void(int64_t)> body) {
  EmulatedLaunch(stream, [=, body = std::move(body)] { Runner::Of().Run(blocks, threads, body); });
}
int EmulatedThread() { return Runner::Now().thread(); }
void EmulatedSync(const Place& where) { Runner::Now().SyncBlock(where); }
void EmulatedSyncWarp(const Place& where) { Runner::Now().SyncWarp(where, true); }
unsigned EmulatedShuffle(unsigned word, int from) { return Runner::Now().Shuffle(word, from); }
void* EmulatedShared(const void* key, size_t bytes) { return Runner::Now().Shared(key, bytes); }

}  // namespace gradloom::cuda
