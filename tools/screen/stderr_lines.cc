#include "tools/screen/stderr_lines.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "tools/screen/screen.h"

namespace gradloom {
namespace {

struct Lines {
  std::mutex mutex;
  bool json = false;
  std::FILE* file = nullptr;  // open until the process ends
};

Lines& TheLines() {
  static Lines lines;
  return lines;
}

std::string Formatted(std::string_view level, const std::string& text) {
  if (!TheLines().json) return text;
  const nlohmann::ordered_json line{{"t", Timestamp()}, {"level", level}, {"message", text}};
  // Names of a hostile file need not be UTF-8.
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void Keep(const std::string& line) {
  std::FILE* const file = TheLines().file;
  if (file == nullptr) return;
  std::fprintf(file, "%s\n", line.c_str());
  std::fflush(file);
}

}  // namespace

void SetStderrLines(bool json, const std::string& path) {
  Lines& lines = TheLines();
  const std::lock_guard lock(lines.mutex);
  lines.json = json;
  if (lines.file != nullptr) std::fclose(lines.file);
  lines.file = path.empty() ? nullptr : std::fopen(path.c_str(), "ae");
  if (lines.file == nullptr && !path.empty())
    throw Error(ErrorCode::kResource, std::string("cannot open the log: ") + std::strerror(errno), Escaped(path, 4096));
}

bool StderrLinesAreJson() {
  const std::lock_guard lock(TheLines().mutex);
  return TheLines().json;
}

void WriteStderrLine(std::string_view level, const std::string& text) {
  const std::lock_guard lock(TheLines().mutex);
  const std::string line = Formatted(level, text);
  std::fprintf(stderr, "%s\n", line.c_str());
  Keep(line);
}

void KeepStderrLine(std::string_view level, const std::string& text) {
  const std::lock_guard lock(TheLines().mutex);
  Keep(Formatted(level, text));
}

void WriteStderrObject(const std::string& object) {
  const std::lock_guard lock(TheLines().mutex);
  std::fprintf(stderr, "%s\n", object.c_str());
  Keep(object);
}

}  // namespace gradloom
