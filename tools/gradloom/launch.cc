// gradloom launch.
#include "tools/launch/launch.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/read_number.h"
#include "runtime/base/suggestion.h"
#include "runtime/device/choose_devices.h"
#include "tools/config/flags.h"
#include "tools/gradloom/verbs.h"
#include "tools/run/records/environment.h"
#include "tools/screen/shell_word.h"

namespace gradloom {
namespace {

// The flags, and the environment variables that torchrun uses for flags that are not given. CLI11 would read the variables for every verb.
struct Declared {
  LaunchFlags flags;
  bool json = false, no_python = false;
  struct Variable {
    CLI::Option* flag;
    std::string name;
    std::function<bool(const std::string&)> set;  // returns false for an invalid value
  };
  std::vector<Variable> variables;

  // `flag` is written with dashes and also accepted with underscores; `short_name`: for example "-r".
  template <typename T>
  void Add(CLI::App& app, const std::string& flag, T& value, const std::string& help, const std::string& short_name = "") {
    const std::string twin = Underscored(flag);
    std::string name = "PET_" + twin.substr(2);
    std::transform(name.begin(), name.end(), name.begin(), ::toupper);
    const std::string names = (short_name.empty() ? "" : short_name + ",") + flag + (twin == flag ? "" : "," + twin);
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      option = app.add_flag(names, value, help + "   (" + name + ")");
    } else {
      option = app.add_option(names, value, help + "   (" + name + ")")->allow_extra_args(false)->type_name("");
    }
    variables.push_back({option, name, [&value](const std::string& text) { return CLI::detail::lexical_cast(text, value); }});
  }

  void ReadVariables(const EnvironmentVariables& environment) const {
    for (const Variable& variable : variables) {
      const auto found = environment.find(variable.name);
      if (variable.flag->count() > 0 || found == environment.end() || found->second.empty() || variable.set(found->second)) continue;
      throw Error(ErrorCode::kConfig,
                  variable.name + "=" + Escaped(found->second) + " is not a valid value of " + variable.flag->get_name(), "the environment",
                  "correct the variable, or set the flag, which overrides it");
    }
  }
};

// Whether the system would find the program.
bool IsProgram(const std::string& word) {
  const auto runs = [](const std::string& path) { return access(path.c_str(), X_OK) == 0 && !std::filesystem::is_directory(path); };
  if (word.find('/') != std::string::npos) return runs(word);
  const char* path = std::getenv("PATH");
  const std::vector<std::string> folders = CLI::detail::split(path == nullptr ? "/bin:/usr/bin" : path, ':');
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& folder) { return runs((folder.empty() ? "." : folder) + "/" + word); });
}

void CheckCommand(const std::string& word) {
  if (IsVerb(word) || IsProgram(word)) return;
  std::error_code error;
  if (word.find('/') != std::string::npos && std::filesystem::exists(word, error)) {
    const bool folder = std::filesystem::is_directory(word, error);
    throw Error(ErrorCode::kConfig, folder ? "this is a folder, not a program" : "this file is not executable", Escaped(word, 4096),
                folder ? "name the program in it" : "chmod +x " + ShellWord(word) + ", or name its interpreter first");
  }
  const std::string count = HelpForCount(word);
  throw Error(ErrorCode::kConfig, "no verb or program is named '" + Escaped(word) + "'", "gradloom launch",
              count.empty() ? Suggestion(word, VerbNames(), "for example: gradloom launch --nproc-per-node 2 -- doctor") : count);
}

int Start(const Declared& declared) {
  const EnvironmentVariables environment = ThisProcessesVariables();
  declared.ReadVariables(environment);
  const LaunchFlags& flags = declared.flags;
  const bool by_gpus = flags.nproc_per_node == "gpu" || flags.nproc_per_node == "auto";
  const LaunchMachine machine{.cores = ThisCpu().cores, .gpus = by_gpus ? static_cast<int>(ThisMachinesCuda().devices.size()) : 0};
  const LaunchOptions options = LaunchOptionsOf(flags, machine, environment);
  CheckCommand(options.command.front());
  return Launch(options, IsVerb(options.command.front()), declared.json);
}

}  // namespace

std::string HelpForCount(std::string_view word) {
  const std::optional<int> count = ReadNumber<int>(word);
  if (!count) return "";
  const std::string number = *count < 1 ? "N" : std::string(word);
  return "for " + number + " processes on this host: --nproc-per-node " + number;
}

Action DeclareLaunch(CLI::App& app) {
  auto declared = std::make_shared<Declared>();
  LaunchFlags& flags = declared->flags;
  const auto add = [&](const char* flag, auto& value, const std::string& help, const char* short_name = "") {
    declared->Add(app, flag, value, help, short_name);
  };
  add("--nproc-per-node", flags.nproc_per_node, "processes on this host: a number, cpu (one per core), gpu, or auto  [1]");
  add("--nnodes", flags.nnodes, "number of hosts in the job, each with its own launcher  [1]");
  add("--node-rank", flags.node_rank, "number of this host, from 0");
  add("--rdzv-endpoint", flags.rdzv_endpoint, "HOST:PORT where rank 0 listens; the default port is 29500");
  add("--rdzv-backend", flags.rdzv_backend, "static or c10d; with both, ranks connect to the endpoint");
  add("--rdzv-id", flags.rdzv_id, "name of the job, of its log folder and in TORCHELASTIC_RUN_ID");
  add("--master-addr", flags.master_addr, "only the host of --rdzv-endpoint");
  add("--master-port", flags.master_port, "only the port of --rdzv-endpoint  [29500]");
  add("--standalone", flags.standalone, "a job on this host only, at a free port");
  add("--max-restarts", flags.max_restarts, "how often to restart all processes after one ended with a code of 128 or more  [0]");
  add("--log-dir", flags.log_dir, "folder for the files of ranks; default: a temporary folder, which is kept if the job fails");
  add("--redirects", flags.redirects,
      "output to files: 3 (both), 1 (stdout), 2 (stderr), 0 (none), or by local rank 0:3,1:2; default: all but local rank 0", "-r");
  add("--tee", flags.tee, "output to files and to the terminal, in the same form", "-t");
  add("--shutdown-timeout", flags.shutdown_timeout, "seconds from SIGTERM to SIGKILL after a rank has failed  [30]");
  app.add_flag("--no-python,--no_python", declared->no_python, "accepted for compatibility with torchrun; has no effect");
  app.add_flag("--json", declared->json, "print one JSON object at the end");
  app.add_option("command", flags.command, "after --: a verb of gradloom with its flags, or another program")->type_name("");
  return [declared] { return Start(*declared); };
}

}  // namespace gradloom
