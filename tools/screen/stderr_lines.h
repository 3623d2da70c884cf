// What a process says on stderr, line by line: text for people, or one JSON object a line for collectors of logs. As stderr is, this is the
// process's, whoever writes. Threads may write at once; lines stay whole.
#pragma once

#include <string>
#include <string_view>

namespace gradloom {

// From here on. `json`: each line is {"t": ..., "level": ..., "message": ...}. `file`: lines go to its end, too; "": to stderr alone.
// Throws Error(kResource) where it cannot be opened.
void SetStderrLines(bool json, const std::string& file);
bool StderrLinesAreJson();

// A line, or several. `level`: "info", "warning", "error".
void WriteStderrLine(std::string_view level, const std::string& text);
// The same in the file of SetStderrLines alone, for what stderr shows in another way.
void KeepStderrLine(std::string_view level, const std::string& text);
// A JSON object as it is, in both.
void WriteStderrObject(const std::string& object);

}  // namespace gradloom
