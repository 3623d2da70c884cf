#include "tools/run/records/run_metrics.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "runtime/base/number_text.h"
#include "runtime/base/version.h"
#include "tools/run/records/environment.h"

namespace gradloom {
namespace {

// Seconds; covers small models on a CPU and large ones on many.
constexpr double kBuckets[] = {1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100};

double Now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string Number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return Formatted("%.17g", value);
}

// The value of a label. Control bytes and invalid UTF-8 are escaped, since readers reject a page that contains them.
std::string Label(const std::string& text) {
  std::string escaped;
  for (const char c : Escaped(text, 4096)) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

class PageText {
 public:
  void Begin(const std::string& name, const char* type, const char* help) {
    text_ += "# HELP gradloom_" + name + " " + help + "\n# TYPE gradloom_" + name + " " + type + "\n";
  }
  void Sample(const std::string& name, const std::string& labels, double value) {
    text_ += "gradloom_" + name + (labels.empty() ? "" : "{" + labels + "}") + " " + Number(value) + "\n";
  }
  void One(const std::string& name, const char* type, const char* help, double value) {
    Begin(name, type, help);
    Sample(name, "", value);
  }
  std::string& text() { return text_; }

 private:
  std::string text_;
};

// The standard process metrics.
void AddProcess(std::string& text, double started) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); };
  const auto add = [&](const char* name, const char* type, const char* help, double value) {
    text += std::string("# HELP ") + name + " " + help + "\n# TYPE " + name + " " + type + "\n" + name + " " + Number(value) + "\n";
  };
  add("process_resident_memory_bytes", "gauge", "Memory of the process.", static_cast<double>(ThisProcess().resident_bytes));
  add("process_cpu_seconds_total", "counter", "Processor time of the process.", seconds(usage.ru_utime) + seconds(usage.ru_stime));
  add("process_start_time_seconds", "gauge", "Time at which the run began, in seconds since 1970.", started);
}

}  // namespace

RunMetrics::RunMetrics(std::string run, std::string model, std::vector<std::string> terms, std::function<int64_t()> saves)
    : run_(std::move(run)),
      model_(std::move(model)),
      terms_(std::move(terms)),
      count_saves_(std::move(saves)),
      started_(Now()),
      in_bucket_(std::size(kBuckets) + 1) {}

void RunMetrics::OnStep(const StepReport& step) {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  last_ = step;
  stepped_ = true;
  last_step_time_ = Now();
  ++batches_;
  updates_ += step.result.updated ? 1 : 0;
  samples_ += step.rows;
  skipped_ += step.skipped ? 1 : 0;
  saves_ = count_saves_();
  if (timed_) {
    const double seconds = std::chrono::duration<double>(now - step_end_).count();
    step_seconds_ += seconds;
    ++in_bucket_[static_cast<size_t>(std::lower_bound(std::begin(kBuckets), std::end(kBuckets), seconds) - std::begin(kBuckets))];
  }
  step_end_ = now;
  timed_ = true;
}

void RunMetrics::OnEvaluation(const EvaluationReport& evaluation) {
  const std::lock_guard lock(mutex_);
  evaluated_ = evaluation.values;
  evaluated_step_ = evaluation.step;
  timed_ = false;
}

void RunMetrics::OnEpoch(const EpochReport& epoch) {
  const std::lock_guard lock(mutex_);
  ++epochs_;
  memory_ = epoch.memory;
}

void RunMetrics::OnSave(SaveReason) {
  const std::lock_guard lock(mutex_);
  saves_ = count_saves_();
  timed_ = false;
}

std::string RunMetrics::Page() const {
  const std::lock_guard lock(mutex_);
  PageText page;
  page.Begin("run_info", "gauge", "The run that this process trains.");
  page.Sample("run_info", "version=\"" + std::string(kVersion) + "\",run=\"" + Label(run_) + "\",model=\"" + Label(model_) + "\"", 1);
  page.One("batches_total", "counter", "Batches trained on by this process.", static_cast<double>(batches_));
  page.One("updates_total", "counter", "Updates of the parameters by this process.", static_cast<double>(updates_));
  page.One("samples_total", "counter", "Samples trained on by this process.", static_cast<double>(samples_));
  page.One("batches_left_out_total", "counter", "Batches skipped because their loss was not finite.", static_cast<double>(skipped_));
  page.One("epochs_total", "counter", "Epochs that this process has completed.", static_cast<double>(epochs_));
  page.One("saves_total", "counter", "Checkpoints saved by this process.", static_cast<double>(saves_));
  if (stepped_) {
    page.One("step", "gauge", "Updates of the run so far, including those before a resume.", static_cast<double>(last_.result.step));
    page.One("epoch", "gauge", "Epochs of the run so far, as a fractional number.", last_.epochs_done);
    page.One("planned_batches", "gauge", "Planned batches of the whole run.", static_cast<double>(last_.total_batches));
    page.One("train_loss", "gauge", "Loss of the last batch.", last_.result.loss);
    if (!last_.result.terms.empty()) page.Begin("train_loss_term", "gauge", "Terms of the loss of the last batch.");
    for (size_t i = 0; i < last_.result.terms.size(); ++i)
      page.Sample("train_loss_term", "term=\"" + Label(terms_.at(i)) + "\"", last_.result.terms[i]);
    page.One("learning_rate", "gauge", "Learning rate of the last update.", last_.result.lr);
    if (last_.result.grad_norm >= 0)
      page.One("gradient_norm", "gauge", "Gradient norm of the last update, before clipping.", last_.result.grad_norm);
    page.One("samples_per_second", "gauge", "Samples per second since the epoch began.", last_.samples_per_s);
    page.One("last_step_time_seconds", "gauge", "Time at which the last step ended, in seconds since 1970.", last_step_time_);
  }
  page.Begin("step_seconds", "histogram", "Seconds from the end of one step to the end of the next, without evaluations and saves.");
  int64_t count = 0;
  for (size_t i = 0; i < std::size(kBuckets); ++i) {
    count += in_bucket_[i];
    page.Sample("step_seconds_bucket", "le=\"" + NumberText(kBuckets[i]) + "\"", static_cast<double>(count));
  }
  count += in_bucket_.back();
  page.Sample("step_seconds_bucket", "le=\"+Inf\"", static_cast<double>(count));
  page.Sample("step_seconds_sum", "", step_seconds_);
  page.Sample("step_seconds_count", "", static_cast<double>(count));
  if (!evaluated_.empty()) {
    page.Begin("evaluation", "gauge", "Loss and metrics of the last evaluation.");
    for (const auto& [name, value] : evaluated_) page.Sample("evaluation", "metric=\"" + Label(name) + "\"", value);
    page.One("evaluation_step", "gauge", "Updates of the run at the last evaluation.", static_cast<double>(evaluated_step_));
  }
  if (!memory_.empty()) {
    page.Begin("device_memory_bytes", "gauge", "Memory that the run has allocated and cached on a device, and memory that is free there.");
    for (const DeviceMemory& device : memory_) {
      for (const auto& [kind, bytes] :
           {std::pair{"allocated", device.allocated}, std::pair{"cached", device.cached}, std::pair{"free", device.free}})
        page.Sample("device_memory_bytes", "device=\"" + Label(device.device) + "\",kind=\"" + kind + "\"", static_cast<double>(bytes));
    }
  }
  AddProcess(page.text(), started_);
  return page.text();
}

}  // namespace gradloom
