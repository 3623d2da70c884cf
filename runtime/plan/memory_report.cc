#include "runtime/plan/memory_report.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "runtime/base/checked.h"
#include "runtime/plan/buffer_lives.h"

namespace gradloom {
namespace {

enum class Kind { kActivation, kGradient, kScratch };

// A buffer of the transient arena from its first to its last use.
struct Life {
  int buffer = -1;
  int first = -1, last = -1;  // indices of instructions
  Kind kind = Kind::kActivation;
  std::string origin;
};

// One life for each whole buffer that is used; the uses of its parts count as its own.
std::vector<Life> TransientLives(const Program& program) {
  std::vector<Life> lives(program.buffers.size());
  for (const Instruction& instruction : program.instructions) {
    const bool update = WritesState(program, instruction);
    for (const Use& use : instruction.uses) {
      if (use.buffer < 0) continue;
      const int whole = program.buffers[static_cast<size_t>(use.buffer)].whole;
      const int buffer = whole < 0 ? use.buffer : whole;
      if (program.buffers[static_cast<size_t>(buffer)].arena != Arena::kTransient) continue;
      Life& life = lives[static_cast<size_t>(buffer)];
      life.buffer = buffer;
      if (use.access == Access::kScratch) life.kind = Kind::kScratch;
      if (use.access == Access::kRead && update && life.kind == Kind::kActivation) life.kind = Kind::kGradient;
      if (use.access == Access::kWrite && life.origin.empty()) life.origin = instruction.origin;
    }
  }
  const std::vector<BufferLife> used = LivesOf(program);
  for (size_t i = 0; i < lives.size(); ++i) lives[i].first = used[i].first, lives[i].last = used[i].last;
  lives.erase(std::remove_if(lives.begin(), lives.end(), [](const Life& life) { return life.buffer < 0; }), lives.end());
  return lives;
}

struct Range {
  int64_t begin, end;
  const Life* life;
};

// The buffers that are live at an instruction, sorted by offset.
std::vector<Range> LiveAt(const Program& program, const std::vector<Life>& lives, int instruction) {
  std::vector<Range> ranges;
  for (const Life& life : lives) {
    if (life.first > instruction || life.last < instruction) continue;
    const Buffer& buffer = program.buffers[static_cast<size_t>(life.buffer)];
    ranges.push_back({buffer.offset, buffer.offset + buffer.bytes, &life});
  }
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return ranges;
}

// Calls f(life, bytes) with the bytes that each buffer adds to those before it: an output that aliases its input counts once.
template <typename F>
void ForEachShare(const std::vector<Range>& ranges, F f) {
  int64_t end = 0;
  for (const Range& range : ranges) {
    f(*range.life, std::max<int64_t>(0, range.end - std::max(range.begin, end)));
    end = std::max(end, range.end);
  }
}

// How many bytes of an arena are covered by buffers that come and go: a segment tree over the sorted offsets at which buffers begin or end.
class CoveredBytes {
 public:
  explicit CoveredBytes(std::vector<int64_t> offsets) : offsets_(std::move(offsets)), nodes_(4 * offsets_.size()) {}

  // Covers [begin, end), both of them among the offsets, once more (count = 1) or once less (count = -1).
  void Add(int64_t begin, int64_t end, int count) {
    if (begin < end) Add(1, 0, offsets_.size() - 1, IndexOf(begin), IndexOf(end), count);
  }
  int64_t bytes() const { return nodes_.size() > 1 ? nodes_[1].covered : 0; }

 private:
  struct Node {
    int count = 0;  // of the ranges that cover all of the node, and not all of its parent
    int64_t covered = 0;
  };

  size_t IndexOf(int64_t offset) const {
    return static_cast<size_t>(std::lower_bound(offsets_.begin(), offsets_.end(), offset) - offsets_.begin());
  }
  // `node` stands for the bytes from offset number `low` to offset number `high`.
  void Add(size_t node, size_t low, size_t high, size_t begin, size_t end, int count) {
    if (end <= low || high <= begin) return;
    const bool whole = begin <= low && high <= end, leaf = high - low == 1;
    if (whole) {
      nodes_[node].count += count;
    } else {
      const size_t middle = (low + high) / 2;
      Add(2 * node, low, middle, begin, end, count);
      Add(2 * node + 1, middle, high, begin, end, count);
    }
    Node& at = nodes_[node];
    at.covered = at.count > 0 ? offsets_[high] - offsets_[low] : leaf ? 0 : nodes_[2 * node].covered + nodes_[2 * node + 1].covered;
  }

  std::vector<int64_t> offsets_;
  std::vector<Node> nodes_;
};

// The indices of `lives`, ordered by the instruction at member `at`.
std::vector<size_t> InOrderOf(const std::vector<Life>& lives, int Life::*at) {
  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lives[a].*at < lives[b].*at; });
  return order;
}

// The first instruction at which the live buffers cover the most bytes; -1 if none ever covers any.
int FullestOf(const Program& program, const std::vector<Life>& lives) {
  std::vector<int64_t> offsets;
  for (const Life& life : lives) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(life.buffer)];
    offsets.insert(offsets.end(), {buffer.offset, buffer.offset + buffer.bytes});
  }
  std::sort(offsets.begin(), offsets.end());
  offsets.erase(std::unique(offsets.begin(), offsets.end()), offsets.end());
  CoveredBytes covered(std::move(offsets));
  const auto add = [&](const Life& life, int count) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(life.buffer)];
    covered.Add(buffer.offset, buffer.offset + buffer.bytes, count);
  };
  const std::vector<size_t> starts = InOrderOf(lives, &Life::first), ends = InOrderOf(lives, &Life::last);
  int fullest = -1;
  int64_t most = 0;
  // The covered bytes only grow where a buffer begins.
  for (size_t start = 0, end = 0; start < starts.size();) {
    const int instruction = lives[starts[start]].first;
    for (; end < ends.size() && lives[ends[end]].last < instruction; ++end) add(lives[ends[end]], -1);
    for (; start < starts.size() && lives[starts[start]].first == instruction; ++start) add(lives[starts[start]], 1);
    if (covered.bytes() > most) most = covered.bytes(), fullest = instruction;
  }
  return fullest;
}

ProgramMemory MemoryOf(const Program& program, size_t largest) {
  ProgramMemory memory;
  memory.transient_bytes = program.transient_bytes;
  const std::vector<Life> lives = TransientLives(program);
  memory.fullest = FullestOf(program, lives);
  if (memory.fullest < 0) return memory;
  std::vector<Range> ranges = LiveAt(program, lives, memory.fullest);
  ForEachShare(ranges, [&](const Life& life, int64_t bytes) {
    (life.kind == Kind::kScratch ? memory.scratch : life.kind == Kind::kGradient ? memory.gradients : memory.activations) += bytes;
  });
  std::stable_sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.end - a.begin > b.end - b.begin; });
  for (size_t i = 0; i < std::min(largest, ranges.size()); ++i) {
    memory.largest.push_back(
        {program.buffers[static_cast<size_t>(ranges[i].life->buffer)].name, ranges[i].life->origin, ranges[i].end - ranges[i].begin});
  }
  return memory;
}

}  // namespace

const PlaceMemory& MemoryReport::fullest() const {
  return *std::max_element(places.begin(), places.end(),
                           [](const PlaceMemory& a, const PlaceMemory& b) { return a.total_bytes() < b.total_bytes(); });
}

int64_t MostStateBytes(const Plan& plan) {
  int64_t most = 0;
  for (const Place& place : plan.places) most = std::max(most, place.state_bytes);
  return most;
}

int64_t SavedStateBytes(const Plan& plan) {
  int64_t bytes = 0;
  for (const StateTensor& state : plan.state) bytes += state.derived() ? 0 : state.shape.elements() * DTypeBytes(state.dtype);
  return bytes;
}

PlaceMemory ArenasOf(const Plan& plan, int index) {
  PlaceMemory place;
  place.state_bytes = plan.places[static_cast<size_t>(index)].state_bytes;
  place.constants_bytes = plan.places[static_cast<size_t>(index)].constants_bytes;
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const Program& program = plan.programs[i];
    if (program.place != index) continue;
    place.input_bytes = std::max(place.input_bytes, 2 * AlignUp(program.input_bytes, kAlignmentBytes));
    if (place.fullest >= 0 && program.transient_bytes <= place.transient_bytes) continue;
    place.transient_bytes = program.transient_bytes;
    place.fullest = static_cast<int>(i);
  }
  return place;
}

MemoryReport ReportMemory(const Plan& plan, size_t largest) {
  MemoryReport report;
  for (size_t i = 0; i < plan.places.size(); ++i) {
    PlaceMemory place = ArenasOf(plan, static_cast<int>(i));
    for (const StateTensor& state : plan.state) {
      if (!state.in_place(static_cast<int>(i))) continue;
      switch (state.kind) {
        case StateKind::kParameter: place.parameters += state.bytes; break;
        case StateKind::kStatistic: place.statistics += state.bytes; break;
        case StateKind::kLossScale:
        case StateKind::kOptimizer: place.optimizer += state.bytes; break;
        case StateKind::kAccumulator: place.accumulators += state.bytes; break;
        case StateKind::kWeightCopy: place.weight_copies += state.bytes; break;
        case StateKind::kAverage: place.averages += state.bytes; break;
      }
    }
    report.places.push_back(place);
  }
  for (const Program& program : plan.programs) report.programs.push_back(MemoryOf(program, largest));
  return report;
}

}  // namespace gradloom
