#include "compiler/passes/memory/pack_intervals.h"

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

// The first step of the stream that comes after every use.
int Over(const PackedInterval& interval, int stream) {
  return interval.over.empty() ? interval.last + 1 : interval.over[static_cast<size_t>(stream)];
}

// The steps of a list of intervals.
struct Extent {
  int streams = 1;
  int steps = 1;  // the last of them + 1
};

Extent ExtentOf(const std::vector<PackedInterval>& intervals) {
  Extent extent;
  for (const PackedInterval& interval : intervals) {
    GRADLOOM_CHECK(interval.first >= 0 && interval.first <= interval.last && interval.bytes >= 0);
    extent.streams = std::max(extent.streams, static_cast<int>(interval.over.size()));
    extent.steps = std::max(extent.steps, interval.last + 1);
  }
  return extent;
}

// Placed intervals, indexed by stream and time, so that few are visited that cannot be in use together with a given one. Each bucket of
// steps holds the indices of the intervals that begin in it on its stream, and of those that began earlier and are not over for its stream
// when it begins.
class PlacedIntervals {
 public:
  explicit PlacedIntervals(const Extent& extent)
      : buckets_(static_cast<size_t>(extent.streams), std::vector<Bucket>(static_cast<size_t>((extent.steps - 1) / kStepsPerBucket + 1))) {}

  void Add(const PackedInterval& interval, int index) {
    const size_t begin = BucketOf(interval.first);
    buckets_[static_cast<size_t>(interval.stream)][begin].begin.push_back(index);
    for (size_t stream = 0; stream < buckets_.size(); ++stream) {
      const size_t end = EndOf(interval, stream);
      for (size_t bucket = begin + 1; bucket < end; ++bucket) buckets_[stream][bucket].continuing.push_back(index);
    }
  }

  // Appends the offset ranges of placed intervals that may be in use together with `interval`, sorted by offset.
  void Overlapping(const std::vector<PackedInterval>& all, const PackedInterval& interval,
                   std::vector<std::pair<int64_t, int64_t>>& ranges) const {
    ranges.clear();
    const auto look = [&](const std::vector<int>& indices) {
      for (int index : indices) {
        const PackedInterval& other = all[static_cast<size_t>(index)];
        if (other.first >= Over(interval, other.stream) || interval.first >= Over(other, interval.stream)) continue;
        ranges.emplace_back(other.offset, other.offset + AlignUp(other.bytes, kAlignmentBytes));
      }
    };
    const size_t begin = BucketOf(interval.first);
    look(buckets_[static_cast<size_t>(interval.stream)][begin].continuing);
    for (size_t stream = 0; stream < buckets_.size(); ++stream) {
      const size_t end = EndOf(interval, stream);
      for (size_t bucket = begin; bucket < end; ++bucket) look(buckets_[stream][bucket].begin);
    }
    std::sort(ranges.begin(), ranges.end());
  }

 private:
  static constexpr int kStepsPerBucket = 16;
  struct Bucket {
    std::vector<int> begin, continuing;
  };

  static size_t BucketOf(int step) { return static_cast<size_t>(step / kStepsPerBucket); }
  // After the last bucket in which the interval may be in use while a step of the stream runs.
  size_t EndOf(const PackedInterval& interval, size_t stream) const {
    return std::min(BucketOf(std::max(Over(interval, static_cast<int>(stream)) - 1, interval.first)) + 1, buckets_[stream].size());
  }

  std::vector<std::vector<Bucket>> buckets_;  // by stream
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

int64_t PackInOrder(std::vector<PackedInterval>& intervals, const std::vector<int>& order, const Extent& extent) {
  PlacedIntervals placed(extent);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  int64_t size = 0;
  for (int index : order) {
    PackedInterval& interval = intervals[static_cast<size_t>(index)];
    placed.Overlapping(intervals, interval, ranges);
    const int64_t bytes = AlignUp(interval.bytes, kAlignmentBytes);
    interval.offset = BestFit(ranges, bytes);
    size = std::max(size, interval.offset + bytes);
    placed.Add(interval, index);
  }
  return size;
}

// Free ranges, by offset and by size. No two are adjacent.
class FreeRanges {
 public:
  // Returns the offset of the smallest range that holds the bytes; -1 if there is none.
  int64_t BestFit(int64_t bytes) const {
    const auto fits = by_size_.lower_bound({bytes, 0});
    return fits == by_size_.end() ? -1 : fits->second;
  }

  // Returns where the range that ends at `end` begins; `end` if there is none.
  int64_t BeginOfLast(int64_t end) const {
    return !by_offset_.empty() && by_offset_.rbegin()->first + by_offset_.rbegin()->second == end ? by_offset_.rbegin()->first : end;
  }

  void Add(int64_t from, int64_t to) {
    const auto after = by_offset_.lower_bound(from);
    if (after != by_offset_.begin()) {
      const auto before = std::prev(after);
      if (before->first + before->second == from) {
        from = before->first;
        Erase(before);
      }
    }
    if (after != by_offset_.end() && after->first == to) {
      to += after->second;
      Erase(after);
    }
    Insert(from, to);
  }

  // Removes what of the range is free.
  void Remove(int64_t from, int64_t to) {
    auto range = by_offset_.lower_bound(from);
    if (range != by_offset_.begin() && std::prev(range)->first + std::prev(range)->second > from) --range;
    while (range != by_offset_.end() && range->first < to) {
      const int64_t begin = range->first, end = begin + range->second;
      range = Erase(range);
      if (begin < from) Insert(begin, from);
      if (end > to) Insert(to, end);
    }
  }

 private:
  void Insert(int64_t from, int64_t to) {
    by_offset_.emplace(from, to - from);
    by_size_.emplace(to - from, from);
  }
  std::map<int64_t, int64_t>::iterator Erase(std::map<int64_t, int64_t>::iterator range) {
    by_size_.erase({range->second, range->first});
    return by_offset_.erase(range);
  }

  std::map<int64_t, int64_t> by_offset_;           // offset -> bytes
  std::set<std::pair<int64_t, int64_t>> by_size_;  // (bytes, offset)
};

// Best fit in order of time. A range is free for a stream when its last owner is over for it: earlier owners were over when that one began.
class TimeOrder {
 public:
  TimeOrder(std::vector<PackedInterval>& intervals, int streams)
      : intervals_(intervals), streams_(static_cast<size_t>(streams)), free_(streams_), in_use_(streams_) {}

  int64_t Run() {
    std::vector<size_t> order(intervals_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return intervals_[a].first < intervals_[b].first; });
    for (size_t index : order) Place(index);
    return end_;
  }

 private:
  struct Owned {
    int64_t end = 0;
    size_t owner = 0;
  };

  void Place(size_t index) {
    PackedInterval& interval = intervals_[index];
    const int64_t bytes = AlignUp(interval.bytes, kAlignmentBytes);
    interval.offset = 0;
    if (bytes == 0) return;
    const auto stream = static_cast<size_t>(interval.stream);
    for (auto& waiting = in_use_[stream]; !waiting.empty() && waiting.top().first <= interval.first; waiting.pop())
      Release(waiting.top().second, free_[stream]);
    interval.offset = free_[stream].BestFit(bytes);
    if (interval.offset < 0) {
      interval.offset = free_[stream].BeginOfLast(end_);
      end_ = interval.offset + bytes;
    }
    for (FreeRanges& free : free_) free.Remove(interval.offset, interval.offset + bytes);
    Own(interval.offset, interval.offset + bytes, index);
    for (size_t s = 0; s < streams_; ++s) {
      if (const int over = Over(interval, static_cast<int>(s)); over != PackedInterval::kNever) in_use_[s].emplace(over, index);
    }
  }

  // Frees what the interval still owns.
  void Release(size_t index, FreeRanges& free) const {
    const int64_t from = intervals_[index].offset, to = from + AlignUp(intervals_[index].bytes, kAlignmentBytes);
    auto range = std::prev(owned_.upper_bound(from));
    for (; range != owned_.end() && range->first < to; ++range) {
      if (range->second.owner == index) free.Add(range->first, range->second.end);
    }
  }

  void Own(int64_t from, int64_t to, size_t index) {
    auto range = owned_.upper_bound(from);
    if (range != owned_.begin()) --range;
    while (range != owned_.end() && range->first < to) {
      const int64_t begin = range->first;
      const Owned before = range->second;
      if (before.end <= from) {
        ++range;
        continue;
      }
      range = owned_.erase(range);
      if (begin < from) owned_.emplace(begin, Owned{from, before.owner});
      if (before.end > to) owned_.emplace(to, Owned{before.end, before.owner});
    }
    owned_.emplace(from, Owned{to, index});
  }

  using Ends = std::priority_queue<std::pair<int, size_t>, std::vector<std::pair<int, size_t>>, std::greater<>>;

  std::vector<PackedInterval>& intervals_;
  const size_t streams_;
  std::vector<FreeRanges> free_;    // by stream
  std::vector<Ends> in_use_;        // by stream: the intervals that are not over for it, by when they will be
  std::map<int64_t, Owned> owned_;  // by offset: who had the range last
  int64_t end_ = 0;                 // nothing beyond this was ever taken
};

// Returns the number of pairs of intervals that may be in use together.
int64_t CountPairs(const std::vector<PackedInterval>& intervals, int streams) {
  std::vector<std::vector<int>> begins(static_cast<size_t>(streams));
  for (const PackedInterval& interval : intervals) begins[static_cast<size_t>(interval.stream)].push_back(interval.first);
  for (std::vector<int>& steps : begins) std::sort(steps.begin(), steps.end());
  int64_t pairs = 0;
  for (const PackedInterval& interval : intervals) {
    for (int s = 0; s < streams; ++s) {
      const std::vector<int>& steps = begins[static_cast<size_t>(s)];
      const auto from = std::upper_bound(steps.begin(), steps.end(), interval.first);
      pairs += std::max<int64_t>(std::lower_bound(from, steps.end(), Over(interval, s)) - from, 0);
    }
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

int64_t PackInOrderOfTime(std::vector<PackedInterval>& intervals) { return TimeOrder(intervals, ExtentOf(intervals).streams).Run(); }

int64_t PackIntervals(std::vector<PackedInterval>& intervals) {
  const Extent extent = ExtentOf(intervals);
  const auto length = [&](int i) { return intervals[static_cast<size_t>(i)].last - intervals[static_cast<size_t>(i)].first; };
  const auto bytes = [&](int i) { return intervals[static_cast<size_t>(i)].bytes; };
  const auto first = [&](int i) { return intervals[static_cast<size_t>(i)].first; };

  const int64_t pairs = CountPairs(intervals, extent.streams);
  if (pairs > kMaxPairs) return PackInOrderOfTime(intervals);
  const auto rounds = static_cast<int>(std::min<int64_t>(16, kRetriedPairs / std::max<int64_t>(pairs, 1)));
  const int64_t bound = PackingBound(intervals);
  std::vector<int> order(intervals.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<PackedInterval> best;
  int64_t best_size = -1;
  const auto attempt = [&] {
    std::vector<PackedInterval> packed = intervals;
    const int64_t size = PackInOrder(packed, order, extent);
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
    std::vector<PackedInterval> packed = attempt();
    for (int round = 0; round < rounds && !IsGood(best_size, bound); ++round) {
      std::stable_partition(order.begin(), order.end(), [&](int i) {
        const PackedInterval& interval = packed[static_cast<size_t>(i)];
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

int64_t PackingBound(const std::vector<PackedInterval>& intervals) {
  std::map<int, int64_t> change;
  for (const PackedInterval& interval : intervals) {
    const int64_t bytes = AlignUp(interval.bytes, kAlignmentBytes);
    change[interval.first] += bytes;
    change[interval.last + 1] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (const auto& [step, bytes] : change) most = std::max(most, alive += bytes);
  return most;
}

}  // namespace gradloom
