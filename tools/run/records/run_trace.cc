#include "tools/run/records/run_trace.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/read_number.h"
#include "tools/run/outputs.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

}  // namespace

TracedSteps TracedSteps::Parse(const std::string& text) {
  const size_t colon = text.find(':');
  const auto number = [](std::string_view part) { return ReadNumber<int64_t>(part).value_or(0); };
  const int64_t first = number(std::string_view(text).substr(0, colon));
  const int64_t last = colon == std::string::npos ? first : number(std::string_view(text).substr(colon + 1));
  if (first >= 1 && last >= first) return {first, last};
  throw Error(ErrorCode::kConfig, "invalid range of steps '" + Escaped(text) + "'", "--trace-steps",
              "for example --trace-steps 3:5, the third to the fifth");
}

std::unique_ptr<RunTrace> RunTrace::Make(Session& session, const Configuration& configuration, int rank) {
  std::filesystem::path path = configuration.Text("log.trace");
  if (path.empty()) return nullptr;
  const TracedSteps steps = TracedSteps::Parse(configuration.Text("log.trace_steps"));
  if (session.batch() >= steps.last) {
    // A resumed run: the file has these steps already.
    if (rank == 0)
      LogToStderr("trace   step " + std::to_string(steps.last) + " has already passed, so nothing is traced   (--trace-steps " +
                  std::to_string(session.batch() + 1) + ":" + std::to_string(session.batch() + 3) + ")");
    return nullptr;
  }
  if (rank > 0) {
    path.replace_filename(path.stem().string() + ".rank-" + std::to_string(rank) + path.extension().string());
    // The path of rank 0 was checked before there was a run.
    CheckCanWrite(path.string());
  }
  const TraceFormat format = configuration.Text("log.trace_format") == "perfetto" ? TraceFormat::kPerfetto : TraceFormat::kChromeJson;
  return std::make_unique<RunTrace>(session, path.string(), steps, format, rank);
}

RunTrace::RunTrace(Session& session, std::string path, TracedSteps steps, TraceFormat format, int rank)
    : session_(session), path_(std::move(path)), steps_(steps), format_(format), trace_(session.plan(), rank) {
  session_.executor().set_timed(true);
}

void RunTrace::OnStep(const StepReport& report) {
  step_ = report.result.batch;
  if (!Traces()) return;
  if (step_ <= steps_.last) {
    trace_.Add(session_.last_entry(), session_.executor().LastTimes(session_.last_entry()), step_);
    trace_.AddHost("wait for data", Nanoseconds(report.asked), Nanoseconds(report.began), step_);
    trace_.AddHost("step", Nanoseconds(report.began), Nanoseconds(report.ended), step_);
  }
  reported_ns_ = NowNs();
}

void RunTrace::OnEvaluation(const EvaluationReport& report) {
  const int64_t end = NowNs();
  if (Traces()) trace_.AddHost("evaluation", end - Nanoseconds(report.seconds), end, step_);
}

void RunTrace::OnSave(SaveReason) { reported_ns_ = NowNs(); }

void RunTrace::After::OnStep(const StepReport&) {
  if (!trace_.Traces()) return;
  if (trace_.step_ <= trace_.steps_.last) trace_.trace_.AddHost("records", trace_.reported_ns_, NowNs(), trace_.step_);
  if (trace_.step_ >= trace_.steps_.last) trace_.Finish();
}

void RunTrace::After::OnSave(SaveReason) {
  if (trace_.Traces()) trace_.trace_.AddHost("save", trace_.reported_ns_, NowNs(), trace_.step_);
}

void RunTrace::Finish() {
  if (std::exchange(written_, true)) return;
  session_.executor().set_timed(false);
  if (step_ < steps_.first) {
    LogToStderr("warning the run ended after step " + std::to_string(step_) + ", before the first of --trace-steps " +
                std::to_string(steps_.first) + ":" + std::to_string(steps_.last) + ", so the trace is empty");
  }
  WriteFileAtomically(path_, format_ == TraceFormat::kPerfetto ? trace_.Serialized() : trace_.ChromeJson());
}

}  // namespace gradloom
