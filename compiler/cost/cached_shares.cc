#include "compiler/cost/cached_shares.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

namespace gradloom {
namespace {

// When each byte of an arena was touched last, as the number of bytes that had been touched before the operand that it belonged to, by all
// instructions together. So the distance to a later touch includes the operand, which is touched from its start to its end each time.
class TouchedBytes {
 public:
  // Touches [begin, end). `find` is called with each part of it that was touched before, as its bytes and the time of that touch.
  template <typename Find>
  void Touch(int64_t begin, int64_t end, double now, const Find& find) {
    SplitAt(begin);
    SplitAt(end);
    const auto first = parts_.lower_bound(begin), last = parts_.lower_bound(end);
    for (auto part = first; part != last; ++part) find(static_cast<double>(part->second.end - part->first), part->second.time);
    parts_.erase(first, last);
    parts_[begin] = {end, now};
  }

  double bytes() const {
    double sum = 0;
    for (const auto& [begin, part] : parts_) sum += static_cast<double>(part.end - begin);
    return sum;
  }

 private:
  struct Part {
    int64_t end = 0;
    double time = 0;
  };

  void SplitAt(int64_t at) {
    const auto after = parts_.upper_bound(at);
    if (after == parts_.begin()) return;
    const auto part = std::prev(after);
    if (part->first == at || part->second.end <= at) return;
    parts_[at] = part->second;
    part->second.end = at;
  }

  std::map<int64_t, Part> parts_;  // by first byte; they do not overlap
};

constexpr size_t kArenas = static_cast<size_t>(Arena::kInput) + 1;  // kInput is the last

class Touches {
 public:
  Touches(const Program& program, double cache_bytes) : program_(program), cache_bytes_(cache_bytes) {}

  // Runs a step and returns the shares. `footprint`: the bytes that a step touches, each counted once; what was touched in between cannot
  // be more.
  std::vector<double> Step(double footprint) {
    std::vector<double> shares;
    for (const Instruction& instruction : program_.instructions) {
      double all = 0, cached = 0;
      const double now = time_;
      for (const Use& use : instruction.uses) {
        if (use.buffer < 0) continue;
        const Buffer& buffer = program_.buffers[static_cast<size_t>(use.buffer)];
        if (buffer.bytes == 0) continue;
        const auto bytes = static_cast<double>(buffer.bytes);
        all += bytes;
        const auto find = [&](double found, double time) { cached += std::min(now - time, footprint) <= cache_bytes_ ? found : 0; };
        MemoryOf(buffer).Touch(buffer.offset, buffer.offset + buffer.bytes, time_, find);
        time_ += bytes;
      }
      shares.push_back(all > 0 ? std::min(cached / all, 1.0) : 1);
    }
    return shares;
  }

  // The feeds of the next step have just been written.
  void WriteFeeds() {
    for (const Buffer& buffer : program_.buffers) {
      if (buffer.arena != Arena::kFeed || buffer.bytes == 0) continue;
      MemoryOf(buffer).Touch(buffer.offset, buffer.offset + buffer.bytes, time_, [](double, double) {});
      time_ += static_cast<double>(buffer.bytes);
    }
  }

  double Footprint() const {
    double sum = 0;
    for (const TouchedBytes& arena : arenas_) sum += arena.bytes();
    for (const auto& [feed, touched] : feeds_) sum += touched.bytes();
    return sum;
  }

 private:
  TouchedBytes& MemoryOf(const Buffer& buffer) {
    return buffer.arena == Arena::kFeed ? feeds_[buffer.feed] : arenas_[static_cast<size_t>(buffer.arena)];
  }

  const Program& program_;
  const double cache_bytes_;
  double time_ = 0;  // bytes touched so far
  std::array<TouchedBytes, kArenas> arenas_;
  std::map<int, TouchedBytes> feeds_;  // each has its own memory
};

}  // namespace

std::vector<double> CachedShares(const Program& program, double cache_bytes) {
  Touches touches(program, cache_bytes);
  touches.Step(0);
  const double footprint = touches.Footprint();
  touches.WriteFeeds();
  return touches.Step(footprint);
}

}  // namespace gradloom
