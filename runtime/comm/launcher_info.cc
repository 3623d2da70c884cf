#include "runtime/comm/launcher_info.h"

#include <algorithm>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/read_number.h"
#include "runtime/comm/endpoint.h"

namespace gradloom {
namespace {

// Ports for jobs that have a name or a number of their own.
constexpr int64_t kFirstJobPort = 15000;
constexpr uint64_t kJobPorts = 10000;

// FNV-1a.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// The variables of a launcher that describes a process with plain numbers. Each entry lists names separated by spaces; the first one that
// is set counts.
struct LauncherNames {
  const char* launcher;
  std::array<const char*, kJobFields> names;  // indexed by JobField
  const char* address;
};

constexpr LauncherNames kOverrides = {"GRADLOOM_* variables",
                                      {"GRADLOOM_RANK", "GRADLOOM_WORLD_SIZE", "GRADLOOM_LOCAL_RANK", "GRADLOOM_LOCAL_WORLD_SIZE",
                                       "GRADLOOM_NODE_RANK", "GRADLOOM_NNODES", "GRADLOOM_MASTER_PORT"},
                                      "GRADLOOM_MASTER_ADDR"};

// NODE_RANK is set by Lightning.
constexpr LauncherNames kTorch = {
    "environment",
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK NODE_RANK", "GROUP_WORLD_SIZE", "MASTER_PORT"},
    "MASTER_ADDR"};

// The variables of the step take precedence over those of the allocation.
constexpr LauncherNames kSlurm = {"Slurm",
                                  {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS SLURM_NTASKS SLURM_NPROCS", "SLURM_LOCALID", "", "SLURM_NODEID",
                                   "SLURM_STEP_NUM_NODES SLURM_NNODES SLURM_JOB_NUM_NODES", ""},
                                  ""};

// OMPI_COMM_WORLD_NODE_RANK numbers the processes of a node over all its jobs; it is not the number of a node.
constexpr LauncherNames kMpi[] = {
    {"Open MPI",
     {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "", ""},
     ""},
    {"MVAPICH2", {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", "", "", ""}, ""},
    {"Cray PALS", {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", "PALS_NODEID", "", ""}, ""},
    // Hydra (MPICH, Intel MPI) and Cray's PMI.
    {"MPI (PMI)", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID PMI_LOCAL_RANK", "MPI_LOCALNRANKS PMI_LOCAL_SIZE", "", "", ""}, ""},
    {"Cray ALPS", {"ALPS_APP_PE", "", "", "", "", "", ""}, ""},
    {"PMIx", {"PMIX_RANK", "", "", "", "", "", ""}, ""},
};

class Reader {
 public:
  explicit Reader(const EnvironmentVariables& variables) : variables_(variables) {}

  // An empty variable counts as unset.
  const std::string* Find(std::string_view name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() || found->second.empty() ? nullptr : &found->second;
  }
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // The first of these names that is set; "" if none is.
  std::string_view FirstOf(std::string_view names) const {
    while (!names.empty()) {
      const std::string_view name = names.substr(0, names.find(' '));
      if (Has(name)) return name;
      names.remove_prefix(std::min(name.size() + 1, names.size()));
    }
    return {};
  }

  std::string Text(std::string_view names) const {
    const std::string_view name = FirstOf(names);
    return name.empty() ? "" : *Find(name);
  }

  // "NAME=VALUE".
  std::string Source(std::string_view name) const { return std::string(name) + "=" + Escaped(*Find(name), 80); }

  // A value that is not a whole number is stored as -1, which is an error where it is used.
  std::optional<SourcedNumber> Number(std::string_view names) const {
    const std::string_view name = FirstOf(names);
    if (name.empty()) return std::nullopt;
    return SourcedNumber{std::max<int64_t>(ReadNumber<int64_t>(*Find(name)).value_or(-1), -1), Source(name)};
  }

  LauncherInfo Info(const LauncherNames& names) const {
    LauncherInfo info{.launcher = names.launcher};
    for (size_t i = 0; i < kJobFields; ++i) info.fields[i] = Number(names.names[i]);
    info.address = Text(names.address);
    return info;
  }

 private:
  const EnvironmentVariables& variables_;
};

LauncherInfo InfoOfFlags(const JobFlags& flags) {
  LauncherInfo info{.launcher = "flags", .overrides = true};
  const auto set = [&](JobField field, const char* flag, const std::optional<int64_t>& value) {
    if (value) info.fields[field] = SourcedNumber{*value, std::string(flag) + " " + std::to_string(*value)};
  };
  set(kRank, "--rank", flags.rank);
  set(kWorld, "--world-size", flags.world);
  set(kLocalRank, "--local-rank", flags.local_rank);
  set(kLocalWorld, "--local-world-size", flags.local_world);
  set(kNode, "--node-rank", flags.node);
  set(kNodes, "--nnodes", flags.nodes);
  set(kPort, "--master-port", flags.master_port);
  info.address = flags.master_address;
  return info;
}

LauncherInfo InfoOfTorch(const Reader& reader) {
  LauncherInfo info = reader.Info(kTorch);
  const bool alone_on_its_host = !info.has(kLocalRank) && !info.has(kLocalWorld) && !info.has(kNode);
  if (reader.Has(kLauncherVariable)) {
    info.launcher = reader.Text(kLauncherVariable);
  } else if (reader.Has("TORCHELASTIC_RUN_ID")) {
    info.launcher = "torchrun";
  } else if (alone_on_its_host && reader.Has("KUBERNETES_PORT")) {
    // A PyTorchJob gives each pod a rank. On Alibaba's PAI the same variables count pods, each of which has to start NPROC_PER_NODE
    // processes.
    info.launcher = "Kubernetes";
  }
  // A log then says which attempt it belongs to.
  const std::optional<SourcedNumber> restart = reader.Number("TORCHELASTIC_RESTART_COUNT");
  if (info.has(kRank) && restart && restart->value > 0) {
    const std::optional<SourcedNumber> most = reader.Number("TORCHELASTIC_MAX_RESTARTS");
    info.notes.push_back("restart " + std::to_string(restart->value) +
                         (most && most->value >= restart->value ? " of at most " + std::to_string(most->value) : ""));
  }
  const std::optional<SourcedNumber> per_node = reader.Number("NPROC_PER_NODE");
  if (alone_on_its_host && info.has(kRank) && info.has(kWorld) && per_node && per_node->value > 1) {
    info.notes.push_back(info.fields[kWorld]->source + " is taken as the number of processes; if it is the number of hosts, with " +
                         per_node->source + " each, run: gradloom launch --nnodes " + std::to_string(info.value(kWorld)) + " --node-rank " +
                         std::to_string(info.value(kRank)) + " --nproc-per-node " + std::to_string(per_node->value) + " -- train ...");
  }
  return info;
}

// PET_* are torchrun's flags as variables: they describe what torchrun would start on this host. A process that was started without
// torchrun is a rank of that job only if there is one process per host.
LauncherInfo InfoOfPet(const Reader& reader) {
  LauncherInfo info{.launcher = "PET_* variables"};
  if (!reader.Has("PET_NNODES") && !reader.Has("PET_NPROC_PER_NODE")) return info;
  const auto one = [&](const char* name) { return reader.Has(name) ? reader.Number(name) : SourcedNumber{1, std::string(name) + "=1"}; };
  const std::optional<SourcedNumber> nodes = one("PET_NNODES"), per_node = one("PET_NPROC_PER_NODE");
  const std::string both = nodes->source + " " + per_node->source;
  // As in `launch`, both parts of the endpoint may be given by themselves.
  const Endpoint endpoint = EndpointOf(reader.Text("PET_RDZV_ENDPOINT"));
  info.address = reader.Has("PET_MASTER_ADDR") ? reader.Text("PET_MASTER_ADDR") : endpoint.host;
  info.fields[kPort] = reader.Number("PET_MASTER_PORT");
  if (!info.has(kPort) && endpoint.port != -1)
    info.fields[kPort] = SourcedNumber{std::max(endpoint.port, -1), reader.Source("PET_RDZV_ENDPOINT")};
  info.rank_problem = both + " configures torchrun, but torchrun did not start this process";
  if (nodes->value < 1 || per_node->value < 1) return info;
  info.fields[kNodes] = nodes;
  info.fields[kNode] =
      nodes->value == 1 && !reader.Has("PET_NODE_RANK") ? SourcedNumber{0, "PET_NODE_RANK=0"} : reader.Number("PET_NODE_RANK");
  info.fields[kWorld] = SourcedNumber{nodes->value * per_node->value, both};
  info.fields[kLocalWorld] = per_node;
  if (per_node->value == 1) {
    info.fields[kRank] = info.fields[kNode];
    info.fields[kLocalRank] = SourcedNumber{0, per_node->source};
  }
  return info;
}

// The number of tasks of the node according to "2(x3),1": nodes 0, 1 and 2 have two, node 3 has one. 0 if the list does not tell.
int64_t TasksOf(std::string_view list, int64_t node) {
  while (!list.empty()) {
    const std::string_view item = list.substr(0, list.find(','));
    std::string_view rest = item;
    const std::optional<int64_t> tasks = TakeNumber<int64_t>(rest);
    if (!tasks) return 0;
    int64_t times = 1;
    if (const size_t x = rest.find("(x"); x != std::string_view::npos) {
      rest.remove_prefix(x + 2);
      times = TakeNumber<int64_t>(rest).value_or(1);
    }
    if (node < times) return *tasks;
    node -= times;
    list.remove_prefix(std::min(item.size() + 1, list.size()));
  }
  return 0;
}

void AddSlurmMaster(const Reader& reader, const char* lists, LauncherInfo& info) {
  const std::string list = reader.Text(lists), job = reader.Text("SLURM_JOB_ID SLURM_JOBID");
  if (list.empty()) return;
  info.address = HostsOf(list).front();
  const std::string digits = job.size() > 4 ? job.substr(job.size() - 4) : job;
  const bool number = !digits.empty() && std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
  // As in Lightning, so that jobs that share a host do not share a port.
  if (number) info.fields[kPort] = SourcedNumber{kFirstJobPort + std::stoi(digits), "SLURM_JOB_ID=" + Escaped(job, 80)};
}

LauncherInfo InfoOfSlurm(const Reader& reader) {
  LauncherInfo info{.launcher = "Slurm"};
  // mpirun starts its daemons with srun. The step's variables then describe the daemons, and the processes below them have variables of
  // their own.
  const std::string_view mpirun = reader.FirstOf("OMPI_COMM_WORLD_RANK MV2_COMM_WORLD_RANK MPI_LOCALRANKID");
  if (!mpirun.empty() && reader.Has("SLURM_JOB_ID")) {
    AddSlurmMaster(reader, "SLURM_JOB_NODELIST SLURM_NODELIST", info);
    return info;
  }
  // Outside a step these variables describe the allocation, not this process.
  if (reader.FirstOf("SLURM_STEP_ID SLURM_STEPID").empty() || !reader.Has("SLURM_PROCID")) return info;
  LauncherInfo step = reader.Info(kSlurm);
  const std::string name = reader.Text("SLURM_JOB_NAME");
  if (name == "bash" || name == "interactive") {
    if (step.has(kWorld) && step.value(kWorld) > 1) {
      info.notes.push_back(step.fields[kRank]->source + " " + step.fields[kWorld]->source + " (Slurm) of the interactive job '" + name +
                           "' are ignored; set --rank and --world-size instead");
    }
    return info;
  }
  if (step.has(kNode)) {
    const std::string_view list = reader.FirstOf("SLURM_STEP_TASKS_PER_NODE SLURM_TASKS_PER_NODE");
    const int64_t tasks = list.empty() ? 0 : TasksOf(*reader.Find(list), step.value(kNode));
    if (tasks > 0) step.fields[kLocalWorld] = SourcedNumber{tasks, reader.Source(list)};
  }
  AddSlurmMaster(reader, "SLURM_STEP_NODELIST SLURM_JOB_NODELIST SLURM_NODELIST", step);
  return step;
}

LauncherInfo InfoOfMpi(const Reader& reader, const LauncherNames& names) {
  LauncherInfo info = reader.Info(names);
  // Two of the launchers set PMI_SIZE.
  if (!info.has(kRank)) return {};
  info.own_transport = true;
  // As with Slurm: two mpirun jobs on one host must not share a port.
  if (const std::string job = reader.Text("PMIX_NAMESPACE"); !job.empty())
    info.fields[kPort] = SourcedNumber{kFirstJobPort + static_cast<int64_t>(HashOf(job) % kJobPorts), "PMIX_NAMESPACE=" + Escaped(job, 80)};
  if (!info.has(kWorld)) info.rank_problem = info.fields[kRank]->source + " is a rank, but the number of processes is unknown";
  return info;
}

}  // namespace

std::vector<std::string> OverridingVariables() {
  std::vector<std::string> names(kOverrides.names.begin(), kOverrides.names.end());
  names.emplace_back(kOverrides.address);
  return names;
}

std::vector<LauncherInfo> InfoOfLaunchers(const JobFlags& flags, const EnvironmentVariables& environment) {
  const Reader reader(environment);
  std::vector<LauncherInfo> launchers{InfoOfFlags(flags), reader.Info(kOverrides)};
  launchers.back().overrides = true;
  launchers.push_back(InfoOfTorch(reader));
  launchers.push_back(InfoOfPet(reader));
  launchers.push_back(InfoOfSlurm(reader));
  for (const LauncherNames& names : kMpi) launchers.push_back(InfoOfMpi(reader, names));
  return launchers;
}

}  // namespace gradloom
