// Lines on stderr: text for people, or one JSON object per line for log collectors. Like stderr itself, the state belongs to the process.
// Threads may write concurrently; lines stay whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

// What is shown: only warnings and errors; that and normal messages; or everything, including debug messages.
enum class Verbosity : uint8_t { kQuiet, kNormal, kVerbose };
enum class ColorMode : uint8_t { kAuto, kAlways, kNever };

// Applies from now on. kAuto: colours if stderr is a terminal, unless NO_COLOR or TERM forbids them. Files have no colours; they get all
// messages, verbose ones only if stderr shows them.
void SetVerbosity(Verbosity verbosity);
Verbosity StderrVerbosity();
void SetColorMode(ColorMode mode);

// Applies from now on. `json`: each line is {"t": ..., "level": ..., "message": ...}. `file`: lines are also appended to this file; "":
// stderr only. Throws Error(kResource) if it cannot be opened.
void SetStderrLines(bool json, const std::string& file);
bool StderrLinesAreJson();

// Writes one or more lines. `level`: "debug", "info", "warning" or "error".
void WriteStderrLine(std::string_view level, const std::string& text);
// Writes a warning if the text begins with that word, otherwise information.
void LogToStderr(const std::string& text);
// Writes only to the file of SetStderrLines, for messages that stderr shows in another form.
void LogToFile(std::string_view level, const std::string& text);
// Writes one or more lines as they are, to both, whatever is shown: a JSON object, or text that was asked for.
void WriteStderrAsIs(const std::string& text);

}  // namespace gradloom
