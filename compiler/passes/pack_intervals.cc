#include "compiler/passes/pack_intervals.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "runtime/base/checked.h"
#include "runtime/base/error.h"
#include "runtime/base/tensor.h"

namespace gradloom {
namespace {

using LiveTogether = std::function<bool(size_t, size_t)>;

int Until(const Interval& interval) { return std::max(interval.last, interval.until); }

// Placed intervals, indexed by time, so that each interval that overlaps in time is visited once and no others. Each bucket of steps holds
// the indices of the intervals that begin in it, and of those that began earlier and reach into it.
class PlacedIntervals {
 public:
  PlacedIntervals(int steps, const LiveTogether& together)
      : together_(together), buckets_(static_cast<size_t>(steps / kStepsPerBucket + 1)) {}

  void Add(const Interval& interval, int index) {
    const int begin = interval.first / kStepsPerBucket;
    buckets_[static_cast<size_t>(begin)].begin.push_back(index);
    for (int bucket = begin + 1; bucket <= Until(interval) / kStepsPerBucket; ++bucket)
      buckets_[static_cast<size_t>(bucket)].continuing.push_back(index);
  }

  // Appends the offset ranges of placed intervals that are alive together with interval `mine`, sorted by offset.
  void Overlapping(const std::vector<Interval>& all, int mine, std::vector<std::pair<int64_t, int64_t>>& ranges) const {
    const Interval& interval = all[static_cast<size_t>(mine)];
    ranges.clear();
    const auto look = [&](const std::vector<int>& indices) {
      for (int index : indices) {
        const Interval& other = all[static_cast<size_t>(index)];
        const bool apart = other.first > interval.last || other.last < interval.first;
        if (apart && !(together_ && together_(static_cast<size_t>(mine), static_cast<size_t>(index)))) continue;
        ranges.emplace_back(other.offset, other.offset + AlignUp(other.bytes, kAlignmentBytes));
      }
    };
    const int begin = interval.first / kStepsPerBucket;
    look(buckets_[static_cast<size_t>(begin)].continuing);
    for (int bucket = begin; bucket <= Until(interval) / kStepsPerBucket; ++bucket) look(buckets_[static_cast<size_t>(bucket)].begin);
    std::sort(ranges.begin(), ranges.end());
  }

 private:
  static constexpr int kStepsPerBucket = 16;

  const LiveTogether& together_;
  struct Bucket {
    std::vector<int> begin, continuing;
  };
  std::vector<Bucket> buckets_;
};

// Returns the offset of the smallest gap between the ranges that holds `bytes`, or the end of the last range.
int64_t BestFit(const std::vector<std::pair<int64_t, int64_t>>& ranges, int64_t bytes) {
  int64_t end = 0, best = -1, best_gap = 0;
  for (const auto& [from, to] : ranges) {
    const int64_t gap = from - end;
    if (gap >= bytes && (best < 0 || gap < best_gap)) {
      best = end;
      best_gap = gap;
    }
    end = std::max(end, to);
  }
  return best < 0 ? end : best;
}

int64_t PackInOrder(std::vector<Interval>& intervals, const std::vector<int>& order, int steps, const LiveTogether& together) {
  PlacedIntervals placed(steps, together);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t size = 0;
  for (int index : order) {
    Interval& interval = intervals[static_cast<size_t>(index)];
    placed.Overlapping(intervals, index, ranges);
    const int64_t bytes = AlignUp(interval.bytes, kAlignmentBytes);
    interval.offset = BestFit(ranges, bytes);
    size = std::max(size, interval.offset + bytes);
    placed.Add(interval, index);
  }
  return size;
}

// Free ranges of an arena that grows at its end, by offset and by size.
class FreeRanges {
 public:
  // Takes the smallest range that holds the bytes; if there is none, extends the arena, including a free range at its end.
  int64_t Allocate(int64_t bytes) {
    const auto fits = by_size_.lower_bound({bytes, 0});
    if (fits == by_size_.end()) {
      int64_t offset = end_;
      if (!by_offset_.empty()) {
        const auto last = std::prev(by_offset_.end());
        if (last->first + last->second == end_) {
          offset = last->first;
          Remove(last);
        }
      }
      end_ = offset + bytes;
      return offset;
    }
    const auto [size, offset] = *fits;
    Remove(by_offset_.find(offset));
    if (size > bytes) Insert(offset + bytes, size - bytes);
    return offset;
  }

  void Release(int64_t offset, int64_t bytes) {
    if (bytes == 0) return;
    const auto after = by_offset_.lower_bound(offset);
    if (after != by_offset_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == offset) {
        offset = before->first;
        bytes += before->second;
        Remove(before);
      }
    }
    if (after != by_offset_.end() && after->first == offset + bytes) {
      bytes += after->second;
      Remove(after);
    }
    Insert(offset, bytes);
  }

  int64_t end() const { return end_; }

 private:
  void Insert(int64_t offset, int64_t bytes) {
    by_offset_.emplace(offset, bytes);
    by_size_.emplace(bytes, offset);
  }
  void Remove(std::map<int64_t, int64_t>::iterator range) {
    by_size_.erase({range->second, range->first});
    by_offset_.erase(range);
  }

  std::map<int64_t, int64_t> by_offset_;           // offset -> bytes
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset)
  int64_t end_ = 0;                                // nothing beyond this was ever taken
};

// Best fit in order of time: O(n log n), however many intervals are alive together.
int64_t PackByTime(std::vector<Interval>& intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return intervals[a].first < intervals[b].first; });
  std::priority_queue<std::pair<int, size_t>, std::vector<std::pair<int, size_t>>, std::greater<>> alive;  // by Until
  FreeRanges ranges;
  for (size_t index : order) {
    Interval& interval = intervals[index];
    while (!alive.empty() && alive.top().first < interval.first) {
      const Interval& ended = intervals[alive.top().second];
      ranges.Release(ended.offset, AlignUp(ended.bytes, kAlignmentBytes));
      alive.pop();
    }
    interval.offset = ranges.Allocate(AlignUp(interval.bytes, kAlignmentBytes));
    alive.emplace(Until(interval), index);
  }
  return ranges.end();
}

// Returns the number of pairs of intervals that may be alive together.
int64_t CountPairs(const std::vector<Interval>& intervals) {
  std::vector<int> begins, ends;
  for (const Interval& interval : intervals) {
    begins.push_back(interval.first);
    ends.push_back(Until(interval));
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  int64_t pairs = 0;
  size_t ended = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    while (ends[ended] < begins[i]) ++ended;
    pairs += static_cast<int64_t>(i - ended);
  }
  return pairs;
}

// With more pairs, as in training a chain of many thousands of nodes, visiting all of them takes seconds.
constexpr int64_t kMaxPairs = 20'000'000;
// An order of more pairs is not tried again with changes.
constexpr int64_t kRetriedPairs = 2'000'000;

// Whether further attempts could save at most a thousandth.
bool IsGood(int64_t size, int64_t bound) { return size >= 0 && size - bound <= bound / 1000; }

}  // namespace

int64_t PackIntervals(std::vector<Interval>& intervals, const LiveTogether& together) {
  int steps = 1;
  for (const Interval& interval : intervals) {
    GRADLOOM_CHECK(interval.first >= 0 && interval.first <= interval.last && interval.bytes >= 0);
    steps = std::max(steps, Until(interval) + 1);
  }
  const auto length = [&](int i) { return intervals[static_cast<size_t>(i)].last - intervals[static_cast<size_t>(i)].first; };
  const auto bytes = [&](int i) { return intervals[static_cast<size_t>(i)].bytes; };
  const auto first = [&](int i) { return intervals[static_cast<size_t>(i)].first; };

  const int64_t pairs = CountPairs(intervals);
  if (pairs > kMaxPairs) return PackByTime(intervals);
  const auto rounds = static_cast<int>(std::min<int64_t>(16, kRetriedPairs / std::max<int64_t>(pairs, 1)));
  const int64_t bound = PackingBound(intervals);
  std::vector<int> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<Interval> best;
  int64_t best_size = -1;
  const auto attempt = [&] {
    std::vector<Interval> packed = intervals;
    const int64_t size = PackInOrder(packed, order, steps, together);
    if (best_size < 0 || size < best_size) {
      best_size = size;
      best = packed;
    }
    return packed;
  };
  const auto attempt_by = [&](auto less) {
    if (IsGood(best_size, bound)) return;
    std::stable_sort(order.begin(), order.end(), less);
    // What lies above the bound is placed earlier the next time.
    std::vector<Interval> packed = attempt();
    for (int round = 0; round < rounds && !IsGood(best_size, bound); ++round) {
      std::stable_partition(order.begin(), order.end(), [&](int i) {
        const Interval& interval = packed[static_cast<size_t>(i)];
        return interval.offset + AlignUp(interval.bytes, kAlignmentBytes) > bound;
      });
      packed = attempt();
    }
  };
  attempt_by([&](int a, int b) { return bytes(a) != bytes(b) ? bytes(a) > bytes(b) : first(a) < first(b); });
  attempt_by([&](int a, int b) { return length(a) != length(b) ? length(a) > length(b) : bytes(a) > bytes(b); });
  attempt_by([&](int a, int b) {
    const double area_a = static_cast<double>(bytes(a)) * (length(a) + 1), area_b = static_cast<double>(bytes(b)) * (length(b) + 1);
    return area_a > area_b;
  });
  attempt_by([&](int a, int b) { return first(a) < first(b); });
  intervals = std::move(best);
  return std::max<int64_t>(best_size, 0);
}

int64_t PackingBound(const std::vector<Interval>& intervals) {
  std::map<int, int64_t> change;
  for (const Interval& interval : intervals) {
    const int64_t bytes = AlignUp(interval.bytes, kAlignmentBytes);
    change[interval.first] += bytes;
    change[interval.last + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, alive += bytes);
  return most;
}

}  // namespace gradloom
