#include "runtime/comm/job_topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/launcher_info.h"

extern char** environ;

namespace gradloom {
namespace {

constexpr int64_t kMaxProcesses = 1 << 24;

constexpr char kHelp[] = "start the processes with gradloom launch, or override the environment with --rank and --world-size";

[[noreturn]] void Refuse(const std::string& message, const std::string& help = kHelp) {
  throw Error(ErrorCode::kConfig, message, "the topology of the job", help);
}

bool IsThisHost(const std::string& address) { return address == "localhost" || address == "::1" || address.starts_with("127."); }

// Whether both set the field to different values.
bool Differ(const LauncherInfo& a, const LauncherInfo& b, JobField field) {
  return a.has(field) && b.has(field) && a.value(field) != b.value(field);
}

// Combines what the launchers set.
class Resolution {
 public:
  explicit Resolution(std::vector<LauncherInfo> launchers) : launchers_(std::move(launchers)) {
    for (const LauncherInfo& info : launchers_) Add(info);
  }

  JobTopology Finish() {
    JobTopology topology;
    if (!FindProcess()) {
      topology.launcher = "single process";
      AddNotes(topology);
      return topology;
    }
    topology.launcher = launcher_;
    AddNotes(topology);
    topology.rank = Int(kRank);
    topology.world = Int(kWorld);
    CheckExplicit();
    FindPlaceOnHost(topology);
    FindNode(topology);
    FindMaster(topology);
    return topology;
  }

 private:
  // Adds a launcher of lower precedence than those before it.
  void Add(const LauncherInfo& info) {
    bool agrees = true;
    for (int i = 0; i < kPort; ++i) agrees = agrees && !Differ(result_, info, static_cast<JobField>(i));
    for (const JobField field : {kRank, kWorld}) {
      if (result_.has(field) || !info.has(field)) continue;
      // An explicit world size of 1 means this process alone, whatever rank its launcher gave it.
      if (field == kRank && overridden_[kWorld] && result_.value(kWorld) == 1) continue;
      // Rank and world size must come from one job. A user's override may of course differ.
      const JobField other = field == kRank ? kWorld : kRank;
      if (Differ(result_, info, other) && !overridden_[other])
        Refuse(result_.fields[other]->source + " and " + Sources(info) + " contradict each other");
      if (field == kRank) launcher_ = info.launcher;
      Adopt(info, field);
    }
    if (agrees) {
      for (const JobField field : {kLocalRank, kLocalWorld, kNode, kNodes}) Adopt(info, field);
    }
    Adopt(info, kPort);
    if (result_.address.empty()) result_.address = info.address;
    if (result_.rank_problem.empty()) result_.rank_problem = info.rank_problem;
    if (info.launcher == launcher_) result_.own_transport = info.own_transport;
  }

  void Adopt(const LauncherInfo& info, JobField field) {
    if (result_.has(field) || !info.has(field)) return;
    if (info.value(field) < 0 || info.value(field) > kMaxProcesses)
      Refuse(info.fields[field]->source +
             (field == kPort ? std::string(" is not a valid port") : " must be a whole number from 0 to " + std::to_string(kMaxProcesses)));
    result_.fields[field] = info.fields[field];
    overridden_[field] = info.overrides;
  }

  // The variables that set rank and world size, for example "RANK=1 WORLD_SIZE=4".
  static std::string Sources(const LauncherInfo& info) {
    std::string sources;
    for (const JobField field : {kRank, kWorld}) {
      if (info.has(field)) sources += (sources.empty() ? "" : " ") + info.fields[field]->source;
    }
    return sources;
  }

  // Fills in rank and world size. False if no launcher sets any.
  bool FindProcess() {
    const bool local = result_.has(kLocalRank) && result_.value(kLocalRank) > 0;
    if (!result_.has(kRank) && !result_.has(kWorld)) {
      if (!result_.rank_problem.empty())
        Refuse(result_.rank_problem, "run: gradloom launch -- train ...   (it reads these variables and starts the processes)");
      if (local) Refuse(result_.fields[kLocalRank]->source + " is one of several processes, but their number is unknown");
      return false;
    }
    if (!result_.has(kWorld)) {
      Refuse(result_.rank_problem.empty() ? result_.fields[kRank]->source + " is a rank, but the number of processes is unknown"
                                          : result_.rank_problem,
             "set --world-size to the number of processes of the job");
    }
    if (result_.has(kRank)) return true;
    if (!FindRank()) {
      const std::string source = result_.fields[kWorld]->source;
      if (!result_.rank_problem.empty())
        Refuse(result_.rank_problem, "run: gradloom launch -- train ...   (it reads these variables and starts the processes)");
      Refuse(source + " describes a job of several processes, but the rank of this process is unknown",
             "set --rank (0 for the first process), or let launch start all of them: gradloom launch --help");
    }
    for (const LauncherInfo& info : launchers_) {
      if (launcher_.empty() && info.has(kWorld)) launcher_ = info.launcher;
    }
    return true;
  }

  // Computes the rank from the local rank, as processes started by Lightning must.
  bool FindRank() {
    const int64_t world = result_.value(kWorld);
    std::optional<SourcedNumber> rank;
    if (world == 1) {
      rank = SourcedNumber{0, result_.fields[kWorld]->source};
    } else if (result_.has(kLocalRank)) {
      const SourcedNumber& local = *result_.fields[kLocalRank];
      int64_t per_host = result_.has(kLocalWorld) ? result_.value(kLocalWorld) : 0;
      if (per_host == 0 && result_.has(kNodes) && result_.value(kNodes) > 0 && world % result_.value(kNodes) == 0)
        per_host = world / result_.value(kNodes);
      const bool first_host = per_host == world || (result_.has(kNode) && result_.value(kNode) == 0);
      if (first_host) {
        rank = local;
      } else if (per_host > 0 && result_.has(kNode)) {
        rank = SourcedNumber{result_.value(kNode) * per_host + local.value, result_.fields[kNode]->source + " " + local.source};
      }
    }
    result_.fields[kRank] = rank;
    return rank.has_value();
  }

  int Int(JobField field) const { return static_cast<int>(result_.value(field)); }

  // `less` must be below `count`.
  void CheckBelow(JobField less, JobField count, const char* rule) const {
    if (!result_.has(less) || !result_.has(count) || result_.value(less) < result_.value(count)) return;
    Refuse(result_.fields[less]->source + " " + result_.fields[count]->source + " contradict each other: " + rule);
  }
  void CheckAtMost(JobField less, JobField more, const char* rule) const {
    if (!result_.has(less) || !result_.has(more) || result_.value(less) <= result_.value(more)) return;
    Refuse(result_.fields[less]->source + " " + result_.fields[more]->source + " contradict each other: " + rule);
  }

  // Checks the values that are set explicitly, not those derived from them.
  void CheckExplicit() const {
    for (const JobField count : {kWorld, kLocalWorld, kNodes}) {
      if (result_.has(count) && result_.value(count) == 0) Refuse(result_.fields[count]->source + " must be at least 1");
    }
    CheckBelow(kRank, kWorld, "a rank must be below the number of processes");
    CheckBelow(kLocalRank, kLocalWorld, "a local rank must be below the number of processes on its host");
    CheckBelow(kNode, kNodes, "a node rank must be below the number of nodes");
    CheckBelow(kLocalRank, kWorld, "a host cannot have more processes than the job");
    CheckAtMost(kLocalWorld, kWorld, "a host cannot have more processes than the job");
    CheckAtMost(kLocalRank, kRank, "a local rank cannot exceed the rank");
    CheckAtMost(kNodes, kWorld, "every host must have a process");
    if (!result_.has(kNodes) || !result_.has(kLocalWorld)) return;
    const int64_t nodes = result_.value(kNodes), here = result_.value(kLocalWorld), world = result_.value(kWorld);
    if (nodes == 1 ? here == world : here + nodes - 1 <= world) return;
    Refuse(result_.fields[kNodes]->source + " " + result_.fields[kLocalWorld]->source + " " + result_.fields[kWorld]->source +
           " contradict each other: the processes of the hosts do not add up to those of the job");
  }

  void FindPlaceOnHost(JobTopology& topology) const {
    const int rank = topology.rank, world = topology.world;
    const bool one_host = (result_.has(kNodes) && result_.value(kNodes) == 1) || IsThisHost(result_.address);
    if (result_.has(kLocalWorld)) {
      topology.local_world = Int(kLocalWorld);
    } else if (one_host) {
      topology.local_world = world;
    } else if (result_.has(kNodes) && world % Int(kNodes) == 0) {
      topology.local_world = world / Int(kNodes);
    } else if (result_.has(kLocalRank)) {
      topology.local_world = GuessLocalWorld(topology);
    }
    topology.local_rank = result_.has(kLocalRank) ? Int(kLocalRank) : rank % topology.local_world;
  }

  // Guesses the number of processes per host if only that is unknown: the largest number that is consistent with equal hosts filled one
  // after the other.
  int GuessLocalWorld(JobTopology& topology) const {
    const int local = Int(kLocalRank);
    std::vector<int> fit;
    for (int count = local + 1; count <= topology.world; ++count) {
      if (topology.world % count == 0 && (topology.rank - local) % count == 0) fit.push_back(count);
    }
    if (fit.empty()) return local + 1;
    if (fit.size() > 1) {
      topology.notes.push_back(result_.fields[kLocalRank]->source + " is taken as one of " + std::to_string(fit.back()) +
                               " on this host; set --local-world-size if there are fewer");
    }
    return fit.back();
  }

  void FindNode(JobTopology& topology) const {
    const int rank = topology.rank, local = topology.local_rank, here = topology.local_world;
    topology.nodes = result_.has(kNodes) ? Int(kNodes) : (topology.world + here - 1) / here;
    if (result_.has(kNode)) {
      topology.node = Int(kNode);
      topology.nodes = std::max(topology.nodes, topology.node + 1);
    } else if (topology.nodes > 1) {
      // Hosts are filled one after the other, or round-robin.
      const bool round_robin = (rank - local) % here != 0 && rank / topology.nodes == local;
      topology.node = round_robin ? rank % topology.nodes : std::min(rank / here, topology.nodes - 1);
    }
  }

  void FindMaster(JobTopology& topology) const {
    if (topology.world == 1) return;
    topology.master_address = result_.address;
    if (result_.address.empty() && topology.local_world == topology.world) topology.master_address = "127.0.0.1";
    if (topology.master_address.empty()) {
      if (result_.own_transport) return;
      Refuse("the job has " + std::to_string(topology.world) + " processes on several hosts, but the address of rank 0 is unknown",
             "set MASTER_ADDR, or --master-addr, to the host of rank 0");
    }
    topology.master_port = result_.has(kPort) ? Int(kPort) : kDefaultMasterPort;
    if (topology.master_port < 1 || topology.master_port > 65535) Refuse(result_.fields[kPort]->source + " is not a valid port");
  }

  void AddNotes(JobTopology& topology) const {
    for (const LauncherInfo& info : launchers_) {
      std::string differs;
      for (const JobField field : {kRank, kWorld, kLocalRank, kLocalWorld}) {
        if (Differ(result_, info, field)) differs += info.fields[field]->source + " ";
      }
      if (!differs.empty()) topology.notes.push_back("ignored: " + differs + "(" + info.launcher + ")");
      topology.notes.insert(topology.notes.end(), info.notes.begin(), info.notes.end());
    }
  }

  std::vector<LauncherInfo> launchers_;
  LauncherInfo result_;
  std::array<bool, kJobFields> overridden_{};
  std::string launcher_;  // the launcher that set the rank
};

}  // namespace

EnvironmentVariables ThisProcessesVariables() {
  EnvironmentVariables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (char* equals = std::strchr(*entry, '=')) variables.emplace(std::string(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
  }
  return variables;
}

JobTopology ResolveJobTopology(const JobFlags& flags, const EnvironmentVariables& environment) {
  return Resolution(InfoOfLaunchers(flags, environment)).Finish();
}

std::string ToString(const JobTopology& topology) {
  const auto of = [](int index, int count) { return std::to_string(index) + " of " + std::to_string(count); };
  std::string text = topology.launcher;
  if (text == "single process") return text;
  text += " rank " + of(topology.rank, topology.world) + ", node " + of(topology.node, topology.nodes);
  if (topology.master_address.empty()) return text;
  const bool v6 = topology.master_address.find(':') != std::string::npos;
  return text + ", master " + (v6 ? "[" + topology.master_address + "]" : topology.master_address) + ":" +
         std::to_string(topology.master_port);
}

}  // namespace gradloom
