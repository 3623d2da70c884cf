// What launches take on this machine, measured in a run, for the simulator.
#pragma once

#include <string>
#include <vector>

#include "compiler/cost/simulate.h"
#include "runtime/session/trainer.h"

namespace gradloom {

// Times the steps of a run from the fourth on, at most a hundred of them.
class RunProfile : public TrainerObserver {
 public:
  // `plan`: as it is on the disk, which the profile names. `session` must outlive the profile.
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

// The profile of a plan. Throws Error(kData) for a file that is none, Error(kConfig) for one of another plan.
Profile ReadProfile(const std::string& path, const Plan& plan);

}  // namespace gradloom
