#include "runtime/checkpoint/plan_identity.h"

#include <algorithm>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/hash.h"
#include "runtime/plan/text.h"

namespace gradloom {
namespace {

constexpr size_t kLongestText = 300;
// These follow from the other parts; they are named only if all of those are equal.
const std::string kState = "state", kInstructions = "instructions";

std::string Listed(const Attributes& attributes) {
  std::string text;
  for (const auto& [name, value] : attributes) text += (text.empty() ? "" : ", ") + name + "=" + Attributes::ToString(value);
  return text;
}

std::string Joined(const std::set<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) joined += (joined.empty() ? "" : "; ") + text;
  return joined.size() <= kLongestText ? joined : HashText(HashOf(joined));
}

// The operators that write parameters and their averages, with their attributes.
std::string OptimizerText(const Plan& plan, const std::set<int>& programs) {
  std::set<std::pair<int, int64_t>> parameters;  // places and offsets
  for (size_t place = 0; place < plan.places.size(); ++place) {
    for (const StateTensor& state : plan.state) {
      const bool updated = state.kind == StateKind::kParameter || state.kind == StateKind::kAverage;
      if (updated && state.in_place(static_cast<int>(place))) parameters.emplace(static_cast<int>(place), state.offset);
    }
  }
  std::set<std::string> texts;
  for (int index : programs) {
    const Program& program = plan.programs[static_cast<size_t>(index)];
    for (const Instruction& instruction : program.instructions) {
      const bool updates = std::any_of(instruction.uses.begin(), instruction.uses.end(), [&](const Use& use) {
        if (use.access != Access::kWrite || use.buffer < 0) return false;
        const Buffer& buffer = program.buffers[static_cast<size_t>(use.buffer)];
        return buffer.arena == Arena::kState && parameters.contains({program.place, buffer.offset});
      });
      if (!updates || instruction.kind == InstructionKind::kCollective) continue;  // a broadcast passes on what another device has updated
      Attributes options = instruction.attributes;
      for (const char* form : {"tensors", "copy_type"}) options.erase(form);
      texts.insert(instruction.op + "(" + Listed(options) + ")");
    }
  }
  return Joined(texts);
}

std::string StateTable(const Plan& plan) {
  Hash hash;
  int64_t tensors = 0;
  for (const StateTensor& state : plan.state) {
    if (state.derived()) continue;
    ++tensors;
    const std::string line = state.name + '\n' + std::string(DTypeName(state.dtype)) + state.shape.ToString() + '\n';
    hash.Add(line.data(), static_cast<int64_t>(line.size()));
  }
  return std::to_string(tensors) + " tensors, " + HashText(hash.value());
}

std::string ConstantsText(const Plan& plan) {
  Hash hash;
  for (const Constant& constant : plan.constants) {
    const std::string line =
        constant.name + '\n' + std::string(DTypeName(constant.value.dtype())) + constant.value.shape().ToString() + '\n';
    hash.Add(line.data(), static_cast<int64_t>(line.size()));
    hash.Add(constant.value.data(), constant.value.bytes());
  }
  return std::to_string(plan.constants.size()) + " tensors, " + HashText(hash.value());
}

}  // namespace

PlanIdentity IdentityOf(const Plan& plan) {
  PlanIdentity identity{plan.model.name, plan.model.hash, {}, ""};
  auto& parts = identity.parts;
  std::set<int> programs;
  std::set<std::string> sizes, targets, threads;
  for (const Entry& entry : plan.entries) {
    if (IsForwardOnly(entry.kind)) continue;
    if (entry.kind != EntryKind::kUpdate) sizes.insert(std::to_string(entry.batch));
    for (const RankBinding& rank : entry.ranks) programs.insert(rank.program);
  }
  std::string text;
  for (int index : programs) {
    const Program& program = plan.programs[static_cast<size_t>(index)];
    text += ProgramText(program);
    for (const Stream& stream : program.streams) threads.insert(std::to_string(stream.threads));
  }
  for (const Target& target : plan.targets) targets.insert(std::string(DeviceKindName(target.device)) + " " + target.isa);
  parts["machine"] = Joined(targets);
  parts[kThreadsPart] = Joined(threads);
  parts["batch sizes"] = Joined(sizes);
  parts["batches per update"] = std::to_string(plan.accumulate);
  parts["learning rate"] = Joined({plan.schedule.kind + " from " + Attributes::ToString(plan.schedule.lr) +
                                   (plan.schedule.attributes.empty() ? "" : " (" + Listed(plan.schedule.attributes) + ")")});
  parts["optimizer"] = OptimizerText(plan, programs);
  if (const auto loss = plan.properties.find("loss"); loss != plan.properties.end()) parts["loss"] = Joined({loss->second});
  parts[kState] = StateTable(plan);
  parts["constants"] = ConstantsText(plan);
  parts[kInstructions] = HashText(HashOf(text));
  std::string all = plan.model.hash + '\n';
  for (const auto& [name, value] : parts) all += name + '\n' + value + '\n';
  identity.hash = HashText(HashOf(all));
  return identity;
}

std::vector<std::string> DifferencesOf(const PlanIdentity& there, const PlanIdentity& here, const std::string& in_there,
                                       const std::string& in_here) {
  std::vector<std::string> differences;
  const auto compare = [&](const std::string& name, const std::string& a, const std::string& b) {
    if (a != b)
      differences.push_back(name + ": " + Escaped(a, kLongestText) + " " + in_there + ", " + Escaped(b, kLongestText) + " " + in_here);
  };
  if (there.model_hash != here.model_hash) {
    compare("model", "'" + there.model_name + "' (" + there.model_hash + ")", "'" + here.model_name + "' (" + here.model_hash + ")");
  }
  const auto compare_part = [&](const std::string& name) {
    const auto a = there.parts.find(name), b = here.parts.find(name);
    compare(name, a == there.parts.end() ? "unknown" : a->second, b == here.parts.end() ? "unknown" : b->second);
  };
  for (const auto& [name, value] : here.parts) {
    if (name != kState && name != kInstructions) compare_part(name);
  }
  for (const std::string& name : {kState, kInstructions}) {
    if (differences.empty()) compare_part(name);
  }
  // The differing part is known only to another version.
  if (differences.empty()) compare("plan", there.hash, here.hash);
  return differences;
}

}  // namespace gradloom
