// The time of launches that run on several streams of one GPU, of one rank or of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradloom {

// A launch has a fixed cost, in which the device does nothing, and then its work. Fixed costs overlap with everything; the works that run
// at a time share the device equally. This holds for kernels that fill a GPU. It is too slow for those that leave room for others, and for
// pairs of which one waits for arithmetic and the other for memory. Collectives take a share of the device from all works.
class SharedDevice {
 public:
  explicit SharedDevice(size_t streams) : streams_(streams) {}

  // Starts a launch on an idle stream now. `fixed` and `work` in seconds, of a launch that runs alone.
  void Launch(size_t stream, double fixed, double work);
  bool busy(size_t stream) const { return streams_[stream].phase != Phase::kIdle; }

  // From now on, something else takes this share of the device, less than 1.
  void SetTaken(double share) { left_ = 1 - share; }

  // The next time, in seconds, at which a launch ends or begins its work; infinity if nothing runs.
  double NextChange() const;
  // Moves the clock, which begins at 0, forward to a time that is at most NextChange().
  void AdvanceTo(double time);

 private:
  enum class Phase : uint8_t { kIdle, kFixed, kWork };
  struct Stream {
    Phase phase = Phase::kIdle;
    double work = 0;
    double end = 0;  // of the fixed cost: a time; of the work: a value of done_
  };

  // The least `end` of the streams that work.
  double LeastEnd() const;

  std::vector<Stream> streams_;
  double now_ = 0;
  double left_ = 1;     // the share of the device that works have together
  double done_ = 0;     // the work that each stream would have done that was working all the time
  size_t working_ = 0;  // the number of streams that work
};

}  // namespace gradloom
