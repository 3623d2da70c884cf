// Events, which order the streams of a rank within a step.
#pragma once

#include <atomic>
#include <cstdint>

namespace gradloom {

// Recorded once per step. A step is identified by its number.
class Event {
 public:
  void Record(uint32_t step) {
    step_.store(step, std::memory_order_release);
    step_.notify_all();
  }
  // Waits until the event has been recorded in this step, or in the next one by a stream that runs ahead.
  void Wait(uint32_t step) const {
    for (uint32_t seen; static_cast<int32_t>((seen = step_.load(std::memory_order_acquire)) - step) < 0;) {
      step_.wait(seen, std::memory_order_acquire);
    }
  }

 private:
  std::atomic<uint32_t> step_{0};
};

}  // namespace gradloom
