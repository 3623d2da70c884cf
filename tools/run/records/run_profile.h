// Launch times measured in a run, for the simulator.
#pragma once

#include <string>
#include <vector>

#include "compiler/cost/simulate.h"
#include "runtime/session/trainer.h"

namespace gradloom {

// Times the steps of a run from the fourth on, at most a hundred of them.
class RunProfile : public TrainerObserver {
 public:
  // `plan`: as stored on disk; the profile refers to it. `session` must outlive the profile. `path`: empty in a process that does not lead
  // its job. It times its steps as well, since a timed step is no CUDA graph, and NCCL requires that in all processes alike.
  RunProfile(Session& session, const Plan& plan, std::string path);

  void OnStep(const StepReport& report) override;

  // Writes the medians as JSON. Throws Error(kResource).
  void Finish();

 private:
  Session& session_;
  const std::string path_, plan_hash_;
  int64_t steps_ = 0;
  bool written_ = false;
  std::vector<std::vector<std::vector<double>>> seconds_;  // by program, instruction, step and rank
};

// Reads the profile of a plan. Throws Error(kData) for a file that is not a profile, Error(kConfig) for a profile of another plan.
Profile ReadProfile(const std::string& path, const Plan& plan);

}  // namespace gradloom
