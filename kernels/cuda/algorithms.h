// The choice of library algorithms for each problem: the first choice of the heuristics, or, on request, the fastest as measured once and
// cached.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/dtype.h"

struct CUstream_st;

namespace gradloom::cuda {

class Algorithms {
 public:
  // See Device::Algorithms in runtime/device/device.h.
  enum class Mode : uint8_t { kFirst, kMeasured, kGiven };

  // `environment` is one line that names what timings depend on besides the problem: device, driver and library versions. Choices are
  // cached per environment.
  void SetEnvironment(std::string environment) { environment_ = std::move(environment); }
  // Sets the mode for problems from now on. Choices in `given` that were made in the same environment are used; with kMeasured, so are
  // those in the user's cache, after those given. Returns a message for the user if the cache file is damaged, else "".
  std::string Set(Mode mode, const std::string& given);

  // The algorithm chosen for a problem, or nullopt if there is none: measures() then says what to do. Problems and algorithms are single
  // lines without tabs.
  std::optional<std::string> Known(const std::string& problem) const;
  // Whether to measure a problem without a known choice; otherwise the first algorithm is used.
  bool measures() const { return mode_ == Mode::kMeasured; }
  // Notes a choice, and adds it to the user's cache unless another process has already added one for this problem.
  void Keep(const std::string& problem, const std::string& algorithm);
  // All choices made in this environment, one per line: "environment, tab, problem, tab, algorithm".
  std::string text() const { return TextOf(chosen_); }

 private:
  using Choices = std::map<std::string, std::string>;  // by problem

  std::string Path() const;
  // Adds the choices of this environment in `text`, up to the first incomplete line.
  void Read(const std::string& text, Choices& choices) const;
  std::string TextOf(const Choices& choices) const;

  Mode mode_ = Mode::kFirst;
  std::string environment_;
  Choices chosen_;
};

// Memory of the current device for timing trials, filled with numbers in [-1, 1).
class TrialMemory {
 public:
  // Returns null if the device has too little memory.
  static std::unique_ptr<TrialMemory> Allocate(DType dtype, const std::vector<int64_t>& bytes);
  ~TrialMemory();
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  // One address per requested block; null for an empty one.
  const std::vector<void*>& blocks() const { return blocks_; }

 private:
  TrialMemory() = default;
  std::vector<void*> blocks_;
};

// Returns the index of the fastest of `count` algorithms on the current device, or -1 if none runs. run(i, stream) enqueues algorithm i and
// returns whether it could. A later algorithm replaces an earlier one only if it is faster by more than the usual variation of timings.
int FastestOf(int count, const std::function<bool(int, CUstream_st*)>& run);

}  // namespace gradloom::cuda
