#include "runtime/exec/shared_parameters.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/exec/memory.h"

namespace gradloom {
namespace {

// Optimizer state is not shared: each process has its own.
bool IsSharedState(const StateTensor& state) {
  return state.kind == StateKind::kParameter || state.kind == StateKind::kStatistic || state.kind == StateKind::kWeightCopy;
}

class PartlySharedMemory : public ArenaMemory {
 public:
  PartlySharedMemory(const Plan& plan, std::shared_ptr<std::byte> parameters, int64_t bytes)
      : parameters_(std::move(parameters)), own_(bytes, "state", bytes - SharedStateBytes(plan)) {
    for (const StateTensor& state : plan.state) {
      // One without elements has the offset of its neighbour, and would hide it from the search.
      if (IsSharedState(state) && state.bytes > 0) shared_.push_back({state.offset, state.offset + state.bytes});
    }
    std::sort(shared_.begin(), shared_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  }

  std::byte* at(int64_t offset) const override {
    const auto behind =
        std::upper_bound(shared_.begin(), shared_.end(), offset, [](int64_t at, const Range& range) { return at < range.begin; });
    return behind != shared_.begin() && offset < std::prev(behind)->end ? parameters_.get() + offset : own_.at(offset);
  }
  int64_t bytes() const override { return own_.bytes(); }
  bool written_by_others() const override { return true; }
  void Read(int64_t offset, int64_t bytes, void* to) const override {
    if (bytes > 0) std::memcpy(to, at(offset), static_cast<size_t>(bytes));
  }
  void Write(int64_t offset, int64_t bytes, const void* from) override {
    if (bytes > 0) std::memcpy(at(offset), from, static_cast<size_t>(bytes));
  }

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };
  const std::shared_ptr<std::byte> parameters_;
  const HostArena own_;
  std::vector<Range> shared_;  // sorted
};

}  // namespace

int64_t SharedStateBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const StateTensor& state : plan.state) bytes += IsSharedState(state) ? state.bytes : 0;
  return bytes;
}

std::shared_ptr<StateArena> MakeSharedStateArena(const Plan& plan, std::shared_ptr<std::byte> parameters) {
  if (plan.num_ranks() != 1 || plan.targets.front().device != DeviceKind::kCpu)
    throw Error(ErrorCode::kUnsupported, "parameters in shared memory need a plan for one CPU device", "", "use --devices cpu:1");
  const auto take = [&](size_t, int64_t bytes) { return std::make_unique<PartlySharedMemory>(plan, std::move(parameters), bytes); };
  return std::make_shared<StateArena>(plan, take, RankRange{0, 1});
}

}  // namespace gradloom
