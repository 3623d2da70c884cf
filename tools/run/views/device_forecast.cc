#include "tools/run/views/device_forecast.h"

#include <algorithm>
#include <utility>

#include "compiler/cost/cluster.h"
#include "compiler/cost/simulate.h"
#include "runtime/base/counted.h"
#include "runtime/plan/device_spec.h"
#include "runtime/plan/memory_report.h"
#include "tools/report/schedule.h"
#include "tools/report/stream_tables.h"
#include "tools/run/options/described_cluster.h"
#include "tools/run/train/job.h"
#include "tools/run/train/training_job.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

constexpr double kMaxCompileMs = 1000;
// Fewer devices are tried only up to this number.
constexpr int kMaxFewer = 8;

// Whether the number of devices is that of a job's processes. Equal numbers of GPUs may then mean those of several hosts.
bool AreOfJob(const Configuration& configuration) { return configuration.origin("devices.use").place == kJobOrigin; }

// "cuda:2": a device as the user names it, by its index among those of a run.
std::string NameOfDevice(const Configuration& configuration, DeviceKind kind, size_t index) {
  if (kind != DeviceKind::kCuda) return "cpu:" + std::to_string(index);
  const DeviceSpec named = ParseDevices(configuration.Text("devices.use"));
  if (AreOfJob(configuration)) return "device " + std::to_string(index);
  return "cuda:" + std::to_string(index < named.ordinals.size() ? named.ordinals[index] : static_cast<int>(index));
}

// The effect of gathering samples on one device on its memory.
std::string ImbalanceLine(const Configuration& configuration, const Model& model, CompileOptions options, const Plan& plan) {
  const auto tail = static_cast<size_t>(options.recipe.gather_to);
  const std::vector<PlaceMemory> gathered = ReportMemory(plan, 0).places;
  options.control = {};
  options.recipe.gather_to = -1;
  options.recipe.PlaceTogether();
  const PlaceMemory shared = ReportMemory(Compile(model, options), 0).fullest();
  const auto bytes_of = [&](size_t rank) { return gathered[static_cast<size_t>(plan.PlaceOf(rank))].total_bytes(); };
  std::string text =
      "memory with the loss on " + NameOfDevice(configuration, options.recipe.device, tail) + ": " + Bytes(bytes_of(tail)) + " there";
  if (plan.num_ranks() > 1) text += ", " + Bytes(bytes_of(tail == 0 ? 1 : 0)) + " on each of the other devices";
  return text + "; with the loss on every device " + Bytes(shared.total_bytes()) + " each";
}

// The memory of the device that gathers samples because the model relates them.
std::string TailMemoryLine(const Plan& plan) {
  const std::vector<PlaceMemory> places = ReportMemory(plan, 0).places;
  const auto bytes_of = [&](size_t rank) { return places[static_cast<size_t>(plan.PlaceOf(rank))].total_bytes(); };
  return "memory: " + Bytes(bytes_of(0)) + " on the device that gathers, " + Bytes(bytes_of(1)) + " on each of the others";
}

// Predicted steps on several numbers of devices.
struct DeviceForecast {
  bool gpus = false;
  int processes = 1;                                 // of the job that has these devices
  std::vector<std::pair<int, double>> step_seconds;  // by number of devices: 1, 2, 4 ... and the requested number

  // "predicted step: 1 device 0.05 ms, 2 devices 0.1 ms"; empty for one device.
  std::string Line() const;
  // A sentence if fewer devices than requested would be faster; otherwise empty.
  std::string Warning() const;
};

std::string DeviceForecast::Line() const {
  if (step_seconds.size() < 2) return "";
  std::string text = "predicted step:";
  for (const auto& [devices, seconds] : step_seconds) {
    text += (devices == step_seconds.front().first ? " " : ", ") + Counted(devices, "device") + " " + Milliseconds(seconds);
  }
  return text;
}

std::string DeviceForecast::Warning() const {
  if (step_seconds.size() < 2) return "";
  const auto best =
      std::min_element(step_seconds.begin(), step_seconds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best->first == step_seconds.back().first || best->second > 0.95 * step_seconds.back().second) return "";
  const std::string prediction = Counted(best->first, "device") + " would be faster than " + std::to_string(step_seconds.back().first) +
                                 ": " + Milliseconds(best->second) + " per step instead of " + Milliseconds(step_seconds.back().second) +
                                 ", predicted; ";
  // A process of a job has at least one device, whatever --devices says.
  if (processes > 1 && (best->first < processes || gpus)) return prediction + "start the job with fewer processes";
  if (processes > 1) return prediction + "try --devices cpu:" + std::to_string(best->first / processes) + ", of each process";
  std::string names = gpus ? "cuda:0" : best->first == 1 ? "cpu" : "cpu:" + std::to_string(best->first);
  for (int i = 1; gpus && i < best->first; ++i) names += "," + std::to_string(i);
  return prediction + "try --devices " + names;
}

// Compiles the first training step for fewer devices than options.recipe has, with the same total number of threads, and simulates it, as
// well as `plan` for all devices.
DeviceForecast ForecastDevices(const Model& model, const CompileOptions& options, const Plan& plan, const CompileReport& report,
                               const Cluster& cluster) {
  DeviceForecast forecast;
  forecast.gpus = options.recipe.device == DeviceKind::kCuda;
  const int entry = TrainingEntry(plan), devices = options.recipe.devices;
  if (devices < 2 || entry < 0 || report.import_ms + report.passes_ms > kMaxCompileMs) return forecast;
  for (int count = 1; count < devices && count <= kMaxFewer; count *= 2) {
    CompileOptions fewer = options;
    fewer.control = {};
    fewer.recipe.devices = count;
    // A model that was cut to fit needs all of its devices.
    const bool whole = count % static_cast<int>(CopyOfModel(plan.entries[static_cast<size_t>(entry)]).size()) != 0;
    if (whole && options.recipe.memory_limit > 0) continue;
    if (whole || count <= options.recipe.gather_to) fewer.recipe.PlaceTogether();
    if (count <= options.recipe.gather_to) fewer.recipe.gather_to = -1;
    fewer.recipe.threads = std::max(1, options.recipe.threads * devices / count);
    if (cluster.shared_cores > 0) fewer.recipe.threads = std::min(fewer.recipe.threads, cluster.shared_cores);
    fewer.entries = {{EntryKind::kStep, plan.entries[static_cast<size_t>(entry)].batch}};
    forecast.step_seconds.emplace_back(count, SimulateUpdate(Compile(model, fewer), 0, cluster).seconds());
  }
  forecast.step_seconds.emplace_back(devices, SimulateUpdate(plan, entry, cluster).seconds());
  return forecast;
}

}  // namespace

std::string TailLine(const Configuration& configuration, const CompileReport& report, DeviceKind device) {
  if (!report.tail) return "";
  const CompileReport::Tail& tail = *report.tail;
  const std::string name = device == DeviceKind::kCuda ? "cuda:0" : "cpu";
  const std::string why = "samples are related from " + tail.from + " on (" + tail.why + "): ";
  if (tail.nodes == tail.all_nodes)
    return "warning " + why + "nothing can be divided, so the first device computes everything; " +
           (AreOfJob(configuration) ? "start one process instead of a job" : "use --devices " + name);
  return "gather  " + why + "the first device gathers all samples and computes the " + std::to_string(tail.nodes) + " of " +
         std::to_string(tail.all_nodes) + " operators that follow, and their gradients: " + Short(100 * tail.flops_share) +
         " % of the FLOPs of a step; the rest is divided over the devices   [--gather-to none refuses instead]";
}

void AddForecast(const Configuration& configuration, const Model& model, const CompileOptions& options, const Plan& plan,
                 const CompileReport& report, std::vector<std::string>& notes) {
  Cluster cluster = DescribedCluster(configuration.Text("devices.topology"), options.recipe.device);
  if (!AreOfJob(configuration)) cluster.gpus = ParseDevices(configuration.Text("devices.use")).ordinals;
  DeviceForecast forecast = ForecastDevices(model, options, plan, report, cluster);
  if (AreOfJob(configuration)) forecast.processes = TopologyOf(configuration).world;
  if (!forecast.Line().empty()) notes.push_back(forecast.Line());
  if (options.recipe.gather_to >= 0) notes.push_back(ImbalanceLine(configuration, model, options, plan));
  if (report.tail) notes.push_back(TailMemoryLine(plan));
  if (!forecast.Warning().empty()) notes.push_back("warning " + forecast.Warning());
}

}  // namespace gradloom
