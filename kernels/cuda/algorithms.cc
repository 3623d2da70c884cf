#include "kernels/cuda/algorithms.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <utility>

#include "kernels/cuda/cache_folder.h"
#include "kernels/cuda/check.h"
#include "runtime/base/file.h"
#include "runtime/base/half.h"
#include "runtime/base/hash.h"

namespace gradloom::cuda {
namespace {

constexpr char kHead[] = "gradloom algorithms 1\n";
// A trial takes about kTrialMs and at most kMaxRuns runs; the best of kTrials counts. A later algorithm must take less than kFaster times
// the best time.
constexpr double kTrialMs = 2;
constexpr int kTrials = 3, kMaxRuns = 20;
constexpr double kFaster = 0.97;

// The size of the pattern with which memory is filled.
constexpr size_t kPatternBytes = size_t{1} << 16;

template <typename T>
std::vector<std::byte> PatternOf() {
  std::vector<std::byte> bytes(kPatternBytes);
  uint32_t state = 1;
  for (size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
    state = state * 1664525 + 1013904223;
    const T value = static_cast<T>(static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1);
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof value);
  }
  return bytes;
}

std::vector<std::byte> PatternOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return PatternOf<double>();
    case DType::kFloat16: return PatternOf<Half>();
    case DType::kBfloat16: return PatternOf<Bfloat16>();
    default: return PatternOf<float>();
  }
}

class Clock {
 public:
  Clock() {
    GRADLOOM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    GRADLOOM_CUDA(cudaEventCreateWithFlags(&begin_, cudaEventDefault));
    GRADLOOM_CUDA(cudaEventCreateWithFlags(&end_, cudaEventDefault));
  }
  ~Clock() {
    if (end_ != nullptr) cudaEventDestroy(end_);
    if (begin_ != nullptr) cudaEventDestroy(begin_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

  // The time of one run; infinite if the algorithm cannot run.
  double Milliseconds(const std::function<bool(CUstream_st*)>& run, int runs) {
    GRADLOOM_CUDA(cudaEventRecord(begin_, stream_));
    for (int i = 0; i < runs; ++i) {
      if (run(stream_)) continue;
      cudaGetLastError();  // the next launch would report it
      return HUGE_VAL;
    }
    GRADLOOM_CUDA(cudaEventRecord(end_, stream_));
    GRADLOOM_CUDA(cudaStreamSynchronize(stream_));
    float ms = 0;
    GRADLOOM_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
    return static_cast<double>(ms) / runs;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// While it exists, no other process changes the cache. Without support for locks it has no effect.
class CacheLock {
 public:
  explicit CacheLock(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX) != 0 && errno == EINTR) continue;
  }
  ~CacheLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  const int fd_;
};

// The content of a cache file, which is kHead, a line with the hash of the rest, and the rest: the latter; nullopt if the file is damaged.
std::optional<std::string> BodyOf(const std::string& path) {
  try {
    const std::string kept = ReadWholeFile(path);
    const size_t head = sizeof kHead - 1, body = kept.find('\n', head);
    if (kept.starts_with(kHead) && body != std::string::npos && kept.substr(head, body - head) == HashText(HashOf(kept.substr(body + 1))))
      return kept.substr(body + 1);
  } catch (const Error&) {
    // Treated like a damaged file.
  }
  return std::nullopt;
}

}  // namespace

std::string Algorithms::Path() const {
  const std::string folder = CacheFolder();
  return folder.empty() ? "" : folder + "/algorithms/" + HashText(HashOf(environment_));
}

void Algorithms::Read(const std::string& text, Choices& choices) const {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find('\t'), second = first == std::string::npos ? first : line.find('\t', first + 1);
    if (second == std::string::npos) return;
    if (line.compare(0, first, environment_) == 0 && first == environment_.size())
      choices[line.substr(first + 1, second - first - 1)] = line.substr(second + 1);
  }
}

std::string Algorithms::Set(Mode mode, const std::string& given) {
  mode_ = mode;
  if (mode == Mode::kFirst) return "";
  if (mode == Mode::kGiven) chosen_.clear();
  Read(given, chosen_);
  const std::string path = Path();
  std::error_code error;
  if (mode == Mode::kGiven || path.empty() || !std::filesystem::exists(path, error)) return "";
  if (const std::optional<std::string> kept = BodyOf(path)) {
    Read(*kept, chosen_);
    // Choices made by another device of the process take precedence over cached ones.
    Read(given, chosen_);
    return "";
  }
  return "the choices of algorithms in " + path + " are damaged: they are measured anew";
}

std::optional<std::string> Algorithms::Known(const std::string& problem) const {
  if (mode_ == Mode::kFirst) return std::nullopt;
  const auto found = chosen_.find(problem);
  return found == chosen_.end() ? std::nullopt : std::optional(found->second);
}

void Algorithms::Keep(const std::string& problem, const std::string& algorithm) {
  const std::string before = std::exchange(chosen_[problem], algorithm);
  const std::string path = Path();
  if (path.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(FolderOf(path), error);
  if (error) return;
  try {
    // Other processes may have added choices since the file was read, also for this problem. The first one stays, unless it is one that
    // could not be used here.
    const CacheLock lock(CacheFolder() + "/algorithms.lock");
    Choices kept;
    if (const std::optional<std::string> body = BodyOf(path)) Read(*body, kept);
    if (const auto found = kept.find(problem); found != kept.end() && found->second == before) kept.erase(found);
    kept.insert(chosen_.begin(), chosen_.end());
    const std::string body = TextOf(kept);
    WriteFileAtomically(path, kHead + HashText(HashOf(body)) + "\n" + body);
  } catch (const Error&) {
    // The cache is optional.
  }
}

std::string Algorithms::TextOf(const Choices& choices) const {
  std::string text;
  for (const auto& [problem, algorithm] : choices)
    text.append(environment_).append("\t").append(problem).append("\t").append(algorithm).append("\n");
  return text;
}

std::unique_ptr<TrialMemory> TrialMemory::Allocate(DType dtype, const std::vector<int64_t>& bytes) {
  std::unique_ptr<TrialMemory> memory(new TrialMemory);
  const std::vector<std::byte> pattern = PatternOf(dtype);
  for (int64_t wanted : bytes) {
    void*& block = memory->blocks_.emplace_back(nullptr);
    if (wanted == 0) continue;
    const auto size = static_cast<size_t>(wanted);
    if (cudaMalloc(&block, size) != cudaSuccess) {
      cudaGetLastError();  // the next launch would report it
      block = nullptr;
      return nullptr;
    }
    auto* const at = static_cast<std::byte*>(block);
    for (size_t filled = 0; filled < size;) {
      // Doubles the filled part each time.
      const size_t more = std::min(size - filled, std::max(filled, kPatternBytes));
      GRADLOOM_CUDA(cudaMemcpy(at + filled, filled == 0 ? static_cast<const void*>(pattern.data()) : at, more, cudaMemcpyDefault));
      filled += more;
    }
  }
  // Not the device, which cannot be waited for while another thread captures a step.
  GRADLOOM_CUDA(cudaStreamSynchronize(nullptr));
  return memory;
}

TrialMemory::~TrialMemory() {
  for (void* block : blocks_) cudaFree(block);
}

int FastestOf(int count, const std::function<bool(int, CUstream_st*)>& run) {
  Clock clock;
  int best = -1;
  double best_ms = HUGE_VAL;
  for (int i = 0; i < count; ++i) {
    const auto once = [&](CUstream_st* stream) { return run(i, stream); };
    clock.Milliseconds(once, 1);  // loads the kernel
    const double first = clock.Milliseconds(once, 1);
    if (first == HUGE_VAL) continue;
    const int runs = std::clamp(static_cast<int>(kTrialMs / std::max(first, 1e-4)), 1, kMaxRuns);
    double ms = first;
    for (int trial = 0; trial < kTrials; ++trial) ms = std::min(ms, clock.Milliseconds(once, runs));
    if (ms >= best_ms * kFaster && best >= 0) continue;
    best = i;
    best_ms = ms;
  }
  return best;
}

}  // namespace gradloom::cuda
