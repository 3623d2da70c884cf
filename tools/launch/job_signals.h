// The signals that a launcher receives, as a file descriptor to poll.
#pragma once

#include <signal.h>

#include <vector>

namespace gradloom {

// While an object lives, the job's signals are read instead of delivered, also for process 1 of a container, which has no default actions.
// At most one object may exist at a time.
class JobSignals {
 public:
  // Throws Error(kResource).
  JobSignals();
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;
  JobSignals& operator=(const JobSignals&) = delete;

  int descriptor() const { return descriptor_; }
  // The signals that have arrived since the last call. Does not block.
  std::vector<int> Take();

 private:
  sigset_t before_;
  int descriptor_ = -1;
};

}  // namespace gradloom
