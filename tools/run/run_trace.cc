#include "tools/run/run_trace.h"

#include <charconv>
#include <tuple>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace gradloom {
namespace {

// "3:5" or "3".
std::pair<int64_t, int64_t> StepsOf(const std::string& text) {
  const size_t colon = text.find(':');
  const auto number = [&](std::string_view part) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    return error == std::errc() && end == part.data() + part.size() ? value : 0;
  };
  const int64_t first = number(std::string_view(text).substr(0, colon));
  const int64_t last = colon == std::string::npos ? first : number(std::string_view(text).substr(colon + 1));
  if (first >= 1 && last >= first) return {first, last};
  throw Error(ErrorCode::kConfig, "'" + Escaped(text) + "' are no steps", "--trace-steps", "--trace-steps 3:5   the third to the fifth");
}

}  // namespace

RunTrace::RunTrace(Session& session, std::string path, const std::string& steps, TraceFormat format)
    : session_(session), path_(std::move(path)), format_(format), trace_(session.plan()) {
  std::tie(first_, last_) = StepsOf(steps);
  session_.executor().set_timed(true);
}

void RunTrace::OnStep(const StepReport& report) {
  const int64_t step = report.result.batch;
  if (written_ || step < first_) return;
  if (step <= last_) trace_.Add(session_.last_entry(), session_.executor().LastTimes(session_.last_entry()), step);
  if (step >= last_) Finish();
}

void RunTrace::Finish() {
  if (std::exchange(written_, true)) return;
  session_.executor().set_timed(false);
  WriteFileAtomically(path_, format_ == TraceFormat::kPerfetto ? trace_.Serialized() : trace_.ChromeJson());
}

}  // namespace gradloom
