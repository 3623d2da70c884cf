// The signals that a launcher gets, as something to poll.
#pragma once

#include <signal.h>

#include <vector>

namespace gradloom {

// While an object lives, the signals of a job are not delivered but read; also by process 1 of a container, for which no default applies.
// At most one object at a time.
class JobSignals {
 public:
  // Throws Error(kResource).
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;
  JobSignals& operator=(const JobSignals&) = delete;

  int descriptor() const { return descriptor_; }
  // Those that have come since the last call. Does not wait.
  std::vector<int> Take();

 private:
  sigset_t before_;
  int descriptor_ = -1;
};

}  // namespace gradloom
