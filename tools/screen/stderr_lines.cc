#include "tools/screen/stderr_lines.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "tools/screen/log_file.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

struct Lines {
  std::mutex mutex;
  bool json = false;
  std::optional<LogFile> file;
  int64_t dropped = 0;  // lines that the file has not taken since the last one that it took
  Verbosity verbosity = Verbosity::kNormal;
  bool color = false;
};

Lines& TheLines() {
  // Never destroyed, because lines may be written until the process ends.
  static auto* const lines = new Lines;
  return *lines;
}

std::string Formatted(std::string_view level, const std::string& text) {
  if (!TheLines().json) return text;
  const nlohmann::ordered_json line{{"t", Timestamp()}, {"level", level}, {"message", text}};
  // Names of a hostile file may not be UTF-8.
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool IsShown(std::string_view level) {
  const Verbosity verbosity = TheLines().verbosity;
  if (level == "debug") return verbosity == Verbosity::kVerbose;
  return level != "info" || verbosity != Verbosity::kQuiet;
}

constexpr const char *kRed = "\x1b[1;31m", *kYellow = "\x1b[1;33m", *kCyan = "\x1b[36m", *kPlain = "\x1b[0m";

// Colours the first occurrence of `head` in `text` at or after `from`.
void Paint(std::string& text, size_t from, std::string_view head, const char* color) {
  const size_t at = text.find(head, from);
  if (at == std::string::npos) return;
  text.insert(at + head.size(), kPlain);
  text.insert(at, color);
}

// The line as shown on a terminal, with its level and the beginning of the help coloured.
std::string Painted(std::string_view level, std::string line) {
  if (!TheLines().color || TheLines().json) return line;
  if (level == "error" && line.starts_with("error[")) {
    Paint(line, 0, line.substr(0, line.find(']') + 1), kRed);
    Paint(line, 0, "  help:", kCyan);
  } else if (level == "warning") {
    Paint(line, 0, "warning", kYellow);
  }
  return line;
}

void Keep(const std::string& line) {
  Lines& lines = TheLines();
  if (!lines.file) return;
  if (lines.dropped > 0 &&
      lines.file->Append(Formatted("warning", "warning " + std::to_string(lines.dropped) + " lines were dropped: nobody read them")))
    lines.dropped = 0;
  if (lines.dropped > 0 || !lines.file->Append(line)) ++lines.dropped;
}

}  // namespace

void SetStderrLines(bool json, const std::string& path) {
  Lines& lines = TheLines();
  const std::lock_guard lock(lines.mutex);
  lines.json = json;
  lines.file.reset();
  if (!path.empty()) lines.file.emplace(path);
}

bool StderrLinesAreJson() {
  const std::lock_guard lock(TheLines().mutex);
  return TheLines().json;
}

void SetVerbosity(Verbosity verbosity) {
  const std::lock_guard lock(TheLines().mutex);
  TheLines().verbosity = verbosity;
}

Verbosity StderrVerbosity() {
  const std::lock_guard lock(TheLines().mutex);
  return TheLines().verbosity;
}

void SetColorMode(ColorMode mode) {
  const char *term = std::getenv("TERM"), *none = std::getenv("NO_COLOR");
  const bool wanted = term != nullptr && std::strcmp(term, "dumb") != 0 && (none == nullptr || *none == '\0');
  const std::lock_guard lock(TheLines().mutex);
  TheLines().color = mode == ColorMode::kAlways || (mode == ColorMode::kAuto && wanted && ::isatty(STDERR_FILENO) == 1);
}

void WriteStderrLine(std::string_view level, const std::string& text) {
  const std::lock_guard lock(TheLines().mutex);
  const std::string line = Formatted(level, text);
  if (IsShown(level)) std::fprintf(stderr, "%s\n", Painted(level, line).c_str());
  if (IsShown(level) || level != "debug") Keep(line);
}

void LogToStderr(const std::string& text) { WriteStderrLine(text.starts_with("warning ") ? "warning" : "info", text); }

void LogToFile(std::string_view level, const std::string& text) {
  const std::lock_guard lock(TheLines().mutex);
  Keep(Formatted(level, text));
}

void WriteStderrAsIs(const std::string& text) {
  const std::lock_guard lock(TheLines().mutex);
  std::fprintf(stderr, "%s\n", text.c_str());
  Keep(text);
}

}  // namespace gradloom
