#include "runtime/comm/job_topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/comm/job_claims.h"

extern char** environ;

namespace gradloom {
namespace {

constexpr int64_t kMostProcesses = 1 << 24;

constexpr char kHelp[] = "start the processes with gradloom launch, or override the environment with --rank and --world-size";

[[noreturn]] void Refuse(const std::string& message, const std::string& help = kHelp) {
  throw Error(ErrorCode::kConfig, message, "the topology of the job", help);
}

bool IsThisHost(const std::string& address) { return address == "localhost" || address == "::1" || address.starts_with("127."); }

// Whether both set the field to different values.
bool Differ(const JobClaim& a, const JobClaim& b, JobField field) {
  return a.says(field) && b.says(field) && a.value(field) != b.value(field);
}

// Combines the claims.
class Resolution {
 public:
  explicit Resolution(std::vector<JobClaim> claims) : claims_(std::move(claims)) {
    for (const JobClaim& claim : claims_) Add(claim);
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
    CheckSaid();
    FindPlaceOnHost(topology);
    FindNode(topology);
    FindMaster(topology);
    return topology;
  }

 private:
  // Adds a claim of lower precedence than those before it.
  void Add(const JobClaim& claim) {
    bool agrees = true;
    for (int i = 0; i < kPort; ++i) agrees = agrees && !Differ(made_, claim, static_cast<JobField>(i));
    for (const JobField field : {kRank, kWorld}) {
      if (made_.says(field) || !claim.says(field)) continue;
      // An explicit world size of 1 means this process alone, whatever rank its launcher gave it.
      if (field == kRank && corrected_[kWorld] && made_.value(kWorld) == 1) continue;
      // Rank and world size must come from one job. A user's override may of course differ.
      const JobField other = field == kRank ? kWorld : kRank;
      if (Differ(made_, claim, other) && !corrected_[other])
        Refuse(made_.fields[other]->source + " and " + Sources(claim) + " contradict each other");
      if (field == kRank) launcher_ = claim.launcher;
      Take(claim, field);
    }
    if (agrees) {
      for (const JobField field : {kLocalRank, kLocalWorld, kNode, kNodes}) Take(claim, field);
    }
    Take(claim, kPort);
    if (made_.address.empty()) made_.address = claim.address;
    if (made_.riddle.empty()) made_.riddle = claim.riddle;
    if (claim.launcher == launcher_) made_.own_transport = claim.own_transport;
  }

  void Take(const JobClaim& claim, JobField field) {
    if (made_.says(field) || !claim.says(field)) return;
    if (claim.value(field) < 0 || claim.value(field) > kMostProcesses)
      Refuse(claim.fields[field]->source + (field == kPort ? std::string(" is not a valid port")
                                                           : " must be a whole number from 0 to " + std::to_string(kMostProcesses)));
    made_.fields[field] = claim.fields[field];
    corrected_[field] = claim.corrects;
  }

  // The variables that set rank and world size, for example "RANK=1 WORLD_SIZE=4".
  static std::string Sources(const JobClaim& claim) {
    std::string sources;
    for (const JobField field : {kRank, kWorld}) {
      if (claim.says(field)) sources += (sources.empty() ? "" : " ") + claim.fields[field]->source;
    }
    return sources;
  }

  // Fills in rank and world size. False if no launcher sets any.
  bool FindProcess() {
    const bool local = made_.says(kLocalRank) && made_.value(kLocalRank) > 0;
    if (!made_.says(kRank) && !made_.says(kWorld)) {
      if (!made_.riddle.empty())
        Refuse(made_.riddle, "run: gradloom launch -- train ...   (it reads these variables and starts the processes)");
      if (local) Refuse(made_.fields[kLocalRank]->source + " is one of several processes, but their number is unknown");
      return false;
    }
    if (!made_.says(kWorld)) {
      Refuse(made_.riddle.empty() ? made_.fields[kRank]->source + " is a rank, but the number of processes is unknown" : made_.riddle,
             "set --world-size to the number of processes of the job");
    }
    if (made_.says(kRank)) return true;
    if (!FindRank()) {
      const std::string source = made_.fields[kWorld]->source;
      if (!made_.riddle.empty())
        Refuse(made_.riddle, "run: gradloom launch -- train ...   (it reads these variables and starts the processes)");
      Refuse(source + " describes a job of several processes, but the rank of this process is unknown",
             "set --rank (0 for the first process), or let launch start all of them: gradloom launch --help");
    }
    for (const JobClaim& claim : claims_) {
      if (launcher_.empty() && claim.says(kWorld)) launcher_ = claim.launcher;
    }
    return true;
  }

  // Computes the rank from the local rank, as processes started by Lightning must.
  bool FindRank() {
    const int64_t world = made_.value(kWorld);
    std::optional<SaidNumber> rank;
    if (world == 1) {
      rank = SaidNumber{0, made_.fields[kWorld]->source};
    } else if (made_.says(kLocalRank)) {
      const SaidNumber& local = *made_.fields[kLocalRank];
      int64_t per_host = made_.says(kLocalWorld) ? made_.value(kLocalWorld) : 0;
      if (per_host == 0 && made_.says(kNodes) && made_.value(kNodes) > 0 && world % made_.value(kNodes) == 0)
        per_host = world / made_.value(kNodes);
      const bool first_host = per_host == world || (made_.says(kNode) && made_.value(kNode) == 0);
      if (first_host) {
        rank = local;
      } else if (per_host > 0 && made_.says(kNode)) {
        rank = SaidNumber{made_.value(kNode) * per_host + local.value, made_.fields[kNode]->source + " " + local.source};
      }
    }
    made_.fields[kRank] = rank;
    return rank.has_value();
  }

  int Int(JobField field) const { return static_cast<int>(made_.value(field)); }

  // `less` must be below `count`.
  void CheckBelow(JobField less, JobField count, const char* rule) const {
    if (!made_.says(less) || !made_.says(count) || made_.value(less) < made_.value(count)) return;
    Refuse(made_.fields[less]->source + " " + made_.fields[count]->source + " contradict each other: " + rule);
  }
  void CheckAtMost(JobField less, JobField more, const char* rule) const {
    if (!made_.says(less) || !made_.says(more) || made_.value(less) <= made_.value(more)) return;
    Refuse(made_.fields[less]->source + " " + made_.fields[more]->source + " contradict each other: " + rule);
  }

  // Checks the values that are set explicitly, not those derived from them.
  void CheckSaid() const {
    for (const JobField count : {kWorld, kLocalWorld, kNodes}) {
      if (made_.says(count) && made_.value(count) == 0) Refuse(made_.fields[count]->source + " must be at least 1");
    }
    CheckBelow(kRank, kWorld, "a rank must be below the number of processes");
    CheckBelow(kLocalRank, kLocalWorld, "a local rank must be below the number of processes on its host");
    CheckBelow(kNode, kNodes, "a node rank must be below the number of nodes");
    CheckBelow(kLocalRank, kWorld, "a host cannot have more processes than the job");
    CheckAtMost(kLocalWorld, kWorld, "a host cannot have more processes than the job");
    CheckAtMost(kLocalRank, kRank, "a local rank cannot exceed the rank");
    CheckAtMost(kNodes, kWorld, "every host must have a process");
    if (!made_.says(kNodes) || !made_.says(kLocalWorld)) return;
    const int64_t nodes = made_.value(kNodes), here = made_.value(kLocalWorld), world = made_.value(kWorld);
    if (nodes == 1 ? here == world : here + nodes - 1 <= world) return;
    Refuse(made_.fields[kNodes]->source + " " + made_.fields[kLocalWorld]->source + " " + made_.fields[kWorld]->source +
           " contradict each other: the processes of the hosts do not add up to those of the job");
  }

  void FindPlaceOnHost(JobTopology& topology) const {
    const int rank = topology.rank, world = topology.world;
    const bool one_host = (made_.says(kNodes) && made_.value(kNodes) == 1) || IsThisHost(made_.address);
    if (made_.says(kLocalWorld)) {
      topology.local_world = Int(kLocalWorld);
    } else if (one_host) {
      topology.local_world = world;
    } else if (made_.says(kNodes) && world % Int(kNodes) == 0) {
      topology.local_world = world / Int(kNodes);
    } else if (made_.says(kLocalRank)) {
      topology.local_world = GuessLocalWorld(topology);
    }
    topology.local_rank = made_.says(kLocalRank) ? Int(kLocalRank) : rank % topology.local_world;
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
      topology.notes.push_back(made_.fields[kLocalRank]->source + " is taken as one of " + std::to_string(fit.back()) +
                               " on this host; set --local-world-size if there are fewer");
    }
    return fit.back();
  }

  void FindNode(JobTopology& topology) const {
    const int rank = topology.rank, local = topology.local_rank, here = topology.local_world;
    topology.nodes = made_.says(kNodes) ? Int(kNodes) : (topology.world + here - 1) / here;
    if (made_.says(kNode)) {
      topology.node = Int(kNode);
      topology.nodes = std::max(topology.nodes, topology.node + 1);
    } else if (topology.nodes > 1) {
      // Hosts are filled one after the other, or round-robin.
      const bool in_turn = (rank - local) % here != 0 && rank / topology.nodes == local;
      topology.node = in_turn ? rank % topology.nodes : std::min(rank / here, topology.nodes - 1);
    }
  }

  void FindMaster(JobTopology& topology) const {
    if (topology.world == 1) return;
    topology.master_address = made_.address;
    if (made_.address.empty() && topology.local_world == topology.world) topology.master_address = "127.0.0.1";
    if (topology.master_address.empty()) {
      if (made_.own_transport) return;
      Refuse("the job has " + std::to_string(topology.world) + " processes on several hosts, but the address of rank 0 is unknown",
             "set MASTER_ADDR, or --master-addr, to the host of rank 0");
    }
    topology.master_port = made_.says(kPort) ? Int(kPort) : kDefaultMasterPort;
    if (topology.master_port < 1 || topology.master_port > 65535) Refuse(made_.fields[kPort]->source + " is not a valid port");
  }

  void AddNotes(JobTopology& topology) const {
    for (const JobClaim& claim : claims_) {
      std::string differs;
      for (const JobField field : {kRank, kWorld, kLocalRank, kLocalWorld}) {
        if (Differ(made_, claim, field)) differs += claim.fields[field]->source + " ";
      }
      if (!differs.empty()) topology.notes.push_back("ignored: " + differs + "(" + claim.launcher + ")");
      topology.notes.insert(topology.notes.end(), claim.notes.begin(), claim.notes.end());
    }
  }

  std::vector<JobClaim> claims_;
  JobClaim made_;
  std::array<bool, kJobFields> corrected_{};
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
  return Resolution(ClaimsOf(flags, environment)).Finish();
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
