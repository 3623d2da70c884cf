#include "tools/run/records/run_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/plan/plan_file.h"

namespace gradloom {
namespace {

constexpr int64_t kWarmUp = 3, kMaxSteps = 100;
constexpr int64_t kMaxBytes = int64_t{256} << 20;

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

RunProfile::RunProfile(Session& session, const Plan& plan, std::string path)
    : session_(session), path_(std::move(path)), plan_hash_(PlanHash(plan)) {
  session_.executor().set_timed(true);
  for (const Program& program : session.plan().programs) seconds_.emplace_back(program.instructions.size());
}

void RunProfile::OnStep(const StepReport&) {
  if (written_ || ++steps_ <= kWarmUp) return;
  const Plan& plan = session_.plan();
  const Entry& entry = plan.entries[static_cast<size_t>(session_.last_entry())];
  seconds_.resize(std::max(seconds_.size(), plan.programs.size()));  // an entry may have been added
  for (const TimedInstruction& timed : session_.executor().LastTimes(session_.last_entry())) {
    const int program = entry.ranks[static_cast<size_t>(timed.rank)].program;
    auto& of_program = seconds_[static_cast<size_t>(program)];
    of_program.resize(plan.programs[static_cast<size_t>(program)].instructions.size());
    of_program[static_cast<size_t>(timed.instruction)].push_back(static_cast<double>(timed.end_ns - timed.begin_ns) * 1e-9);
  }
  if (steps_ == kWarmUp + kMaxSteps) Finish();
}

// Communication is not profiled: its time includes waiting for others, which the simulator computes itself.
void RunProfile::Finish() {
  if (std::exchange(written_, true)) return;
  session_.executor().set_timed(false);
  if (path_.empty()) return;
  nlohmann::ordered_json programs = nlohmann::ordered_json::array();
  for (size_t p = 0; p < seconds_.size(); ++p) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (size_t i = 0; i < seconds_[p].size(); ++i) {
      const Instruction& instruction = session_.plan().programs[p].instructions[i];
      const bool timed = !seconds_[p][i].empty() && instruction.kind == InstructionKind::kLaunch;
      list.push_back(timed ? Median(seconds_[p][i]) : -1);
    }
    programs.push_back(std::move(list));
  }
  const nlohmann::ordered_json all{{"plan", plan_hash_}, {"steps", steps_}, {"seconds", programs}};
  WriteFileAtomically(path_, all.dump() + "\n");
}

Profile ReadProfile(const std::string& path, const Plan& plan) {
  const std::string bytes = ReadWholeFile(path, kMaxBytes);
  const nlohmann::json all = nlohmann::json::parse(bytes, nullptr, false);
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    throw Error(code, why, Escaped(path, 4096), "profiles are written by the train command: --profile FILE");
  };
  if (!all.is_object() || !all.contains("seconds") || !all["seconds"].is_array() || !all.contains("plan") || !all["plan"].is_string()) {
    refuse(ErrorCode::kData, "not a profile");
  }
  if (all["plan"] != PlanHash(plan)) refuse(ErrorCode::kConfig, "the profile belongs to another plan");
  Profile profile;
  for (const nlohmann::json& program : all["seconds"]) {
    std::vector<double>& seconds = profile.emplace_back();
    if (!program.is_array()) refuse(ErrorCode::kData, "not a profile");
    for (const nlohmann::json& value : program) {
      if (!value.is_number()) refuse(ErrorCode::kData, "not a profile");
      seconds.push_back(value.get<double>());
    }
  }
  return profile;
}

}  // namespace gradloom
