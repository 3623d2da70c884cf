#include "tools/run/run_instruments.h"

#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

// Throws what writing to `path` would, were it done now. A file in the run's own folder, which is not there yet, can be written.
void RequireWritable(const std::string& path, const Configuration& configuration) {
  const std::string& name = configuration.Text("run.name");
  const auto run = (std::filesystem::path(configuration.Text("run.out")) / name).lexically_normal();
  if (!name.empty() && std::filesystem::path(FolderOf(path)).lexically_normal() == run) return;
  const AtomicFile never_committed(path);
}

}  // namespace

RunInstruments::RunInstruments(const Configuration& configuration, Session& session, const Plan& plan) {
  const std::string &traced = configuration.Text("log.trace"), &profiled = configuration.Text("log.profile");
  if (!traced.empty() && !profiled.empty())
    throw Error(ErrorCode::kConfig, "a run is traced or profiled, not both", "--profile", "leave out --trace");
  if (!traced.empty()) {
    const TraceFormat format = configuration.Text("log.trace_format") == "perfetto" ? TraceFormat::kPerfetto : TraceFormat::kChromeJson;
    trace_.emplace(session, traced, configuration.Text("log.trace_steps"), format);
    RequireWritable(traced, configuration);
  }
  if (!profiled.empty()) {
    profile_.emplace(session, plan, profiled);
    RequireWritable(profiled, configuration);
  }
  if (configuration.has_value("log.metrics_port")) {
    server_.emplace(configuration.Text("log.metrics_address"), static_cast<int>(configuration.Integer("log.metrics_port")),
                    [this] { return metrics_->Page(); });
  }
}

void RunInstruments::Begin(const std::string& run, const std::string& model) {
  if (!server_) return;
  metrics_.emplace(run, model);
  server_->Start();
}

void RunInstruments::AddTo(std::vector<TrainerObserver*>& listening) {
  if (trace_) listening.push_back(&*trace_);
  if (profile_) listening.push_back(&*profile_);
  if (metrics_) listening.push_back(&*metrics_);
}

std::string RunInstruments::page() const { return server_ ? "http://" + server_->where() + "/metrics" : ""; }

void RunInstruments::Finish() {
  if (trace_) trace_->Finish();
  if (profile_) profile_->Finish();
}

}  // namespace gradloom
