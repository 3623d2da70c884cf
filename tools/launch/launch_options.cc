#include "tools/launch/launch_options.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/read_number.h"
#include "runtime/comm/endpoint.h"

namespace gradloom {
namespace {

constexpr int kMaxPerNode = 4096, kMaxNodes = 65536;

int PerNodeOf(const std::string& text, const LaunchMachine& machine) {
  if (text == "cpu") return machine.cores;
  if (text == "gpu" && machine.gpus == 0) {
    throw Error(ErrorCode::kDevice, "this machine has no GPU", "--nproc-per-node gpu", "use --nproc-per-node auto, or a number");
  }
  if (text == "gpu" || text == "auto") return machine.gpus > 0 ? machine.gpus : machine.cores;
  const std::optional<int> count = ReadNumber<int>(text);
  if (count && *count >= 1 && *count <= kMaxPerNode) return *count;
  throw Error(ErrorCode::kConfig, "invalid number of processes: '" + Escaped(text) + "'", "--nproc-per-node",
              "expected a number from 1 to " + std::to_string(kMaxPerNode) + ", or cpu, gpu or auto");
}

int NodesOf(const std::string& text) {
  const size_t colon = text.find(':');
  const std::optional<int> least = ReadNumber<int>(text.substr(0, colon));
  const std::optional<int> most = colon == std::string::npos ? least : ReadNumber<int>(text.substr(colon + 1));
  if (!least || !most || *least < 1 || *most < *least || *most > kMaxNodes) {
    throw Error(ErrorCode::kConfig, "invalid number of hosts: '" + Escaped(text) + "'", "--nnodes", "for example --nnodes 2");
  }
  if (*least != *most) {
    throw Error(ErrorCode::kUnsupported, "a job cannot change its number of hosts while it runs", "--nnodes " + Escaped(text),
                "use --nnodes " + std::to_string(*most));
  }
  return *most;
}

// Throws Error(kConfig).
Endpoint ReadEndpoint(const std::string& text) {
  Endpoint endpoint = EndpointOf(text);
  if (!endpoint.host.empty() && endpoint.port >= -1) return endpoint;
  throw Error(ErrorCode::kConfig, "invalid endpoint: '" + Escaped(text) + "'", "--rdzv-endpoint", "expected --rdzv-endpoint HOST:29500");
}

// torchrun's "3" (all), "1" (stdout), "2" (stderr), "0", or by local rank "0:3,1:2".
std::vector<int> StreamsOf(const std::string& flag, const std::string& text, int per_node) {
  const auto refuse = [&]() -> int {
    throw Error(ErrorCode::kConfig, "invalid output streams: '" + Escaped(text) + "'", flag,
                "expected " + flag + " 3 (all), 1 (stdout), 2 (stderr) or 0; or by local rank: " + flag + " 0:3,1:2");
  };
  const auto streams = [&](std::string_view word) {
    const std::optional<int> value = ReadNumber<int>(word);
    return value && *value >= 0 && *value <= 3 ? *value : refuse();
  };
  if (text.find(':') == std::string::npos) return std::vector<int>(static_cast<size_t>(per_node), text.empty() ? 0 : streams(text));
  std::vector<int> by_rank(static_cast<size_t>(per_node), 0);
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view item = std::string_view(text).substr(begin, end - begin);
    const size_t colon = item.find(':');
    const std::optional<int> rank = colon == std::string_view::npos ? std::nullopt : ReadNumber<int>(item.substr(0, colon));
    if (!rank || *rank < 0 || *rank >= per_node) refuse();
    by_rank[static_cast<size_t>(*rank)] = streams(item.substr(colon + 1));
    begin = end + 1;
  }
  return by_rank;
}

std::vector<std::array<StreamTarget, 2>> TargetsOf(const LaunchFlags& flags, int per_node) {
  std::vector<std::array<StreamTarget, 2>> targets(static_cast<size_t>(per_node));
  if (flags.redirects.empty() && flags.tee.empty()) {
    // Only the first rank of a host prints to the terminal.
    for (size_t rank = 1; rank < targets.size(); ++rank) targets[rank].fill({.file = true, .terminal = false});
    return targets;
  }
  const std::vector<int> redirects = StreamsOf("--redirects", flags.redirects, per_node), tee = StreamsOf("--tee", flags.tee, per_node);
  for (size_t rank = 0; rank < targets.size(); ++rank) {
    for (int stream = 0; stream < 2; ++stream) {
      const bool both = (tee[rank] >> stream & 1) != 0, file = (redirects[rank] >> stream & 1) != 0;
      targets[rank][static_cast<size_t>(stream)] = {.file = both || file, .terminal = both || !file};
    }
  }
  return targets;
}

void SetMaster(const LaunchFlags& flags, LaunchOptions& options) {
  const Endpoint endpoint = flags.rdzv_endpoint.empty() ? Endpoint{} : ReadEndpoint(flags.rdzv_endpoint);
  options.master_address = !flags.master_addr.empty() ? flags.master_addr : endpoint.host;
  options.master_port = flags.master_port >= 0 ? flags.master_port : endpoint.port >= 0 ? endpoint.port : kDefaultMasterPort;
  // torchrun's HOST:0 is a free port, which only the processes of one host can know.
  const bool any_port = endpoint.port == 0 && flags.master_port < 0 && options.nodes == 1;
  if (!any_port && (options.master_port < 1 || options.master_port > 65535)) {
    throw Error(ErrorCode::kConfig, "invalid port: " + std::to_string(options.master_port), "--master-port",
                "for example --master-port 29500");
  }
  if (flags.standalone) {
    if (options.nodes > 1) {
      throw Error(ErrorCode::kConfig, "--standalone cannot be used for a job of several hosts",
                  "--standalone --nnodes " + std::to_string(options.nodes), "omit one of them");
    }
    options.master_port = 0;
  }
  if (options.nodes == 1) {
    options.node = 0;
    if (options.master_address.empty() || flags.standalone) options.master_address = "127.0.0.1";
    return;
  }
  const std::string where = "--nnodes " + std::to_string(options.nodes);
  if (flags.node_rank < 0)
    throw Error(ErrorCode::kConfig, "the number of this host in the job is unknown", where, "set --node-rank, 0 on the first host");
  if (flags.node_rank >= options.nodes) {
    throw Error(ErrorCode::kConfig, "the node rank must be below the number of hosts",
                where + " --node-rank " + std::to_string(flags.node_rank),
                "use --node-rank " + std::to_string(options.nodes - 1) + " on the last host");
  }
  if (options.master_address.empty()) {
    throw Error(ErrorCode::kConfig, "the address of the first host is unknown", where,
                "set --rdzv-endpoint HOST:29500, where HOST is the first host");
  }
  options.node = flags.node_rank;
}

}  // namespace

LaunchOptions LaunchOptionsOf(const LaunchFlags& flags, const LaunchMachine& machine, const EnvironmentVariables& environment) {
  if (flags.command.empty()) {
    throw Error(ErrorCode::kConfig, "no command to launch is given", "", "for example: gradloom launch --nproc-per-node 2 -- doctor");
  }
  if (flags.max_restarts < 0 || flags.shutdown_timeout < 0) {
    throw Error(ErrorCode::kConfig, "--max-restarts and --shutdown-timeout must be at least 0", "",
                "for example --max-restarts 3 --shutdown-timeout 30");
  }
  if (flags.rdzv_backend != "static" && flags.rdzv_backend != "c10d") {
    throw Error(ErrorCode::kUnsupported, "unsupported rendezvous backend '" + Escaped(flags.rdzv_backend) + "'", "--rdzv-backend",
                "use static or c10d; with both, ranks connect to --rdzv-endpoint HOST:29500");
  }
  LaunchOptions options;
  options.per_node = PerNodeOf(flags.nproc_per_node, machine);
  options.nodes = NodesOf(flags.nnodes);
  SetMaster(flags, options);
  options.max_restarts = flags.max_restarts;
  options.shutdown_seconds = flags.shutdown_timeout;
  options.run_id = flags.rdzv_id;
  options.log_dir = flags.log_dir;
  options.streams = TargetsOf(flags, options.per_node);
  options.command = flags.command;
  const auto threads = environment.find("OMP_NUM_THREADS");
  const bool said = threads != environment.end() && !threads->second.empty();
  if (!said && options.per_node > 1) options.threads = std::max(1, machine.cores / options.per_node);
  return options;
}

EnvironmentVariables VariablesOfRank(const LaunchOptions& options, int local_rank, int restarts, int master_port,
                                     const std::string& error_file, EnvironmentVariables environment) {
  // Overrides meant for the launcher's own process would take precedence over the variables that it sets.
  for (const std::string& name : OverridingVariables()) environment.erase(name);
  const auto set = [&](const char* name, const std::string& value) { environment.insert_or_assign(name, value); };
  const std::string rank = std::to_string(options.RankOf(local_rank)), world = std::to_string(options.world());
  set("RANK", rank);
  set("WORLD_SIZE", world);
  set("LOCAL_RANK", std::to_string(local_rank));
  set("LOCAL_WORLD_SIZE", std::to_string(options.per_node));
  set("GROUP_RANK", std::to_string(options.node));
  set("GROUP_WORLD_SIZE", std::to_string(options.nodes));
  set("ROLE_NAME", "default");
  set("ROLE_RANK", rank);
  set("ROLE_WORLD_SIZE", world);
  set("MASTER_ADDR", options.master_address);
  set("MASTER_PORT", std::to_string(master_port));
  set("TORCHELASTIC_RUN_ID", options.run_id);
  set("TORCHELASTIC_RESTART_COUNT", std::to_string(restarts));
  set("TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts));
  // Rank 0 itself listens on the port, not its launcher.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  set("TORCHELASTIC_ERROR_FILE", error_file);
  set(kLauncherVariable, "gradloom launch");
  if (options.threads > 0) set("OMP_NUM_THREADS", std::to_string(options.threads));
  return environment;
}

}  // namespace gradloom
