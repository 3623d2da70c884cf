#include "compiler/cost/shared_device.h"

#include <algorithm>
#include <limits>

namespace gradloom {

constexpr double kNever = std::numeric_limits<double>::infinity();

void SharedDevice::Launch(size_t stream, double fixed, double work) {
  streams_[stream] = {.phase = Phase::kFixed, .work = work, .end = now_ + fixed};
}

double SharedDevice::LeastEnd() const {
  double least = kNever;
  for (const Stream& stream : streams_) least = stream.phase == Phase::kWork ? std::min(least, stream.end) : least;
  return least;
}

double SharedDevice::NextChange() const {
  double next = working_ == 0 ? kNever : now_ + (LeastEnd() - done_) * static_cast<double>(working_) / left_;
  for (const Stream& stream : streams_) next = stream.phase == Phase::kFixed ? std::min(next, stream.end) : next;
  return next;
}

void SharedDevice::AdvanceTo(double time) {
  if (working_ > 0) {
    const double least = LeastEnd(), streams = static_cast<double>(working_) / left_;
    // Exactly the end, if this is the time of one, whatever the rounding.
    done_ = time >= now_ + (least - done_) * streams ? least : done_ + (time - now_) / streams;
  }
  now_ = time;
  for (Stream& stream : streams_) {
    if (stream.phase == Phase::kWork && stream.end <= done_) {
      stream.phase = Phase::kIdle;
      --working_;
    } else if (stream.phase == Phase::kFixed && stream.end <= now_) {
      stream.phase = stream.work > 0 ? Phase::kWork : Phase::kIdle;
      stream.end = done_ + stream.work;
      working_ += stream.work > 0 ? 1 : 0;
    }
  }
}

}  // namespace gradloom
