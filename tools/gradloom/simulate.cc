// gradloom simulate: simulates a step of a plan with discrete events, on this machine or on a cluster that a file describes.
#include "compiler/cost/simulate.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/counted.h"
#include "runtime/base/stopwatch.h"
#include "runtime/plan/entry_names.h"
#include "runtime/plan/plan_file.h"
#include "tools/gradloom/verbs.h"
#include "tools/report/schedule.h"
#include "tools/report/stream_tables.h"
#include "tools/run/options/described_cluster.h"
#include "tools/run/records/run_profile.h"
#include "tools/run/sound_plan.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

struct Flags {
  std::string plan, topology, profile;
  std::vector<int> devices;
  bool json = false;
};

// `one_copy`: the seconds of a step on the devices of one copy of the model.
nlohmann::ordered_json JsonOf(const Plan& plan, const SimulatedUpdate& simulated, double one_copy, double took_ms) {
  nlohmann::ordered_json phases = nlohmann::ordered_json::object();
  const SimulatedProgram& first = simulated.batch.programs.front();
  for (const auto& [phase, seconds] : SecondsByPhase(plan.programs[static_cast<size_t>(first.program)], first)) {
    if (phase != PlanPhase::kNone) phases[std::string(PhaseName(phase)) + "_ms"] = seconds * 1e3;
  }
  return {{"devices", simulated.batch.devices},
          {"step_ms", simulated.seconds() * 1e3},
          {"batches", simulated.batches},
          {"samples", simulated.samples()},
          {"samples_per_second", static_cast<double>(simulated.samples()) / simulated.seconds()},
          {"efficiency", one_copy / simulated.seconds()},
          {"phases_of_a_batch", phases},
          {"communication_ms", simulated.communication() * 1e3},
          {"exposed_ms", simulated.exposed() * 1e3},
          {"critical_instructions", static_cast<size_t>(simulated.before()) * simulated.batch.critical.size() +
                                        (simulated.update ? simulated.update->critical.size() : 0)},
          {"simulated_in_ms", took_ms}};
}

// The times of the batches and the update of a step.
std::string PartsOf(const SimulatedUpdate& simulated) {
  if (!simulated.update) return "";
  const SimulatedProgram& update = simulated.update->programs.front();
  return Counted(simulated.before(), "batch of ", "batches of ") + Milliseconds(simulated.batch.seconds) +
         (simulated.before() == 1 ? ", the " : " each, the ") + (simulated.with_batch ? "last batch with the update " : "update ") +
         Milliseconds(simulated.update->seconds) + ", of which communication " + Milliseconds(update.communication) + " (" +
         Milliseconds(update.exposed) + " exposed); a batch:\n";
}

int Simulate(const Flags& flags) {
  const Plan plan = ReadSoundPlan(flags.plan);
  const Cluster cluster = DescribedCluster(flags.topology, plan.targets.front().device);
  const int index = std::max(TrainingEntry(plan), 0);
  const Entry& entry = plan.entries[static_cast<size_t>(index)];
  nlohmann::ordered_json lines = nlohmann::ordered_json::array();
  const Profile profile = flags.profile.empty() ? Profile() : ReadProfile(flags.profile, plan);
  const auto simulate = [&](int devices) {
    return SimulateUpdate(plan, index, cluster, devices, flags.profile.empty() ? nullptr : &profile);
  };
  // Efficiency compares with one copy of the model, whether or not it is in the list: on one device, unless the plan divides the model.
  const int copy = static_cast<int>(CopyOfModel(entry).size());
  const double one_copy = simulate(copy).seconds();
  for (size_t i = 0; i < flags.devices.size() + 1; ++i) {
    // The plan as it is, then each requested number of devices.
    const int devices = i == 0 ? 0 : flags.devices[i - 1];
    const Stopwatch time;
    const SimulatedUpdate simulated = simulate(devices);
    const double ms = time.ms();
    lines.push_back(JsonOf(plan, simulated, one_copy, ms));
    if (flags.json) continue;
    const int on = simulated.batch.devices;
    const double rate = static_cast<double>(simulated.samples()) / simulated.seconds();
    if (i == 0) {
      std::printf("%s on %d %s: step %s, %s samples/s (predicted)\n%s%s", EntryName(entry).c_str(), on, on == 1 ? "device" : "devices",
                  Milliseconds(simulated.seconds()).c_str(), WithCommas(static_cast<int64_t>(rate)).c_str(), PartsOf(simulated).c_str(),
                  SimulationSummary(plan, simulated.batch).c_str());
      if (!flags.devices.empty()) {
        std::printf("%lld samples %s, efficiency relative to %s:\n%8s %14s %16s %12s %12s\n",
                    static_cast<long long>(entry.ranks[0].shard_length), copy == 1 ? "a device" : "a copy of the model",
                    copy == 1 ? "one device" : ("one copy on " + std::to_string(copy) + " devices").c_str(), "devices", "step", "samples/s",
                    "exposed", "efficiency");
      }
      continue;
    }
    std::printf("%8d %14s %16s %12s %10.1f %%\n", on, Milliseconds(simulated.seconds()).c_str(),
                WithCommas(static_cast<int64_t>(rate)).c_str(), Milliseconds(simulated.exposed()).c_str(),
                100 * one_copy / simulated.seconds());
  }
  if (flags.json) {
    const nlohmann::ordered_json line{
        {"plan", PlanHash(plan)}, {"entry", EntryName(entry)}, {"efficiency_relative_to_devices", copy}, {"simulations", lines}};
    std::printf("%s\n", line.dump().c_str());
  }
  return 0;
}

}  // namespace

Action DeclareSimulate(CLI::App& app) {
  auto flags = std::make_shared<Flags>();
  app.add_option("plan", flags->plan, "a plan file or the folder of a run")->required();
  app.add_option("--topology", flags->topology,
                 "a TOML file that describes a cluster or, from devices --measure, a machine; default: the compiler's own figures");
  app.add_option("--devices", flags->devices,
                 "also simulate these numbers of devices, each with the work of a device of the plan: 8,64,4096")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--profile", flags->profile, "launch times measured by a run (gradloom train --profile FILE); default: the cost model's");
  app.add_flag("--json", flags->json, "print one JSON object");
  return [flags] { return Simulate(*flags); };
}

}  // namespace gradloom
