// Measures how evenly teams of OpenMP threads share their work. Preloaded into a program (LD_PRELOAD), it takes the processor time of each
// thread in each parallel region that the first thread to begin one begins, and at the end writes to the file TEAM_BALANCE:
//
//   serial SECONDS                                   of that thread between the regions
//   OBJECT OFFSET RUNS ALL LONGEST THREADS BEFORE    for each region: where its code is; seconds of all its threads, of the longest of each
//                                                    run, the threads that took a twentieth of that, and the serial seconds before its runs
//
// Processor time does not depend on the number of cores, so this says for more threads than the machine has cores how much work they could
// not share. It says nothing about barriers and memory. tests/bench/balance.py reads the file.
#include <dlfcn.h>
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

namespace {

using Function = void (*)(void*);
constexpr size_t kMaxThreads = 256;

struct Region {
  int64_t runs = 0, threads = 0;
  double all = 0, longest = 0, before = 0;
};

struct Balance {
  std::map<Function, Region> regions;
  std::array<double, kMaxThreads> seconds{};  // of the run under way, by thread
  Function function = nullptr;                // of the run under way
  std::thread::id owner;
  double serial = 0, gap = 0, ended = -1, begun = 0;
  bool counts = false;  // whether the run under way is counted
};

// Never destroyed: regions may run until the process has ended.
Balance& State() {
  static Balance& state = *new Balance;
  return state;
}

thread_local bool inside = false;

double Now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename F>
F* Next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void RunTimed(void* data) {
  const double begin = Now();
  inside = true;
  State().function(data);
  inside = false;
  State().seconds[static_cast<size_t>(omp_get_thread_num())] = Now() - begin;
}

// Whether a region that this thread begins with this many threads is counted.
bool Begin(Function function, unsigned threads) {
  Balance& state = State();
  if (inside || threads == 1 || threads > kMaxThreads) return false;
  if (state.owner == std::thread::id()) state.owner = std::this_thread::get_id();
  if (state.owner != std::this_thread::get_id()) return false;
  state.gap = state.ended < 0 ? 0 : Now() - state.ended;
  state.serial += state.gap;
  state.seconds.fill(0);
  state.function = function;
  return true;
}

void End() {
  Balance& state = State();
  Region& region = state.regions[state.function];
  ++region.runs;
  region.before += state.gap;
  const double longest = *std::max_element(state.seconds.begin(), state.seconds.end());
  region.longest += longest;
  for (const double seconds : state.seconds) {
    region.all += seconds;
    region.threads += seconds > longest / 20 ? 1 : 0;
  }
  state.ended = Now();
}

[[gnu::destructor]] void Write() {
  const char* const path = std::getenv("TEAM_BALANCE");
  FILE* const file = path == nullptr || State().regions.empty() ? nullptr : std::fopen(path, "w");
  if (file == nullptr) return;
  std::fprintf(file, "serial %.9f\n", State().serial);
  for (const auto& [function, region] : State().regions) {
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(function), &info) == 0) continue;
    std::fprintf(file, "%s %lx %lld %.9f %.9f %lld %.9f\n", info.dli_fname,
                 static_cast<unsigned long>(reinterpret_cast<uintptr_t>(function) - reinterpret_cast<uintptr_t>(info.dli_fbase)),
                 static_cast<long long>(region.runs), region.all, region.longest, static_cast<long long>(region.threads), region.before);
  }
  std::fclose(file);
}

}  // namespace

// libgomp's functions, as compilers call them: the first one today's, the others those that oneDNN was built with.
extern "C" {

[[gnu::visibility("default")]] void GOMP_parallel(Function function, void* data, unsigned threads, unsigned flags) {
  static auto* const next = Next<void(Function, void*, unsigned, unsigned)>("GOMP_parallel");
  if (!Begin(function, threads)) return next(function, data, threads, flags);
  next(RunTimed, data, threads, flags);
  End();
}

[[gnu::visibility("default")]] void GOMP_parallel_start(Function function, void* data, unsigned threads) {
  static auto* const next = Next<void(Function, void*, unsigned)>("GOMP_parallel_start");
  const bool counts = Begin(function, threads);
  next(counts ? RunTimed : function, data, threads);
  if (!counts) return;
  // The caller runs the function itself, as the first thread.
  State().counts = inside = true;
  State().begun = Now();
}

[[gnu::visibility("default")]] void GOMP_parallel_end() {
  static auto* const next = Next<void()>("GOMP_parallel_end");
  const bool counts = State().counts && State().owner == std::this_thread::get_id();
  if (counts) {
    State().seconds[0] = Now() - State().begun;
    State().counts = inside = false;
  }
  next();
  if (counts) End();
}

}  // extern "C"
