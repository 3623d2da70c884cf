#include "tools/run/train/job.h"

#include "runtime/base/error.h"

namespace gradloom {

JobTopology TopologyOf(const Configuration& configuration) {
  const auto number = [&](const char* name) -> std::optional<int64_t> {
    if (!configuration.has_value(name)) return std::nullopt;
    return configuration.Integer(name);
  };
  const JobFlags flags{.rank = number("job.rank"),
                       .world = number("job.world_size"),
                       .local_rank = number("job.local_rank"),
                       .local_world = number("job.local_world_size"),
                       .node = number("job.node_rank"),
                       .nodes = number("job.nnodes"),
                       .master_port = number("job.master_port"),
                       .master_address = configuration.Text("job.master_addr")};
  return ResolveJobTopology(flags, ThisProcessesVariables());
}

std::vector<std::string> LinesOf(const JobTopology& topology) {
  std::vector<std::string> lines{"topology " + Escaped(ToString(topology), 1000)};
  for (const std::string& note : topology.notes) lines.push_back("topology " + Escaped(note, 1000));
  return lines;
}

void RefuseSeveralProcesses(const JobTopology& topology, const std::string& what) {
  if (topology.world == 1) return;
  throw Error(ErrorCode::kUnsupported, what + " over several processes is not supported yet",
              "topology " + Escaped(ToString(topology), 1000),
              "use several devices in one process: --devices cuda:all, or cpu:4; to run this process alone: --world-size 1");
}

}  // namespace gradloom
