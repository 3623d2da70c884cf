// Which of a library's algorithms serve which problems: as its heuristics say, or as was measured on request, once, and kept.
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
  // As runtime/device/device.h says of them.
  enum class Mode : uint8_t { kFirst, kMeasured, kGiven };

  // `environment`: what times depend on beside the problem, device, driver, versions, in one line. Choices are kept for it.
  void SetEnvironment(std::string environment) { environment_ = std::move(environment); }
  // From now on. Choices in `given` that are of this environment hold, too; where nothing is given, what the user's cache has does. Returns
  // what a person should know of that file, or "".
  std::string Set(Mode mode, const std::string& given);

  // What was chosen for a problem; nothing: what `measures` says is to be done. Problems and choices are lines without tabs.
  std::optional<std::string> Known(const std::string& problem) const;
  // Whether what is not known is measured; else the first is taken.
  bool measures() const { return mode_ == Mode::kMeasured; }
  void Keep(const std::string& problem, const std::string& algorithm);
  // All choices that were made in this environment: "environment, tab, problem, tab, algorithm" a line.
  std::string text() const;

 private:
  std::string Path() const;
  // Whether the text of a cache's file, or one that was given, was whole.
  bool Read(const std::string& text);

  Mode mode_ = Mode::kFirst;
  std::string environment_;
  std::map<std::string, std::string> chosen_;  // by problem
};

// Memory of the current device for a trial, of numbers between -1 and 1.
class TrialMemory {
 public:
  // Null where there is not so much.
  static std::unique_ptr<TrialMemory> Take(DType dtype, const std::vector<int64_t>& bytes);
  ~TrialMemory();
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  // Of each of the blocks, null for an empty one.
  const std::vector<void*>& blocks() const { return blocks_; }

 private:
  TrialMemory() = default;
  std::vector<void*> blocks_;
};

// The number of the fastest of `count` algorithms on the current device, or -1 where none runs: run(i, stream) enqueues one, and says
// whether it could. A later one has to be faster by more than what times differ by anyway.
int FastestOf(int count, const std::function<bool(int, CUstream_st*)>& run);

}  // namespace gradloom::cuda
