// What a process says on stderr, line by line: text for people, or one JSON object a line for collectors of logs. As stderr is, this is the
// process's, whoever writes. Threads may write at once; lines stay whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gradloom {

// What of it is shown: warnings and errors alone; that and what is said anyway; that and what is of use when something is looked for.
enum class Verbosity : uint8_t { kQuiet, kNormal, kVerbose };
enum class ColorMode : uint8_t { kAuto, kAlways, kNever };

// From here on. kAuto: colours where stderr is a terminal, unless NO_COLOR or TERM says otherwise. Files have none and are told all that is
// not verbose.
void SetVerbosity(Verbosity verbosity);
Verbosity StderrVerbosity();
void SetColorMode(ColorMode mode);

// From here on. `json`: each line is {"t": ..., "level": ..., "message": ...}. `file`: lines go to its end, too; "": to stderr alone.
// Throws Error(kResource) where it cannot be opened.
void SetStderrLines(bool json, const std::string& file);
bool StderrLinesAreJson();

// A line, or several. `level`: "debug", "info", "warning", "error".
void WriteStderrLine(std::string_view level, const std::string& text);
// One that is a warning where it begins with that word, else information.
void SayOnStderr(const std::string& text);
// The same in the file of SetStderrLines alone, for what stderr shows in another way.
void KeepStderrLine(std::string_view level, const std::string& text);
// A JSON object as it is, in both.
void WriteStderrObject(const std::string& object);

}  // namespace gradloom
