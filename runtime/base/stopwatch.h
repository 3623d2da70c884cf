// The time since a point of the program.
#pragma once

#include <chrono>

namespace gradloom {

class Stopwatch {
 public:
  double ms() const { return std::chrono::duration<double, std::milli>(Clock::now() - start_).count(); }
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace gradloom
