#include "tools/launch/launch.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <ios>
#include <nlohmann/json.hpp>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/base/host_name.h"
#include "runtime/comm/socket.h"
#include "tools/launch/job_attempt.h"
#include "tools/screen/error_file.h"
#include "tools/screen/log.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

namespace fs = std::filesystem;

// Throws Error(kResource).
int MasterPort() {
  if (const auto port = FreePort("127.0.0.1")) return *port;
  throw Error(ErrorCode::kResource, std::string("cannot find a free port: ") + std::strerror(errno), "--standalone",
              "choose one with --master-port");
}

std::string SignalName(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "unknown" : "SIG" + std::string(name);
}

// "ended with exit 3", "was killed by signal 9 (SIGKILL)".
std::string DescribeEnd(const RankEnd& end) {
  if (end.signal == 0) return "ended with exit " + std::to_string(end.exit_code);
  return "was killed by signal " + std::to_string(end.signal) + " (" + SignalName(end.signal) + ")" +
         (end.signal == SIGKILL ? ", possibly out of memory: dmesg" : "");
}

std::string NameOf(const RankEnd& end) {
  return "rank " + std::to_string(end.rank) + " (host " + Escaped(HostName()) + ", pid " + std::to_string(end.pid) + ")";
}

// The last lines of a log, at most a screen; "" if there are none.
std::string LastLines(const std::string& path) {
  constexpr size_t kMax = 20;
  constexpr std::streamoff kMaxBytes = 1 << 16;
  std::ifstream in(path, std::ios::binary);
  in.seekg(0, std::ios::end);
  in.seekg(std::max<std::streamoff>(in.tellg() - std::streampos(kMaxBytes), 0));
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > kMax) lines.pop_front();
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : "\n") + line;
  return text;
}

// Escapes text of unknown origin line by line for the terminal.
std::string EscapedLines(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    out += (begin == 0 ? "" : "\n") + Escaped(std::string_view(text).substr(begin, end - begin), 4096);
    begin = end + 1;
  }
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

class Launcher {
 public:
  Launcher(const LaunchOptions& options, bool this_program, bool json) : options_(options), this_program_(this_program), json_(json) {}
  ~Launcher() {
    std::error_code error;
    if (!keep_logs_ && !root_.empty()) fs::remove_all(root_, error);
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int Run() {
    MakeLogFolder();
    PrintHead();
    JobSignals signals;
    while (true) {
      const std::string folder = root_ + "/attempt_" + std::to_string(restarts_);
      const int port = options_.master_port > 0 ? options_.master_port : MasterPort();
      last_ = JobAttempt(options_, this_program_, restarts_, port, folder, signals).Run();
      const RankEnd* cause = CauseOf(last_.ends);
      if (cause == nullptr || !MayRestart(*cause)) break;
      ++restarts_;
      log_.Line("restart " + std::to_string(restarts_) + " of " + std::to_string(options_.max_restarts) + ": " + NameOf(*cause) + " " +
                DescribeEnd(*cause));
    }
    return Finish();
  }

 private:
  void MakeLogFolder() {
    const bool temporary = options_.log_dir.empty();
    std::error_code error;
    const std::string parent = temporary ? fs::temp_directory_path(error).string() : fs::absolute(options_.log_dir).string();
    if (error)
      throw Error(ErrorCode::kResource, "cannot find a folder for temporary files: " + error.message(), "TMPDIR",
                  "choose one with --log-dir");
    fs::create_directories(parent, error);
    // Several hosts may use the same folder.
    const std::string id = temporary ? "gradloom_launch" : options_.run_id;
    const bool plain = !id.empty() && id.find('/') == std::string::npos && id != "." && id != "..";
    root_ = parent + "/" + (plain ? id : "job") + "_XXXXXX";
    if (mkdtemp(root_.data()) == nullptr) {
      throw Error(ErrorCode::kResource, std::string("cannot create the folder: ") + std::strerror(errno), Escaped(root_, 4096),
                  "choose another with --log-dir");
    }
  }

  void PrintHead() {
    const int first = options_.RankOf(0), last = options_.RankOf(options_.per_node - 1);
    std::string line =
        "launch  " + (first == last ? "rank " + std::to_string(first) : "ranks " + std::to_string(first) + " to " + std::to_string(last)) +
        " of " + std::to_string(options_.world()) + ", node " + std::to_string(options_.node) + " of " + std::to_string(options_.nodes);
    line += ", master " + Escaped(options_.master_address) +
            (options_.master_port > 0 ? ":" + std::to_string(options_.master_port) : ", a free port");
    log_.Line(line);
    if (options_.threads > 0)
      log_.Line("threads OMP_NUM_THREADS=" + std::to_string(options_.threads) + " for each process, as no other number is set");
    if (LogsAnything()) log_.Line("logs    " + Escaped(root_, 4096));
  }

  bool LogsAnything() const {
    return std::any_of(options_.streams.begin(), options_.streams.end(), [](const auto& rank) { return rank[0].file || rank[1].file; });
  }

  // Whether a restart may help: exit codes below 128 are errors of the command, the model or the data.
  bool MayRestart(const RankEnd& cause) const {
    return cause.exit_code >= 128 && last_.stop_signal == 0 && restarts_ < options_.max_restarts;
  }

  std::string RankFile(const RankEnd& end, const std::string& name) const {
    return JobAttempt::RankFile(root_ + "/attempt_" + std::to_string(restarts_), end.local_rank, name);
  }

  // The error that the process itself reported.
  std::string MessageOf(const RankEnd& end) const {
    const std::string message = ReadErrorFile(RankFile(end, "error.json"));
    return EscapedLines(message.empty() ? LastLines(RankFile(end, "stderr.log")) : message);
  }

  int Finish() {
    const RankEnd* cause = CauseOf(last_.ends);
    const int code = cause == nullptr ? 0 : cause->exit_code;
    const bool stopped = last_.stop_signal != 0;
    if (stopped) {
      log_.Line("stopped by " + SignalName(last_.stop_signal) + "   all processes have ended, exit " + std::to_string(code));
    }
    // A process that failed during a requested stop has usually lost something.
    if (cause != nullptr && !(stopped && cause->asked)) PrintFailure(*cause);
    if (json_) std::printf("%s\n", Report(cause, code).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    keep_logs_ = !options_.log_dir.empty() || (code != 0 && LogsAnything());
    return code;
  }

  void PrintFailure(const RankEnd& cause) const {
    const auto failed =
        std::count_if(last_.ends.begin(), last_.ends.end(), [](const RankEnd& end) { return end.exit_code != 0 && !end.asked; });
    std::string block = NameOf(cause) + " " + DescribeEnd(cause);
    if (failed > 1) block += ", the first of " + std::to_string(failed) + " that failed";
    const std::string log = RankFile(cause, "stderr.log"), message = MessageOf(cause);
    const std::string where = fs::exists(log) ? Escaped(log, 4096) : "";
    if (cause.signal != 0) {
      const std::string help = "gradloom resume RUN continues from the last checkpoint; --max-restarts 3 restarts the processes";
      block = Error(ErrorCode::kPeer, block, where, help).Describe();
    } else {
      block = "failed  " + block + (where.empty() ? "" : "\n  --> " + where);
    }
    if (!message.empty()) block += "\n" + message;
    WriteStderrLine("error", block + "\ngradloom: the job stopped (exit " + std::to_string(cause.exit_code) + ")");
    // For a launcher that started this one.
    WriteErrorFile(block);
  }

  nlohmann::json Report(const RankEnd* cause, int code) const {
    nlohmann::json ranks = nlohmann::json::array();
    for (const RankEnd& end : last_.ends) {
      ranks.push_back({{"rank", end.rank}, {"pid", end.pid}, {"exit_code", end.exit_code}});
      if (end.signal != 0) ranks.back()["signal"] = end.signal;
    }
    nlohmann::json line{{"exit_code", code}, {"world_size", options_.world()}, {"restarts", restarts_}, {"ranks", ranks}};
    if (cause != nullptr) line["first_failure"] = {{"rank", cause->rank}, {"host", Escaped(HostName())}, {"message", MessageOf(*cause)}};
    if (last_.stop_signal != 0) line["stopped_by"] = SignalName(last_.stop_signal);
    return line;
  }

  const LaunchOptions& options_;
  const bool this_program_, json_;
  Log log_;
  std::string root_;
  bool keep_logs_ = false;
  int restarts_ = 0;
  AttemptEnd last_;
};

}  // namespace

int Launch(const LaunchOptions& options, bool this_program, bool json) {
  // The job goes on if the reader of its output closes it. Processes of the job start with the default.
  std::signal(SIGPIPE, SIG_IGN);
  return Launcher(options, this_program, json).Run();
}

}  // namespace gradloom
