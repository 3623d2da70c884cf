// gradloom inspect, verify, export and diff: operations on existing plans and runs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "compiler/cost/simulate.h"
#include "compiler/onnx/export/export.h"
#include "runtime/base/file.h"
#include "runtime/base/listing.h"
#include "runtime/base/stopwatch.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/plan/entry_names.h"
#include "runtime/plan/memory_json.h"
#include "runtime/plan/memory_report.h"
#include "runtime/plan/plan_file.h"
#include "runtime/plan/settled.h"
#include "runtime/plan/text.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/report/stream_tables.h"
#include "tools/run/options/described_cluster.h"
#include "tools/run/outputs.h"
#include "tools/run/partial_files.h"
#include "tools/run/serve/trained_model.h"
#include "tools/run/sound_plan.h"
#include "tools/run/train/initial_weights.h"
#include "tools/run/train/run_folder.h"
#include "tools/run/train/stored_tensors.h"
#include "tools/run/train/training_export.h"
#include "tools/run/views/comparison.h"
#include "tools/run/views/inspection.h"
#include "tools/run/views/placed_model.h"
#include "tools/run/views/plan_pages.h"
#include "tools/screen/json_line.h"
#include "tools/screen/screen.h"
#include "tools/screen/shell_word.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

int64_t InstructionsOf(const Plan& plan) {
  int64_t count = 0;
  for (const Program& program : plan.programs) count += static_cast<int64_t>(program.instructions.size());
  return count;
}

// "device 1", "devices 1, 3, 5".
std::string RanksOfPlace(const Plan& plan, int place) {
  Listing ranks(4);
  for (size_t rank = 0; rank < plan.num_ranks(); ++rank) {
    if (plan.PlaceOf(rank) == place) ranks.Add(std::to_string(rank));
  }
  return (ranks.count() == 1 ? "device " : "devices ") + ranks.text();
}

void PrintMemory(const Plan& plan) {
  const MemoryReport report = ReportMemory(plan);
  const auto line = [](const char* what, int64_t bytes) {
    if (bytes > 0) std::printf("  %-18s %12s\n", what, Bytes(bytes).c_str());
  };
  for (size_t i = 0; i < report.places.size(); ++i) {
    const PlaceMemory& place = report.places[i];
    const std::string name = report.places.size() == 1 ? "" : RanksOfPlace(plan, static_cast<int>(i)) + ": ";
    std::printf("%sstate %s\n", name.c_str(), Bytes(place.state_bytes).c_str());
    line("parameters", place.parameters);
    line("statistics", place.statistics);
    line("optimizer", place.optimizer);
    line("gradient sums", place.accumulators);
    line("16-bit copies", place.weight_copies);
    line("averages", place.averages);
    std::printf("%sconstants %s\n", name.c_str(), Bytes(place.constants_bytes).c_str());
    if (place.input_bytes > 0) std::printf("%sinput slots %s\n", name.c_str(), Bytes(place.input_bytes).c_str());
    if (report.places.size() > 1) std::printf("%stotal %s\n", name.c_str(), Bytes(place.total_bytes()).c_str());
  }
  for (size_t i = 0; i < report.programs.size(); ++i) {
    const ProgramMemory& memory = report.programs[i];
    std::printf("%s: arena %s, fullest at instruction %d\n", EntryTitle(plan, i).c_str(), Bytes(memory.transient_bytes).c_str(),
                memory.fullest);
    line("activations", memory.activations);
    line("gradients", memory.gradients);
    line("scratch", memory.scratch);
    for (const LargeBuffer& buffer : memory.largest) {
      std::printf("  %18s   %s  %s\n", Bytes(buffer.bytes).c_str(), Escaped(buffer.name, 60).c_str(), Escaped(buffer.origin, 60).c_str());
    }
  }
  std::printf(report.places.size() == 1 ? "total %s per device\n" : "at most %s per device\n",
              Bytes(report.fullest().total_bytes()).c_str());
}

struct InspectFlags {
  std::string path, topology;
  PlanPages pages;
  bool graph = false, memory = false, streams = false, json = false;
};

// Prints the first entry, which is a training entry if the plan has one, with its predicted times.
void PrintSchedule(const Plan& plan, const Cluster& cluster) {
  const Simulation simulation = Simulate(plan, 0, cluster);
  const Entry& entry = plan.entries[0];
  std::printf("%s, predicted %s\n%s", EntryName(entry).c_str(), Milliseconds(simulation.seconds).c_str(),
              SimulationSummary(plan, simulation).c_str());
  for (const SimulatedProgram& simulated : simulation.programs) {
    std::printf("program %d\n%s", simulated.program,
                StreamTables(plan.programs[static_cast<size_t>(simulated.program)], simulated).c_str());
  }
}

int InspectOther(const InspectFlags& flags, const Inspection& inspection) {
  if (flags.graph || flags.memory || flags.streams || !flags.pages.empty() || !flags.topology.empty()) {
    throw Error(ErrorCode::kConfig, "--graph, --memory, --streams, --topology, --html, --onnx and --dot need a plan",
                Escaped(flags.path, 4096),
                "gradloom inspect " + ShellWord(flags.path) + "   shows this file; the compile command makes plans");
  }
  const std::string json = inspection.json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::printf("%s", flags.json ? json.c_str() : inspection.Text().c_str());
  return 0;
}

int Inspect(const InspectFlags& flags) {
  switch (KindOfInspected(flags.path)) {
    case InspectedKind::kModel: return InspectOther(flags, InspectModel(flags.path));
    case InspectedKind::kCheckpoint:
    case InspectedKind::kWeights: return InspectOther(flags, InspectCheckpoint(flags.path));
    case InspectedKind::kData: return InspectOther(flags, InspectData(flags.path));
    case InspectedKind::kPlan: break;
  }
  if (!flags.topology.empty() && !flags.streams && flags.pages.html.empty()) {
    throw Error(ErrorCode::kConfig, "only --streams and --html show predicted times", "--topology " + Escaped(flags.topology, 4096),
                "add one of them, or leave out --topology");
  }
  // The text can show any plan, so that a rejected plan can be inspected.
  const bool other = flags.json || flags.memory || flags.streams || !flags.pages.empty();
  if (flags.graph || !other) {
    const Plan plan = ReadPlan(PlanPathOf(flags.path));
    std::printf("%s%s", PlanText(plan).c_str(), SettledText(plan).c_str());
  }
  if (!other) return 0;
  const Plan plan = ReadSoundPlan(flags.path);
  const Cluster cluster = DescribedCluster(flags.topology, plan.targets.front().device);
  if (!flags.pages.empty()) WritePages(plan, flags.pages, cluster);
  if (flags.json) {
    std::printf("%s\n", MemoryJson(plan, PlanHash(plan)).c_str());
  } else if (flags.memory) {
    PrintMemory(plan);
  }
  if (flags.streams) PrintSchedule(plan, cluster);
  return 0;
}

int Verify(const std::string& path, bool json) {
  const Plan plan = ReadPlan(PlanPathOf(path));
  const Stopwatch time;
  ProveSound(plan);
  const double ms = time.ms();
  const std::vector<std::vector<int>> independent = IndependentRanks(plan);
  if (json) {
    const nlohmann::json line{{"plan", PlanHash(plan)},           {"sound", true},
                              {"programs", plan.programs.size()}, {"instructions", InstructionsOf(plan)},
                              {"independent", independent},       {"ms", ms}};
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  std::printf("plan %s is sound: %zu programs, %s instructions, proved in %.1f ms\n", PlanHash(plan).substr(0, 8).c_str(),
              plan.programs.size(), WithCommas(InstructionsOf(plan)).c_str(), ms);
  if (independent.size() > 1) {
    std::printf("%zu groups of devices share no memory and never communicate:", independent.size());
    for (const std::vector<int>& group : independent) {
      std::string text;
      for (int rank : group) text += (text.empty() ? "" : ",") + std::to_string(rank);
      std::printf(" [%s]", text.c_str());
    }
    std::printf("\n");
  }
  return 0;
}

struct ExportFlags {
  TrainedSource source;
  std::string out;
  std::vector<std::string> outputs;  // those to keep; empty: all
  bool training = false, placement = false, json = false;
};

// Writes the weights alone, with those that the run keeps frozen. Returns their number.
size_t ExportWeights(const std::string& run, const TrainedValues& values, const std::string& out) {
  const std::map<std::string, Tensor> frozen = FrozenWeightsOfRun(run);
  std::map<std::string, TensorView> types = values.types;
  for (const auto& [name, tensor] : frozen) types.emplace(name, TensorView{tensor.dtype(), tensor.shape(), nullptr});
  AtomicFile file(out);
  const auto elements = [&](const std::string& name, const WriteBytes& write) {
    const Tensor value = values.types.contains(name) ? values.read(name) : frozen.at(name);
    write(value.data(), value.bytes());
  };
  WriteSafetensors([&](const void* data, int64_t bytes) { file.Write(data, bytes); }, types, elements);
  file.Commit();
  return types.size();
}

// The configuration of the run that is exported. Throws Error(kConfig) for a plan.
Configuration ConfigurationOfRun(const ExportFlags& flags) {
  if (RunFolder::IsRun(flags.source.path)) return ConfigurationFlags().Resolve(RunFolder::Open(flags.source.path).ConfigPath());
  throw Error(ErrorCode::kConfig, "a plan file does not contain the recipe", Escaped(flags.source.path, 4096),
              std::string("pass the folder of a run for ") + (flags.training ? "--training" : "--placement"));
}

int Export(const ExportFlags& flags) {
  const auto& [source, out, outputs, training, placement, json] = flags;
  const Plan plan = ReadPlan(PlanPathOf(source.path), PlanTensors::kSkipped);
  std::vector<std::string> notes;
  const StoredTensors stored = OpenWeights(source, notes);
  CheckCanWrite(out);
  if (out.ends_with(".onnx")) RemovePartialFileOnSignal(out + ".data");
  // Each weight is in memory only while it is written.
  TrainedValues values{.types = TypesOfWeights(plan, stored, notes), .read = {}};
  // What continues training needs the weights besides their averages.
  const std::map<std::string, std::string> stored_as = TrainedTensors(plan, stored, source.averages && !training, notes);
  NonFiniteWeights non_finite;
  std::set<std::string> read;
  values.read = [&](const std::string& name) {
    Tensor value = stored.Read(stored_as.at(name));
    if (read.insert(name).second) non_finite.Add(name, value.view());
    return value;
  };
  size_t tensors = values.types.size();
  ExportOptions options{.outputs = outputs};
  Configuration configuration;
  if (training || placement) configuration = ConfigurationOfRun(flags);
  DevicePlacement placed;
  if (placement) {
    placed = PlacementOf(plan, ReadAll(values), configuration);
    options.placement = &placed;
  }
  if (training && out.ends_with(".onnx")) {
    ExportTraining(plan, stored, values, configuration, out, options, notes);
  } else if (out.ends_with(".safetensors") && !training && outputs.empty()) {
    tensors = ExportWeights(source.path, values, out);
  } else if (out.ends_with(".onnx")) {
    ExportTrained(plan.model, values, out, options);
  } else {
    throw Error(ErrorCode::kConfig,
                training           ? "the training of a model must be written as .onnx"
                : !outputs.empty() ? "a model with some of its outputs must be written as .onnx"
                                   : "a trained model must be written as .onnx, its weights alone as .safetensors",
                Escaped(out, 4096), "use -o trained.onnx");
  }
  if (const std::string line = non_finite.Warning(stored.path()); !line.empty()) notes.push_back(line);
  for (const std::string& note : notes) LogToStderr(note);
  if (json) std::printf("%s\n", JsonLine({{"tensors", tensors}, {"weights", stored.path()}, {"output", out}}).c_str());
  LogToStderr(std::to_string(tensors) + " tensors of " + Escaped(stored.path(), 4096) + " -> " + Escaped(out, 4096));
  return 0;
}

int Diff(const std::string& a, const std::string& b, bool json) {
  const Comparison comparison = Compare(a, b);
  if (json) {
    const nlohmann::json line{{"kind", comparison.kind}, {"same", comparison.same()}, {"differences", comparison.lines}};
    std::printf("%s\n", JsonLine(line).c_str());
  } else {
    for (const std::string& line : comparison.lines) std::printf("%s\n", line.c_str());
    if (comparison.same()) std::printf("the %s are identical\n", comparison.kind.c_str());
  }
  return comparison.same() ? 0 : ExitCode(ErrorCode::kCheckFailed);
}

}  // namespace

Action DeclareInspect(CLI::App& app) {
  auto flags = std::make_shared<InspectFlags>();
  app.add_option("path", flags->path, "a plan, the folder of a run, a checkpoint, a weights file, an ONNX model, or data")->required();
  CLI::Option* graph = app.add_flag("--graph", flags->graph, "print the plan as text (the default)");
  app.add_flag("--memory", flags->memory, "print planned bytes by role, and the largest buffers with their nodes");
  CLI::Option* streams =
      app.add_flag("--streams", flags->streams,
                   "print a table per stream: instructions with predicted times, operands and events; and the critical path");
  app.add_option("--topology", flags->topology,
                 "with --streams or --html: predict for the cluster or the machine that a TOML file describes; default: this machine, by "
                 "the compiler's own figures");
  app.add_option("--html", flags->pages.html, "write an HTML page with the graph, the time line and the memory map");
  app.add_option("--onnx", flags->pages.onnx,
                 "write the schedule as an ONNX file for Netron: device, stream and events in the nodes' metadata");
  app.add_option("--dot", flags->pages.dot, "write the first device's program for Graphviz");
  app.add_flag("--json", flags->json, "print one JSON object; for a plan, its memory")->excludes(graph)->excludes(streams);
  return [flags] { return Inspect(*flags); };
}

Action DeclareVerify(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  app.add_option("plan", *path, "a plan file or the folder of a run")->required();
  app.add_flag("--json", *json, "print one JSON object");
  return [path, json] { return Verify(*path, *json); };
}

Action DeclareExport(CLI::App& app) {
  auto flags = std::make_shared<ExportFlags>();
  app.add_option("run", flags->source.path, "the folder of a run, or a plan")->required();
  app.add_option("--weights", flags->source.weights,
                 "a safetensors file, the index of several, or a checkpoint's folder, instead of the run's own weights");
  app.add_option("--from", flags->source.from, "a checkpoint of the run (step-000500), or best; default: the newest state");
  app.add_flag("!--no-ema", flags->source.averages, "write the weights of the last update, not their moving averages");
  app.add_option("-o,--output", flags->out, "the file to write: .onnx, or .safetensors for weights only")->required();
  CLI::Option* outputs =
      app.add_option("--outputs", flags->outputs, "an output to keep, with what it needs; once per output; default: all of them");
  outputs->allow_extra_args(false);
  app.add_flag("--training", flags->training,
               "include loss, gradients, updates and their states as ONNX's training_info, to continue training from")
      ->excludes(outputs);
  app.add_flag("--placement", flags->placement, "include the run's devices as ONNX's multi-device annotations")->excludes(outputs);
  app.add_flag("--json", flags->json, "print one JSON object");
  return [flags] { return Export(*flags); };
}

Action DeclareDiff(CLI::App& app) {
  auto paths = std::make_shared<std::pair<std::string, std::string>>();
  auto json = std::make_shared<bool>(false);
  app.add_option("a", paths->first,
                 "the folder of a run, a plan, or weights (a .safetensors file, the index of several, or a checkpoint's folder)")
      ->required();
  app.add_option("b", paths->second, "another of the same kind")->required();
  app.add_flag("--json", *json, "print one JSON object");
  return [paths, json] { return Diff(paths->first, paths->second, *json); };
}

}  // namespace gradloom
