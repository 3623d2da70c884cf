#include "tools/screen/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "runtime/base/counted.h"
#include "runtime/base/number_text.h"
#include "tools/screen/stderr_lines.h"

namespace gradloom {
namespace {

// JSON has neither NaN nor infinity, which occur as the loss of a skipped batch and as the norm of a skipped update with loss scaling.
std::string JsonNumber(const char* format, double value) { return std::isfinite(value) ? Formatted(format, value) : "null"; }

bool TerminalCanRedraw() {
  const char* term = std::getenv("TERM");
  const bool dumb = term == nullptr || std::strcmp(term, "dumb") == 0;
  return isatty(STDERR_FILENO) == 1 && !dumb && std::getenv("CI") == nullptr;
}

// Of this process; 0 if the system does not provide it.
int64_t ResidentBytes() {
  long long all = 0, resident = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  const bool read = std::fscanf(file, "%lld %lld", &all, &resident) == 2;
  std::fclose(file);
  return read ? resident * sysconf(_SC_PAGESIZE) : 0;
}

int TerminalColumns() {
  if (const char* columns = std::getenv("COLUMNS")) {
    const int n = std::atoi(columns);
    if (n > 20) return n;
  }
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 100;
}

}  // namespace

std::string WithCommas(int64_t value) {
  std::string digits = std::to_string(value);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string Bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? Formatted("%lld B", static_cast<long long>(bytes)) : Formatted("%.2f %s", value, kUnits[unit]);
}

std::string Duration(double seconds) {
  if (seconds < 0.1) return Formatted("%.3gms", seconds * 1e3);
  if (seconds < 60) return Formatted("%.1fs", seconds);
  const auto whole = static_cast<long long>(seconds);
  if (whole < 3600) return Formatted("%lld:%02lld", whole / 60, whole % 60);
  return Formatted("%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string Short(double value) {
  // Without the sign, which has no meaning.
  if (std::isnan(value)) return "nan";
  const double magnitude = std::abs(value);
  if (value == 0 || (magnitude >= 0.01 && magnitude < 1e5)) return Formatted("%.4g", value);
  return Formatted("%.2e", value);
}

std::string Timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

namespace {

// The number of UTF-8 characters, which have a width of one column in most scripts.
size_t Columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string Table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - Columns(row[i]), ' ');
      line += i == 0 ? row[i] + pad : "  " + pad + row[i];
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

namespace {

nlohmann::json AsJson(const Error& error) {
  return {{"code", ErrorName(error.code())}, {"message", error.message()}, {"where", error.where()}, {"help", error.help()}};
}

}  // namespace

void PrintErrors(const std::vector<Error>& errors) {
  constexpr size_t kMax = 100;
  if (StderrLinesAreJson()) {
    for (size_t i = 0; i < std::min(errors.size(), kMax); ++i) {
      nlohmann::json line = AsJson(errors[i]);
      line["t"] = Timestamp();
      line["level"] = "error";
      line["exit_code"] = ExitCode(errors.front().code());
      WriteStderrAsIs(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    }
    return;
  }
  for (size_t i = 0; i < std::min(errors.size(), kMax); ++i) WriteStderrLine("error", errors[i].Describe());
  if (errors.size() > kMax) WriteStderrLine("error", "and " + std::to_string(errors.size() - kMax) + " more");
  WriteStderrLine("error", "gradloom: stopped with " + Counted(std::ssize(errors), "error") + " (exit " +
                               std::to_string(ExitCode(errors.front().code())) + ")");
}

std::string ErrorsAsJson(const std::vector<Error>& errors) {
  nlohmann::json list = nlohmann::json::array();
  for (const Error& error : errors) list.push_back(AsJson(error));
  const nlohmann::json line{{"errors", std::move(list)}, {"exit_code", ExitCode(errors.front().code())}};
  // Names of a hostile file may not be UTF-8.
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Progress::Progress(ProgressMode mode, int64_t log_every, Log& log)
    : mode_(mode), log_every_(std::max<int64_t>(log_every, 1)), log_(log), start_(std::chrono::steady_clock::now()), drawn_(start_) {
  if (mode_ == ProgressMode::kAuto && StderrVerbosity() == Verbosity::kQuiet) mode_ = ProgressMode::kNone;
  if (StderrLinesAreJson() && (mode_ == ProgressMode::kAuto || mode_ == ProgressMode::kBar)) mode_ = ProgressMode::kJson;
  if (mode_ == ProgressMode::kAuto) mode_ = TerminalCanRedraw() ? ProgressMode::kBar : ProgressMode::kPlain;
}

Progress::~Progress() { Clear(); }

void Progress::Update(const State& state) {
  const auto now = std::chrono::steady_clock::now();
  if (first_ < 0) first_ = state.step;
  const bool last = state.step == state.total_steps;
  // Ten updates per second are smooth enough and cost nothing.
  if (mode_ == ProgressMode::kBar && (last || now - drawn_ >= std::chrono::milliseconds(100))) {
    drawn_ = now;
    Draw(state);
  }
  const bool due = PassesMultiple(shown_, state.step, log_every_);
  shown_ = state.step;
  if (!last && !due) return;
  if (mode_ == ProgressMode::kPlain) return log_.Line(PlainLine(state));
  log_.Record(PlainLine(state));
  if (mode_ == ProgressMode::kBar) LogToFile("info", PlainLine(state));
  if (mode_ != ProgressMode::kJson) return;
  const std::string norm = state.grad_norm < 0 ? "" : ",\"gnorm\":" + JsonNumber("%.6g", state.grad_norm);
  std::string terms;
  for (size_t i = 0; i < state.terms.size(); ++i)
    terms += "," + nlohmann::json(state.term_names[i]).dump() + ":" + JsonNumber("%.9g", state.terms[i]);
  WriteStderrAsIs(Formatted("{\"t\":\"%s\",\"step\":%lld,\"epoch\":%.4f,\"split\":\"train\",\"loss\":%s", Timestamp().c_str(),
                            static_cast<long long>(state.step), state.epoch, JsonNumber("%.9g", state.loss).c_str()) +
                  terms + (state.lr < 0 ? "" : Formatted(",\"lr\":%.9g", state.lr)) + norm +
                  Formatted(",\"samples_per_s\":%.1f}", state.samples_per_s));
}

double Progress::SecondsLeft(const State& state) const {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const int64_t own = state.step - first_ + 1;
  return elapsed * static_cast<double>(state.total_steps - state.step) / static_cast<double>(own);
}

std::string Progress::PlainLine(const State& state) const {
  const std::string norm = state.grad_norm < 0 ? "" : " gnorm=" + Short(state.grad_norm);
  std::string terms;
  for (size_t i = 0; i < state.terms.size(); ++i) terms += " " + state.term_names[i] + "=" + Short(state.terms[i]);
  return Formatted("%s step=%lld epoch=%.2f loss=%s", Timestamp().c_str(), static_cast<long long>(state.step), state.epoch,
                   Short(state.loss).c_str()) +
         terms + (state.lr < 0 ? "" : " lr=" + Short(state.lr)) + norm +
         Formatted(" samples_s=%.0f mem_mb=%.0f eta_s=%.0f", state.samples_per_s, static_cast<double>(ResidentBytes()) * 1e-6,
                   SecondsLeft(state));
}

void Progress::Evaluated(int64_t step, double epoch, const std::map<std::string, double>& values, bool best) {
  std::string line = Formatted("%s step=%lld epoch=%.2f", Timestamp().c_str(), static_cast<long long>(step), epoch);
  for (const auto& [name, value] : values) line += " eval_" + name + "=" + Short(value);
  if (best) line += " best";
  if (mode_ == ProgressMode::kPlain) return log_.Line(line);
  log_.Record(line);
  if (mode_ == ProgressMode::kBar) LogToFile("info", line);
  if (mode_ != ProgressMode::kJson) return;
  std::string members;
  for (const auto& [name, value] : values) members += "," + nlohmann::json(name).dump() + ":" + JsonNumber("%.9g", value);
  WriteStderrAsIs(
      Formatted("{\"t\":\"%s\",\"step\":%lld,\"epoch\":%.4f,\"split\":\"eval\"", Timestamp().c_str(), static_cast<long long>(step), epoch) +
      members + "}");
}

void Progress::Draw(const State& state) {
  const double done = state.total_steps > 0 ? static_cast<double>(state.step) / static_cast<double>(state.total_steps) : 0;
  constexpr int kWidth = 20;
  const int filled = static_cast<int>(done * kWidth);
  std::string bar(static_cast<size_t>(filled), '=');
  if (filled < kWidth) bar += ">" + std::string(static_cast<size_t>(kWidth - filled - 1), ' ');
  std::string line = Formatted("epoch %lld/%lld [%s] %3.0f%%  %s/%s  loss %s",
                               std::min(static_cast<long long>(state.epoch) + 1, static_cast<long long>(state.epochs)),
                               static_cast<long long>(state.epochs), bar.c_str(), done * 100, WithCommas(state.step).c_str(),
                               WithCommas(state.total_steps).c_str(), Short(state.loss).c_str());
  if (!state.metrics.empty()) line += "  " + state.metrics;
  line += (state.lr < 0 ? "" : "  lr " + Short(state.lr)) + (state.grad_norm < 0 ? "" : "  |g| " + Short(state.grad_norm));
  line += "  " + WithCommas(static_cast<int64_t>(state.samples_per_s)) + " samples/s  ETA " + Duration(SecondsLeft(state));
  // Last, as a narrow terminal cuts the line.
  for (size_t i = 0; i < state.terms.size(); ++i) line += "  " + state.term_names[i].substr(5) + " " + Short(state.terms[i]);
  const size_t columns = static_cast<size_t>(TerminalColumns() - 1);
  line.resize(columns, ' ');
  std::fprintf(stderr, "\r%s", line.c_str());
  on_line_ = true;
}

void Progress::Clear() {
  if (on_line_) std::fprintf(stderr, "\n");
  on_line_ = false;
}

}  // namespace gradloom
