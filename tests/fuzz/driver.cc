// Runs a fuzz target on mutations of its seeds, for compilers without libFuzzer:
//   npy_fuzz [--runs=N] [--seconds=N] [--seed=N] [--max_bytes=N] [--memory_mb=N] [--write_seeds=DIR] [FILE...]
// Files are run once each, unmodified. Without --seed the seed is drawn from the clock and printed. An input that ends the process is
// written to $TEST_UNDECLARED_OUTPUTS_DIR, or the working directory, as finding-SEED-RUN.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/mutator.h"

// Defined by targets that have a better way to mutate their inputs than by bytes. libFuzzer has the same hook.
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
// Provided by the sanitizers, if the program has one: they end the process on their own.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

// An input of a few kilobytes takes less CPU time than this. Wall-clock time may be much longer if the process has to wait.
constexpr long kMaxSeconds = 20;
constexpr unsigned kMaxWallSeconds = 600;
constexpr double kSlowSeconds = 3;

std::string g_input, g_path;

// Signals may arrive during an allocation, so only system calls are allowed here.
void KeepInput() {
  const int fd = ::open(g_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const ssize_t written = ::write(fd, g_input.data(), g_input.size());
  ::close(fd);
  const char text[] = "the input is kept in ";
  if (written >= 0 && ::write(2, text, sizeof text - 1) > 0 && ::write(2, g_path.data(), g_path.size()) > 0) (void)!::write(2, "\n", 1);
}

void OnSignal(int signal) {
  KeepInput();
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

void CatchSignals() {
  // After a stack overflow there is no room for the handler on the normal stack.
  static char stack[64 << 10];
  stack_t other{};
  other.ss_sp = stack;
  other.ss_size = sizeof stack;
  ::sigaltstack(&other, nullptr);
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_ONSTACK | SA_RESETHAND;
  const bool sanitized = __sanitizer_set_death_callback != nullptr;
  if (sanitized) __sanitizer_set_death_callback(KeepInput);
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    if (!sanitized) ::sigaction(signal, &action, nullptr);
  }
  ::sigaction(SIGABRT, &action, nullptr);
  ::sigaction(SIGALRM, &action, nullptr);
  ::sigaction(SIGPROF, &action, nullptr);
}

// Sanitizers reserve terabytes of address space, so the limit cannot apply there.
void LimitMemory(uint64_t megabytes) {
  if (__sanitizer_set_death_callback != nullptr) return;
  const rlimit limit{megabytes << 20, megabytes << 20};
  ::setrlimit(RLIMIT_AS, &limit);
}

void LimitSeconds(long of_the_processor, unsigned by_the_clock) {
  const itimerval timer{{0, 0}, {of_the_processor, 0}};
  ::setitimer(ITIMER_PROF, &timer, nullptr);
  ::alarm(by_the_clock);
}

double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void RunOne(const std::string& input) {
  g_input = input;
  LimitSeconds(kMaxSeconds, kMaxWallSeconds);
  try {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(g_input.data()), g_input.size());
  } catch (const std::bad_alloc&) {
    gradloom::Finding("more memory than the limit");
  } catch (const std::exception& error) {
    gradloom::Finding(std::string("an exception that is no gradloom::Error: ") + error.what());
  }
  LimitSeconds(0, 0);
}

std::string FileText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Options {
  uint64_t runs = UINT64_MAX, seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  uint64_t seconds = 0, max_bytes = 64 << 10, memory_mb = 2048;
  std::string write_seeds;
  std::vector<std::string> files;
};

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&](const char* name, uint64_t& value) {
      const bool is = word.rfind(name, 0) == 0;
      if (is) value = std::strtoull(word.c_str() + std::strlen(name), nullptr, 10);
      return is;
    };
    if (number("--runs=", options.runs) || number("--seconds=", options.seconds) || number("--seed=", options.seed) ||
        number("--max_bytes=", options.max_bytes) || number("--memory_mb=", options.memory_mb)) {
      continue;
    }
    if (word.rfind("--write_seeds=", 0) == 0) {
      options.write_seeds = word.substr(std::strlen("--write_seeds="));
    } else if (word.rfind("--", 0) == 0) {
      std::fprintf(stderr, "unknown flag %s\n", word.c_str());
      std::exit(2);
    } else {
      options.files.push_back(word);
    }
  }
  if (options.seconds == 0 && options.runs == UINT64_MAX) options.runs = 10000;
  return options;
}

std::string Changed(const std::vector<std::string>& seeds, gradloom::Mutator& mutator, size_t max_bytes) {
  std::string input = seeds[mutator.Below(seeds.size())];
  if (LLVMFuzzerCustomMutator != nullptr && mutator.Below(4) != 0) {
    input.resize(std::min(input.size(), max_bytes));
    std::vector<uint8_t> bytes(input.begin(), input.end());
    bytes.resize(max_bytes);
    const size_t size = LLVMFuzzerCustomMutator(bytes.data(), input.size(), max_bytes, static_cast<unsigned>(mutator.Below(UINT32_MAX)));
    return std::string(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(std::min(size, max_bytes)));
  }
  mutator.Change(input, seeds[mutator.Below(seeds.size())], max_bytes);
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  std::vector<std::string> seeds = gradloom::FuzzSeeds();
  if (!options.write_seeds.empty()) {
    std::filesystem::create_directories(options.write_seeds);
    for (size_t i = 0; i < seeds.size(); ++i)
      std::ofstream(options.write_seeds + "/seed-" + std::to_string(i), std::ios::binary) << seeds[i];
    return 0;
  }
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  LimitMemory(options.memory_mb);
  CatchSignals();
  const char* folder = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::string prefix = std::string(folder == nullptr ? "." : folder) + "/finding-" + std::to_string(options.seed) + "-";
  g_path = prefix + "file";
  if (!options.files.empty()) {
    for (const std::string& path : options.files) RunOne(FileText(path));
    std::printf("%zu files\n", options.files.size());
    return 0;
  }
  const auto start = std::chrono::steady_clock::now();
  uint64_t runs = 0;
  for (const std::string& seed : seeds) {
    g_path = prefix + "seed" + std::to_string(runs++);
    RunOne(seed);
  }
  gradloom::Mutator mutator(options.seed);
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  double slowest = 0;
  uint64_t slowest_run = 0;
  for (; runs < options.runs && (options.seconds == 0 || passed() < static_cast<double>(options.seconds)); ++runs) {
    g_path = prefix + std::to_string(runs);
    const double before = ProcessorSeconds();
    RunOne(Changed(seeds, mutator, options.max_bytes));
    const double seconds = ProcessorSeconds() - before;
    if (seconds <= slowest) continue;
    slowest = seconds;
    slowest_run = runs;
    // Worth a look, but not a finding.
    if (seconds > kSlowSeconds) KeepInput();
  }
  std::printf("%llu executions of %zu seeds in %.1f s; the slowest, number %llu, took %.2f s\n", static_cast<unsigned long long>(runs),
              seeds.size(), passed(), static_cast<unsigned long long>(slowest_run), slowest);
  // With fewer runs no mutation was tried.
  return runs > seeds.size() ? 0 : 1;
}
