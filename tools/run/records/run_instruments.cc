#include "tools/run/records/run_instruments.h"

namespace gradloom {

RunInstruments::RunInstruments(const Configuration& configuration) {
  if (!configuration.has_value("log.metrics_port")) return;
  server_.emplace(configuration.Text("log.metrics_address"), static_cast<int>(configuration.Integer("log.metrics_port")),
                  [this] { return metrics_->Page(); });
}

void RunInstruments::Measure(const Configuration& configuration, Session& session, const Plan& plan) {
  if (const std::string& path = configuration.Text("log.profile"); !path.empty()) profile_.emplace(session, plan, path);
}

void RunInstruments::Begin(const Configuration& configuration, Session& session, const std::string& run, const std::string& model,
                           const RunCheckpoints& checkpoints) {
  trace_ = RunTrace::Make(session, configuration, 0);
  if (!server_) return;
  metrics_.emplace(run, model, session.plan().loss_terms, [&checkpoints] { return checkpoints.saves(); });
  server_->Start();
}

std::vector<TrainerObserver*> RunInstruments::first() {
  return trace_ ? std::vector<TrainerObserver*>{trace_.get()} : std::vector<TrainerObserver*>{};
}

void RunInstruments::AddTo(std::vector<TrainerObserver*>& listening) {
  if (profile_) listening.push_back(&*profile_);
  if (metrics_) listening.push_back(&*metrics_);
}

void RunInstruments::AddLast(std::vector<TrainerObserver*>& listening) {
  if (trace_) listening.push_back(&trace_->after());
}

std::string RunInstruments::page() const { return server_ ? "http://" + server_->where() + "/metrics" : ""; }

void RunInstruments::Finish() {
  if (trace_) trace_->Finish();
  if (profile_) profile_->Finish();
}

}  // namespace gradloom
